"""Procedural worlds: roads, junctions, signals and traffic around an ego car, laid out like a logged scene.

Unlike `s3jax.scenarios.procedural`, which makes bare control tasks by the thousand, a world has a map, other
road users and lights, can be written as a Waymo Open Motion Dataset record (`s3jax.scenarios.womd_writer`)
and read by Waymax. A world is a function of its kind, its seed and the configuration.
"""

from dataclasses import dataclass

import numpy as np

from s3jax.scenarios.checks import overlap
from s3jax.scenarios.procedural import strip
from s3jax.scenarios.raw import LOG_DT, PEDESTRIAN, Lights, RawScene, Tracks, make_scene
from s3jax.scenarios.roads import SPACING, heading
from s3jax.scenarios.traffic import STEPS, Driver, poses, simulate
from s3jax.scenarios.world_kinds import KINDS, WorldConfig
from s3jax.scenarios.world_plan import Plan
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.friction import friction_at, friction_map

_MARGIN = np.array([0.4, 0.2])  # m of length and width added where road users must keep clear of each other


@dataclass
class World:
    """A generated scene.

    Attributes:
      scene: the scene as if logged, 91 steps of 0.1 s, the ego car in row 0.
      route: [n, 2] the ego car's path (m).
      kind: kind of world.
    """

    scene: RawScene
    route: np.ndarray
    kind: str


def generate_world(config: WorldConfig, seed: int, kind: str | None = None) -> World:
    """Generates one world; the same arguments and NumPy version give the same bits.

    Args:
      config: the generator's configuration.
      seed: of the random numbers.
      kind: a name in `KINDS`; drawn from `config.mix` by default.
    """
    rng = np.random.default_rng(seed)
    names, weights = list(config.mix), np.array(list(config.mix.values()))
    drawn = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    kind = drawn if kind is None else kind
    plan = KINDS[kind](config, rng)
    values, weights = np.array(config.surfaces).T
    base = rng.choice(values, p=weights / weights.sum())
    friction = friction_map(base, _patches(config, rng, plan.ego))
    under = friction_at(friction, *plan.ego.path.T)
    plan.ego.friction = _least_around(under, round(8.0 / SPACING))
    plan.ego.prescribed = _within_grip(plan.ego)
    for driver in plan.drivers:
        driver.friction = base
    tracks = _tracks(config, rng, plan)
    scene = make_scene(
        scene_id=f"{kind}_{seed:06d}",
        time=np.arange(STEPS) * LOG_DT,
        tracks=tracks,
        sdc=0,
        features=plan.roads.features(),
        lights=_lights(plan),
        friction=friction,
    )
    return World(scene, plan.ego.path, kind)


def _patches(config, rng, ego: Driver):
    if rng.random() >= config.patches or np.isfinite(ego.prescribed).any():
        return []
    middle = ego.place + rng.uniform(15.0, max(20.0, 6.0 * ego.speed))
    half = rng.uniform(*config.patch_length) / 2
    path = poses(ego.path, np.clip(middle + half * np.linspace(-1, 1, 6), 0.0, (len(ego.path) - 2) * SPACING))
    return [(strip(*path.T), rng.uniform(*config.patch_friction))]


def _within_grip(ego: Driver) -> np.ndarray:
    """The ego car's prescribed speed, changing no faster than the road allows."""
    most = LOG_DT * 9.81 * ego.grip * ego.friction.min()
    steps = np.clip(np.diff(ego.prescribed), -most, most)
    return ego.prescribed[0] + np.concatenate([[0.0], np.cumsum(steps)])


def _least_around(values, reach):
    padded = np.pad(values, reach, "edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).min(axis=1)


def _tracks(config, rng, plan: Plan) -> Tracks:
    """Simulates the traffic and drops, in order, whoever would come too close to those kept before."""
    drivers = [plan.ego, *plan.drivers]
    place, speed = simulate(drivers)
    yaws = {id(driver.path): heading(driver.path) for driver in drivers}
    pose = np.stack([poses(d.path, row, yaws[id(d.path)]) for d, row in zip(drivers, place, strict=True)])
    last = np.array([(len(driver.path) - 2) * SPACING for driver in drivers])[:, None]
    size = np.array([driver.size for driver in drivers])
    valid = place < last - 2.0 - size[:, :1] / 2
    types = np.array([driver.type for driver in drivers])
    if plan.walks:
        time = np.arange(STEPS) * LOG_DT
        steps = [(path, begin + pace * time, pace) for path, begin, pace in plan.walks]
        walk = np.stack([poses(path, at) for path, at, _ in steps])
        ends = np.array([(len(path) - 2) * SPACING for path, _, _ in steps])[:, None]
        pose = np.concatenate([pose, walk])
        speed = np.concatenate([speed, [np.full(STEPS, pace) for _, _, pace in steps]])
        valid = np.concatenate([valid, np.stack([at for _, at, _ in steps]) < ends])
        size = np.concatenate([size, np.repeat([[0.9, 0.8, 1.7]], len(steps), axis=0)])
        types = np.concatenate([types, np.full(len(steps), PEDESTRIAN)])
    kept = _clear(pose, size, valid)
    pose, speed, valid, size, types = pose[kept], speed[kept], valid[kept], size[kept], types[kept]
    x, y, yaw = np.moveaxis(pose, -1, 0)
    length, width, height = (np.repeat(column[:, None], STEPS, axis=1) for column in size.T)
    return Tracks(
        x=x, y=y, z=np.zeros_like(x), yaw=wrap_angle(yaw), vx=speed * np.cos(yaw), vy=speed * np.sin(yaw),
        length=length, width=width, height=height, valid=valid, types=types, ids=np.arange(len(types)),
    )  # fmt: skip


def _clear(pose, size, valid) -> list[int]:
    """Rows that stay when, in order, each one that comes too close to one that stays is dropped."""
    boxes = np.concatenate([pose, np.repeat((size[:, :2] + _MARGIN)[:, None], STEPS, axis=1)], axis=2)
    place = pose[..., :2].astype(np.float32)
    reach = np.hypot(*(size[:, :2] + _MARGIN).T).astype(np.float32) / 2
    gap = ((place[:, None] - place[None]) ** 2).sum(axis=-1)
    near = (gap < ((reach[:, None] + reach) ** 2)[..., None]) & valid[:, None] & valid[None]
    one, other, step = np.nonzero(near & np.tri(len(boxes), k=-1, dtype=bool)[..., None])
    hit = overlap(boxes[one, step], boxes[other, step])
    clash = np.zeros((len(boxes), len(boxes)), bool)
    clash[one[hit], other[hit]] = True
    kept = [0]
    for row in range(1, len(boxes)):
        if not clash[row, kept].any():
            kept.append(row)
    return kept


def _lights(plan: Plan) -> Lights:
    shape = (len(plan.lights), STEPS)
    lights = Lights(np.zeros(shape), np.zeros(shape), np.zeros(shape, int), np.zeros(len(plan.lights), int))
    for row, (lane, states) in enumerate(plan.lights):
        lights.x[row], lights.y[row] = lane.path[0]
        lights.state[row], lights.lane[row] = states, lane.id
    return lights
