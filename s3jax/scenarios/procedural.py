"""Procedural control tasks: roads, speeds and surfaces without a download, thousands per second.

A task is a reference to track and the friction under it, without map or traffic. The road is a chain of
straights and circular arcs joined by clothoids; the speed is the fastest that limits of speed, grip and
comfort allow, braking before a curve, a stop or an ice patch; friction is drawn per task. Family `womd`
drives as gently as logged traffic; the others drive at a drawn share of the friction limit.
"""

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from s3jax.config import Config
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tags import measure_motion
from s3jax.spatial.friction import FrictionMap, friction_at, friction_map
from s3jax.spatial.reference import make_reference
from s3jax.tracks.speed import fastest_speed

GRAVITY = 9.81
_STEP = 0.5  # m between the nodes of a road
_SECTIONS = 16
_CHUNK = 1024
_SMOOTHING = 0.35  # s over which the speed is averaged, so that acceleration does not jump
_PATCH_MARGIN = 8.0  # m around a patch where the reference respects it too: a wheelbase, and the averaging
_PATCH_HALF_WIDTH = 5.0  # m; below the smallest radius, so that a strip never folds over itself
_PATCH_STATIONS = 6


def _ordered(span):
    if not 0 <= span[0] <= span[1]:
        raise ValueError("expected two numbers, the first not above the second, neither negative")
    return span


def some_weight(weights):
    """Validates weights, or pairs of a value and its weight."""
    values = [weight[-1] if isinstance(weight, tuple) else weight for weight in weights]
    if not values or min(values) < 0 or sum(values) == 0:
        raise ValueError("expected weights that are not negative and not all zero")
    return weights


Span = Annotated[tuple[float, float], AfterValidator(_ordered)]


class FamilyConfig(Config):
    """How one family of tasks is drawn; every span is uniform."""

    weight: float = Field(1.0, ge=0.0, description="share of the tasks, relative to the other families")
    speed: Span = Field((8.0, 16.0), description="speed limit (m/s)")
    radius: Span = Field((12.0, 120.0), description="radius of curves (m), log-uniform")
    angle: Span = Field((15.0, 110.0), description="angle of curves (degrees)")
    straight: Span = Field((10.0, 80.0), description="length of straights (m)")
    curves: float = Field(0.5, ge=0, le=1, description="share of sections that are curves")
    alternate: float = Field(0.5, ge=0, le=1, description="chance that a curve turns against the one before")
    usage: Span = Field((0.3, 0.95), description="share of the friction limit that the reference uses")
    accel: Span = Field((4.0, 4.0), description="largest acceleration (m/s^2)")
    brake: Span = Field((12.0, 12.0), description="largest deceleration (m/s^2)")
    lateral: Span = Field((12.0, 12.0), description="largest lateral acceleration (m/s^2)")
    launch: float = Field(0.1, ge=0, le=1, description="share that starts from rest")
    stand: float = Field(0.0, ge=0, le=1, description="share that stands still all the time")
    slow: float = Field(0.3, ge=0, le=1, description="share that brakes for a slow zone")
    stop: float = Field(
        0.1, ge=0, le=1, description="share that stops once or, where `queue`, again and again"
    )
    queue: bool = Field(False, description="stop-and-go instead of one stop")


def _family(**values) -> FamilyConfig:
    return FamilyConfig(**values)


class FamiliesConfig(Config):
    """The families of tasks."""

    womd: FamilyConfig = _family(
        weight=3.0, speed=(4.0, 15.0), radius=(12.0, 150.0), straight=(20.0, 150.0), curves=0.35,
        usage=(0.3, 0.6), accel=(0.8, 2.0), brake=(1.0, 2.5), lateral=(1.0, 3.0), launch=0.2, slow=0.2,
        stop=0.35, stand=0.08,
    )  # fmt: skip
    town: FamilyConfig = _family(weight=2.0, radius=(12.0, 60.0))
    road: FamilyConfig = _family(
        weight=2.0, speed=(15.0, 45.0), radius=(30.0, 500.0), angle=(10.0, 90.0), straight=(20.0, 200.0),
        curves=0.7,
    )  # fmt: skip
    straight: FamilyConfig = _family(
        weight=1.0, speed=(8.0, 45.0), curves=0.0, launch=0.3, slow=0.7, stop=0.3,
    )  # fmt: skip
    s_curve: FamilyConfig = _family(
        weight=2.0, speed=(8.0, 40.0), radius=(12.0, 300.0), angle=(15.0, 70.0), straight=(2.0, 20.0),
        curves=0.95, alternate=0.95, slow=0.1, stop=0.0,
    )  # fmt: skip
    stop_and_go: FamilyConfig = _family(
        weight=1.0, speed=(3.0, 14.0), curves=0.3, launch=0.3, slow=0.0, stop=1.0, queue=True,
    )  # fmt: skip


class ProceduralConfig(Config):
    """The procedural generator."""

    count: int = Field(2048, ge=0, description="tasks")
    duration: float = Field(9.0, ge=1.0, le=600.0, description="seconds, as long as a WOMD log")
    surfaces: Annotated[tuple[tuple[float, float], ...], AfterValidator(some_weight)] = Field(
        ((1.0, 0.5), (0.7, 0.2), (0.6, 0.1), (0.3, 0.2)), description="friction and weight of each surface"
    )
    patches: Annotated[tuple[float, float, float], AfterValidator(some_weight)] = Field(
        (0.5, 0.3, 0.2), description="weight of 0, 1 and 2 ice patches"
    )
    patch_friction: Span = (0.08, 0.3)
    patch_length: Span = Field((10.0, 45.0), description="m along the road; a patch lies across all of it")
    power: float = Field(60.0, gt=0, description="W per kg: what limits acceleration at speed")
    families: FamiliesConfig = FamiliesConfig()


class _Tasks(NamedTuple):
    """What is drawn per task; arrays [S] or [S, ...]."""

    family: np.ndarray
    limit: np.ndarray  # [S, N] m/s at each node
    hold: np.ndarray  # [S, N] seconds of standstill at each node
    curvature: np.ndarray  # [S, N] 1/m
    start: np.ndarray  # m/s, an upper bound
    usage: np.ndarray
    accel: np.ndarray
    brake: np.ndarray
    lateral: np.ndarray
    base: np.ndarray


def generate(config: ProceduralConfig, seed: int, dt: float = 0.05) -> list[Scenario]:
    """Generates control tasks; the same configuration, seed and NumPy version give the same bits.

    Args:
      config: what to generate.
      seed: of the random numbers.
      dt: sample interval of the references (s).

    Returns:
      `config.count` scenarios with reference, friction and features, starting at the origin.
    """
    scenarios = []
    for chunk, first in enumerate(range(0, config.count, _CHUNK)):
        rng = np.random.default_rng([seed, chunk])
        scenarios += _generate(config, rng, min(_CHUNK, config.count - first), seed, first, dt)
    return scenarios


def _generate(config, rng, count, seed, first, dt):
    names = list(FamiliesConfig.model_fields)
    tasks = _draw(config, rng, count)
    path = _integrate(tasks.curvature, rng.uniform(-np.pi, np.pi, count))
    grip = np.broadcast_to(tasks.base[:, None], tasks.curvature.shape)
    speed = _profile(config, tasks, grip)
    reached = _STEP * _nodes_until(speed, tasks.hold, config.duration)
    maps = _draw_patches(config, rng, tasks, path, reached)
    icy = np.array([len(friction.values) > 0 for friction in maps])
    if icy.any():
        under = np.stack([
            friction_at(maps[row], path[row, :, 0], path[row, :, 1]) for row in np.flatnonzero(icy)
        ])  # fmt: skip
        grip = grip.copy()
        grip[icy] = _least_around(under, round(_PATCH_MARGIN / _STEP))
        speed[icy] = _profile(config, _Tasks(*(field[icy] for field in tasks)), grip[icy])
    scenarios = []
    for row in range(count):
        travelled, along = _drive(speed[row], tasks.hold[row], config.duration, dt)
        pose = _pose(path[row], tasks.curvature[row], travelled)
        family = names[tasks.family[row]]
        scenarios.append(
            Scenario(
                id=f"{family}-{seed}-{first + row}",
                source=f"procedural:{family}",
                dt=dt,
                reference=make_reference(*pose, along, dt),
                friction=maps[row],
                features=measure_motion(*pose, along, dt),
            )
        )
    return scenarios


def _draw(config: ProceduralConfig, rng, count) -> _Tasks:
    families = [getattr(config.families, name) for name in FamiliesConfig.model_fields]
    family = rng.choice(len(families), count, p=_shares([member.weight for member in families]))

    def drawn(name):
        low, high = np.array([getattr(member, name) for member in families])[family].T
        return rng.uniform(low, high)

    def happens(name):
        return rng.random(count) < np.array([getattr(member, name) for member in families])[family]

    fastest = max(member.speed[1] for member in families)
    nodes = int(fastest * config.duration / _STEP) + 2
    top = drawn("speed")
    limit = np.repeat(top[:, None], nodes, axis=1)
    hold = np.zeros((count, nodes))
    place = np.arange(nodes) * _STEP

    slow = happens("slow")
    begin = rng.uniform(0.15, 0.7, count) * top * config.duration
    end = begin + rng.uniform(5.0, 60.0, count)
    zone = slow[:, None] & (place >= begin[:, None]) & (place < end[:, None])
    limit = np.where(zone, (top * rng.uniform(0.2, 0.7, count))[:, None], limit)

    stop = happens("stop")
    queue = np.array([member.queue for member in families])[family]
    gaps = rng.uniform(8.0, 35.0, (count, 12)).cumsum(axis=1)
    once = rng.uniform(0.1, 0.6, count) * top * config.duration
    stops = np.where(queue[:, None], gaps, np.where(np.arange(12) == 0, once[:, None], np.inf))
    for row, column in np.argwhere(stop[:, None] & (stops < place[-2])):
        node = int(stops[row, column] / _STEP) + 1
        limit[row, node] = 0.0
        hold[row, node] = rng.uniform(0.6, 3.0)

    stand = happens("stand")
    launch = happens("launch") | stand
    hold[:, 0] = np.where(launch, rng.uniform(0.0, 1.5, count), 0.0) + np.where(
        stand, 2 * config.duration, 0.0
    )
    values, weights = np.array(config.surfaces).T
    return _Tasks(
        family=family,
        limit=limit,
        hold=hold,
        curvature=_draw_curvature(rng, families, family, happens, drawn, top, place),
        start=np.where(launch, 0.0, rng.uniform(0.5, 1.0, count) * top),
        usage=drawn("usage"),
        accel=drawn("accel"),
        brake=drawn("brake"),
        lateral=drawn("lateral"),
        base=rng.choice(values, count, p=_shares(weights)),
    )


def _draw_curvature(rng, families, family, happens, drawn, top, place):
    """Curvature [S, N] of chains of straights and arcs; clothoids between them."""
    count = len(family)
    columns = range(_SECTIONS)
    low, high = np.array([member.radius for member in families])[family].T
    # A curve that would have to be taken at a small fraction of the limit belongs to another road.
    low = np.minimum(np.maximum(low, top**2 / 30.0), high)
    radius = np.exp(rng.uniform(np.log(low), np.log(high), (_SECTIONS, count))).T
    curve = np.stack([happens("curves") for _ in columns], axis=1)
    angle = np.deg2rad(np.stack([drawn("angle") for _ in columns], axis=1))
    straight = np.stack([drawn("straight") for _ in columns], axis=1)
    flips = np.where(np.stack([happens("alternate") for _ in columns], axis=1), -1.0, 1.0)
    sign = (
        np.cumprod(np.where(curve, flips, 1.0), axis=1)
        * np.where(rng.random(count) < 0.5, -1.0, 1.0)[:, None]
    )
    value = np.where(curve, sign / radius, 0.0)
    ramp = 5.0 + rng.uniform(0.3, 1.0, radius.shape) * np.sqrt(8.0 * radius)
    ramp = np.where(curve | np.roll(curve, 1, axis=1), ramp, 1.0)
    length = np.where(curve, angle * radius, straight)
    knots = np.cumsum(np.stack([ramp, length], axis=2).reshape(count, -1), axis=1)
    knots -= (rng.uniform(0.0, 1.0, count) * knots[:, 1])[:, None]
    return np.stack([np.interp(place, knots[row], np.repeat(value[row], 2)) for row in range(count)])


def _shares(weights):
    weights = np.asarray(weights, float)
    return weights / weights.sum()


def _integrate(curvature, yaw):
    """Road nodes [S, N, 3]: x, y, yaw, starting at the origin with heading `yaw` [S]."""
    mean, change = (curvature[:, :-1] + curvature[:, 1:]) / 2, np.diff(curvature, axis=1)
    heading = yaw[:, None] + np.concatenate(
        [np.zeros_like(mean[:, :1]), np.cumsum(mean * _STEP, axis=1)], axis=1
    )
    chord = heading[:, :-1] + _STEP * (curvature[:, :-1] / 2 + change / 6)
    x, y = (
        np.concatenate([np.zeros_like(mean[:, :1]), np.cumsum(_STEP * part, axis=1)], axis=1)
        for part in (np.cos(chord), np.sin(chord))
    )
    return np.stack([x, y, heading], axis=2)


def _pose(path, curvature, travelled):
    """Poses x, y, yaw, each [T], at distances [T] along one road; each step of the road is a clothoid."""
    node = np.minimum((travelled / _STEP).astype(int), len(path) - 2)
    beyond = travelled - node * _STEP
    rate = (curvature[node + 1] - curvature[node]) / _STEP
    x, y, yaw = path[node].T
    chord = yaw + beyond * (curvature[node] / 2 + beyond * rate / 6)
    turned = yaw + beyond * (curvature[node] + beyond * rate / 2)
    return x + beyond * np.cos(chord), y + beyond * np.sin(chord), turned


def _profile(config, tasks: _Tasks, friction):
    return fastest_speed(
        tasks.limit,
        np.abs(tasks.curvature),
        GRAVITY * tasks.usage[:, None] * friction,
        _STEP,
        lateral=tasks.lateral,
        brake=tasks.brake,
        accel=tasks.accel,
        start=tasks.start,
        power=config.power,
    )


def _least_around(values, reach):
    padded = np.pad(values, ((0, 0), (reach, reach)), "edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=1).min(axis=2)


def _departures(speed, hold):
    """Arrival and departure times [..., N] at the nodes."""
    between = 2 * _STEP / np.maximum(speed[..., :-1] + speed[..., 1:], 1e-3)
    depart = np.cumsum(hold + np.concatenate([np.zeros_like(hold[..., :1]), between], axis=-1), axis=-1)
    return depart - hold, depart


def _nodes_until(speed, hold, duration):
    return (_departures(speed, hold)[0] <= duration).sum(axis=1)


def _drive(speed, hold, duration, dt):
    """Distance and speed [T] every `dt` along one road; acceleration is constant between nodes."""
    reach = round(_SMOOTHING / dt / 2)
    count = round(duration / dt) + 1
    time = np.clip(np.arange(-reach, count + reach) * dt, 0.0, None)
    arrive, depart = _departures(speed, hold)
    node = np.clip(np.searchsorted(depart, time, side="right") - 1, 0, len(speed) - 2)
    spent = np.clip(time - depart[node], 0.0, arrive[node + 1] - depart[node])
    pace = speed[node] + (speed[node + 1] - speed[node]) * spent / (arrive[node + 1] - depart[node])
    pace = np.where(time < depart[0], 0.0, np.where(time >= arrive[node + 1], speed[node + 1], pace))
    smooth = np.convolve(pace, np.full(2 * reach + 1, 1 / (2 * reach + 1)), "valid")
    smooth = np.where(smooth < 1e-9, 0.0, smooth)
    return np.concatenate([[0.0], np.cumsum((smooth[1:] + smooth[:-1]) / 2 * dt)]), smooth


def _draw_patches(config, rng, tasks: _Tasks, path, reached) -> list[FrictionMap]:
    """Friction maps with strips of ice across the road, somewhere on the way of each task."""
    count = len(reached)
    number = rng.choice(3, count, p=_shares(config.patches))
    middle = rng.uniform(0.15, 1.0, (count, 2)) * np.maximum(reached, 20.0)[:, None]
    half = rng.uniform(*config.patch_length, (count, 2)) / 2
    value = np.minimum(rng.uniform(*config.patch_friction, (count, 2)), tasks.base[:, None])
    fraction = np.linspace(-1.0, 1.0, _PATCH_STATIONS)
    maps = []
    for row in range(count):
        patches = []
        for patch in range(number[row]):
            place = np.clip(
                middle[row, patch] + half[row, patch] * fraction, 0.0, (path.shape[1] - 2) * _STEP
            )
            x, y, yaw = _pose(path[row], tasks.curvature[row], place)
            patches.append((strip(x, y, yaw), value[row, patch]))
        maps.append(friction_map(tasks.base[row], patches))
    return maps


def strip(x, y, yaw) -> np.ndarray:
    """Returns the corners [2 n, 2] of a strip around poses [n] along a road: a patch right across it."""
    across = _PATCH_HALF_WIDTH * np.stack([-np.sin(yaw), np.cos(yaw)], axis=1)
    line = np.stack([x, y], axis=1)
    return np.concatenate([line + across, (line - across)[::-1]])
