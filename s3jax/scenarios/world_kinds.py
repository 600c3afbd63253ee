"""The kinds of procedural worlds: each draws roads, an ego car, traffic, pedestrians and lights."""

import difflib
from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from s3jax.config import Config
from s3jax.scenarios.procedural import Span, some_weight
from s3jax.scenarios.raw import LOG_DT
from s3jax.scenarios.roads import (
    LANE_WIDTH,
    SPACING,
    Lane,
    RoadMap,
    chain,
    circle,
    connect,
    join,
    offset,
    resample,
    smooth,
)
from s3jax.scenarios.traffic import STEPS
from s3jax.scenarios.world_plan import (
    EGO_SIZE,
    Plan,
    add_cyclist,
    add_neighbours,
    add_parked,
    add_queue,
    add_walkers,
    draw_limit,
    ego_car,
)
from s3jax.spatial.frames import wrap_angle

_SHOULDER, _PARKING = 0.6, 2.8  # m between the outer lane and the edge
_RED, _GREEN = 4, 6


def _known_kinds(mix):
    unknown = sorted(set(mix) - set(KINDS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], KINDS, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown kind {unknown[0]}; did you mean {near}?")
    if not mix or min(mix.values()) < 0 or sum(mix.values()) == 0:
        raise ValueError("expected weights that are not negative and not all zero")
    return mix


class WorldConfig(Config):
    """The world generator. `mix` weighs the kinds; the spans are drawn per world, uniformly.

    The defaults resemble the logged driving of the Waymo Open Motion Dataset; `configs/scenarios/limit.yaml`
    goes beyond it.
    """

    mix: Annotated[dict[str, float], AfterValidator(_known_kinds)] = Field(
        {
            "wait": 0.26, "straight": 0.24, "curve": 0.04, "s_curve": 0.02, "fast_curve": 0.06,
            "lane_change": 0.02, "merge": 0.01, "brake": 0.02, "stop_and_go": 0.12, "left": 0.14,
            "right": 0.10, "through": 0.03, "u_turn": 0.01, "roundabout": 0.01,
        },
        description="weight of each kind of world",
    )  # fmt: skip
    speed: Span = Field((0.4, 1.15), description="factor on the speed limit that a kind draws")
    lateral: Span = Field((1.0, 3.0), description="lateral acceleration of the ego car (m/s^2)")
    accel: Span = Field((0.7, 1.8), description="its acceleration (m/s^2)")
    brake: Span = Field((0.8, 1.6), description="its comfortable deceleration (m/s^2)")
    hard_brake: Span = Field((1.5, 2.5), description="its deceleration in kind `brake` (m/s^2)")
    grip: Span = Field((0.5, 0.7), description="share of the friction limit that it uses")
    surfaces: Annotated[tuple[tuple[float, float], ...], AfterValidator(some_weight)] = Field(
        ((1.0, 1.0),), description="friction and weight of each"
    )
    patches: float = Field(0.0, ge=0, le=1, description="share of worlds with an ice patch on the ego's way")
    patch_friction: Span = (0.08, 0.3)
    patch_length: Span = (10.0, 45.0)
    traffic: float = Field(1.0, ge=0, description="density of road users, 1 is ordinary")


def _road(config, rng, sections, limit, kind="two_way", **changes):
    """A road with traffic on every lane; the ego car starts 60 m along it. Returns the plan and its lanes."""
    roads = RoadMap()
    centre = chain(sections)
    lanes = int(rng.integers(1, 4)) if kind == "two_way" else int(rng.integers(2, 4))
    parking = kind == "two_way" and rng.random() < 0.5
    shoulder = _PARKING if parking else _SHOULDER
    if kind == "two_way":
        forward, backward = roads.two_way(centre, lanes, shoulder)
    else:
        forward, backward = roads.one_way(centre, lanes, _SHOULDER), []
    own = int(rng.integers(0, lanes))
    path = smooth(resample(forward[own].path))
    plan = Plan(roads, ego_car(config, rng, path, 60.0, rng.uniform(0.7, 1.0) * limit, limit, **changes))
    for lane in forward + backward:
        if lane is not forward[own]:
            add_queue(
                config, rng, plan, smooth(resample(lane.path)), limit, 10.0, len(lane.path) * SPACING - 120
            )
    if kind == "two_way":
        for side in (forward, backward):
            outer = side[-1].path
            if parking:
                add_parked(config, rng, plan, outer, LANE_WIDTH / 2 + 1.4)
            else:
                add_cyclist(config, rng, plan, side[-1])
            add_walkers(config, rng, plan, outer, LANE_WIDTH / 2 + shoulder + 2.0)
    return plan, forward, own


def _straight(config, rng):
    plan, _, _ = _road(config, rng, [(420.0, 0.0, 0.0)], draw_limit(config, rng, 6.0, 15.0))
    if rng.random() < 0.5:
        add_neighbours(config, rng, plan)
    return plan


def _curve(config, rng):
    bend = rng.choice([-1, 1]) / np.exp(rng.uniform(np.log(18.0), np.log(120.0)))
    arc = rng.uniform(0.5, 1.7) / abs(bend)
    ramp = rng.uniform(15.0, 30.0)
    sections = [
        (rng.uniform(65.0, 95.0), 0, 0),
        (ramp, 0, bend),
        (arc, bend, bend),
        (ramp, bend, 0),
        (220.0, 0, 0),
    ]
    return _road(config, rng, sections, draw_limit(config, rng, 8.0, 15.0))[0]


def _s_curve(config, rng):
    bend = rng.choice([-1, 1]) / rng.uniform(22.0, 80.0)
    arc, ramp = rng.uniform(0.4, 0.9) / abs(bend), rng.uniform(15.0, 25.0)
    there = [(ramp, 0, bend), (arc, bend, bend), (ramp, bend, 0)]
    back = [(ramp, 0, -bend), (arc, -bend, -bend), (ramp, -bend, 0)]
    return _road(
        config, rng, [(80.0, 0, 0), *there, *back, (200.0, 0, 0)], draw_limit(config, rng, 9.0, 15.0)
    )[0]


def _fast_curve(config, rng):
    bend = rng.choice([-1, 1]) / rng.uniform(220.0, 600.0)
    sections = [(80.0, 0, 0), (70.0, 0, bend), (300.0, bend, bend), (70.0, bend, 0), (100.0, 0, 0)]
    return _road(config, rng, sections, draw_limit(config, rng, 20.0, 32.0), kind="one_way")[0]


def _change(plan: Plan, lane: Lane, side: float, begin: float, length: float) -> None:
    """Makes the ego car's path change by one lane to the left (`side` 1) or right (-1): a quintic."""
    along = np.clip((np.arange(len(lane.path)) * SPACING - begin) / length, 0.0, 1.0)
    blend = along**3 * (10 - 15 * along + 6 * along**2)
    plan.ego.path = smooth(resample(offset(lane.path, side * LANE_WIDTH * blend)))


def _lane_change(config, rng):
    limit = draw_limit(config, rng, 9.0, 18.0)
    plan, forward, own = _road(config, rng, [(500.0, 0, 0)], limit, kind="one_way")
    side = 1.0 if own == len(forward) - 1 else -1.0
    _change(plan, forward[own], side, 60.0 + rng.uniform(5.0, 40.0), rng.uniform(3.0, 5.0) * limit)
    return plan


def _merge(config, rng):
    """The rightmost lane ends; the ego car leaves it for the next one."""
    limit = draw_limit(config, rng, 12.0, 22.0)
    roads = RoadMap()
    lanes, left = int(rng.integers(2, 4)), chain([(560.0, 0.0, 0.0)])
    end = 60.0 + rng.uniform(6.0, 8.0) * limit
    along = np.clip((np.arange(len(left)) * SPACING - end) / 50.0, 0.0, 1.0)
    made = roads.one_way(left, lanes, _SHOULDER, narrow=LANE_WIDTH * along**2 * (3 - 2 * along))
    plan = Plan(roads, ego_car(config, rng, made[-1].path, 60.0, 0.8 * limit, limit))
    _change(plan, made[-1], 1.0, 60.0 + rng.uniform(0.5, 1.5) * limit, rng.uniform(3.0, 4.5) * limit)
    for lane in made[:-1]:
        add_queue(config, rng, plan, smooth(resample(lane.path)), limit, 10.0, 420.0)
    return plan


def _brake(config, rng):
    plan, _, _ = _road(config, rng, [(420.0, 0.0, 0.0)], draw_limit(config, rng, 10.0, 16.0))
    ego = plan.ego
    begin, rate = rng.uniform(1.5, 5.0), rng.uniform(*config.hard_brake)
    time = np.arange(STEPS) * LOG_DT
    lowest = rng.uniform(0.0, 0.5) * ego.speed
    ego.prescribed = np.where(
        time < begin + 3.0, np.maximum(ego.speed - rate * np.maximum(time - begin, 0.0), lowest), np.nan
    )
    return plan


def _stop_and_go(config, rng):
    plan, _, _ = _road(config, rng, [(320.0, 0.0, 0.0)], draw_limit(config, rng, 5.0, 11.0))
    time = np.arange(STEPS) * LOG_DT
    mean, swing = rng.uniform(1.0, 4.0), rng.uniform(1.5, 4.5)
    speed = np.maximum(mean + swing * np.sin(2 * np.pi * (time / rng.uniform(5.0, 9.0) + rng.random())), 0.0)
    plan.ego.speed = float(speed[0])
    add_neighbours(config, rng, plan, prescribed=speed)
    return plan


def _u_turn(config, rng):
    roads = RoadMap()
    forward, backward = roads.two_way(chain([(240.0, 0.0, 0.0)]), 3, _SHOULDER)
    inner, outer = forward[0].path, backward[2].path
    at = 60.0 + rng.uniform(15.0, 40.0)
    middle = np.array([at, LANE_WIDTH])
    arc = middle + circle(1.5 * LANE_WIDTH, -np.pi / 2, np.pi / 2)
    roads.lane(arc)
    path = join(inner[inner[:, 0] < at], arc, outer[outer[:, 0] < at])
    plan = Plan(roads, ego_car(config, rng, smooth(resample(path)), 60.0, rng.uniform(4.0, 8.0), 9.0))
    for lane in forward[1:]:
        add_queue(config, rng, plan, smooth(resample(lane.path)), 11.0, 10.0, 160.0)
    return plan


def _junction(config, rng, turn, wait=False):
    """A junction with a signal, a stop sign or nothing; the ego car comes from the first arm."""
    lanes = int(rng.integers(1, 3))
    arms = 4 if turn == "through" or rng.random() < 0.6 else 3
    quarters = [0, 1, 2, 3] if arms == 4 else [0, 2, 3] if turn == "left" else [0, 1, 2]
    angles = np.array(quarters) * np.pi / 2 + rng.uniform(-0.05, 0.05, arms) * (np.arange(arms) > 0)
    shoulder = _SHOULDER
    radius = 9.5 + (lanes - 0.5) * LANE_WIDTH + rng.uniform(0.0, 6.0)
    roads = RoadMap()
    made = roads.junction(angles, lanes, radius, 110.0, shoulder)
    limit = draw_limit(config, rng, 8.0, 13.0)
    signalled = wait or rng.random() < 0.5
    sign = not signalled and rng.random() < 0.6
    path = None
    links = []
    for i, arm in enumerate(made):
        for j, other in enumerate(made):
            delta = wrap_angle(other.angle - arm.angle - np.pi)
            way = "through" if abs(delta) < np.pi / 4 else "left" if delta > 0 else "right"
            pairs = {"left": [(0, 0)], "right": [(-1, -1)]}.get(
                way, list(zip(range(lanes), range(lanes), strict=True))
            )
            for a, b in pairs if i != j else ():
                link = roads.lane(connect(arm.inbound[a].path, other.outbound[b].path))
                whole = smooth(resample(join(arm.inbound[a].path, link.path, other.outbound[b].path)))
                links.append((i, way, link, whole))
                if i == 0 and way == turn and (path is None or rng.random() < 0.5):
                    path = whole
    line = 110.0 - 1.0
    release = np.inf if wait else rng.uniform(1.0, 4.0) if signalled and rng.random() < 0.4 else 0.0
    stop = line - EGO_SIZE[0] / 2 if signalled or sign else np.inf
    far = min(rng.uniform(15.0, 55.0), 4.0 * limit)
    place = stop if wait and rng.random() < 0.7 else line - EGO_SIZE[0] / 2 - far
    ego = ego_car(config, rng, path, place, 0.0 if place == stop else rng.uniform(0.6, 0.9) * limit, limit)
    ego.stop, ego.release, ego.hold = stop, release, rng.uniform(0.8, 2.0) if sign else 0.0
    plan = Plan(roads, ego)
    if place != stop and np.isfinite(stop):
        ego.speed = min(ego.speed, np.sqrt(2 * 0.8 * ego.brake * max(stop - place, 0.0)))
    for i, way, link, whole in links:
        crossing = abs(np.sin(made[i].angle - made[0].angle)) > 0.5
        if signalled:
            green = (np.arange(STEPS) * LOG_DT >= release) ^ crossing
            plan.lights.append((link, np.where(green, _GREEN, _RED)))
        if whole is not path and way == "through" and rng.random() < 0.7 * min(config.traffic, 1.4):
            # Who crosses the ego car's way waits while it may go, and the others wait with it.
            go = (0.0 if release > 0 else np.inf) if crossing else release
            front, last = (line - 2.5, line - 4.0) if go > 0 else (np.inf, 180.0)
            add_queue(config, rng, plan, whole, limit, 20.0, last, front, go)
    for arm in made[1:]:
        if rng.random() < 0.6:
            middle = (arm.inbound[0].path[-5] + arm.outbound[0].path[4]) / 2
            across = np.array([-np.sin(arm.angle), np.cos(arm.angle)])
            walk = resample(middle + np.linspace(-16.0, 16.0, 65)[:, None] * across)
            for _ in range(rng.poisson(0.8 * config.traffic)):
                plan.walks.append((walk, rng.uniform(0.0, 12.0), rng.uniform(1.0, 1.6)))
    for arm in made:
        width = LANE_WIDTH / 2 + shoulder + 2.0
        for line_ in (arm.inbound[-1].path, arm.outbound[-1].path):
            add_walkers(config, rng, plan, line_[: len(line_) - 20], width)
    if sign:
        for arm in made:
            end = arm.inbound[-1].path
            roads.stop_sign(offset(end, -(LANE_WIDTH / 2 + shoulder + 1.0))[-3])
    return plan


def _roundabout(config, rng):
    roads = RoadMap()
    arms = int(rng.integers(3, 5))
    angles = np.arange(arms) * 2 * np.pi / arms
    shoulder = 1.0
    made, ring = roads.roundabout(angles, rng.uniform(9.0, 16.0), 70.0, shoulder)
    radius = float(np.hypot(*ring[0]))
    leave = int(rng.integers(1, arms))

    def way(first, last):
        begin, end = angles[first] + 0.45, angles[first] + (angles[last] - angles[first]) % (2 * np.pi) - 0.45
        arc = circle(radius, begin, max(end, begin + 0.1))
        into, out = made[first].inbound[0].path, made[last].outbound[0].path
        entry, leaving = roads.lane(connect(into, arc)), roads.lane(connect(arc, out))
        return smooth(resample(join(into, entry.path, arc, leaving.path, out)))

    path = way(0, leave)
    limit = draw_limit(config, rng, 8.0, 12.0)
    plan = Plan(roads, ego_car(config, rng, path, rng.uniform(15.0, 45.0), 0.8 * limit, limit))
    for i in range(1, arms):
        add_queue(
            config,
            rng,
            plan,
            smooth(resample(made[i].inbound[0].path)),
            limit,
            5.0,
            60.0,
            stop=65.0,
            release=np.inf,
        )
        if i != leave:
            add_queue(config, rng, plan, smooth(resample(made[i].outbound[0].path)), limit, 5.0, 60.0)
        add_walkers(config, rng, plan, made[i].inbound[0].path, LANE_WIDTH / 2 + shoulder + 2.0)
    return plan


KINDS: dict[str, Callable[[WorldConfig, np.random.Generator], Plan]] = {
    "straight": _straight,
    "curve": _curve,
    "s_curve": _s_curve,
    "fast_curve": _fast_curve,
    "lane_change": _lane_change,
    "merge": _merge,
    "brake": _brake,
    "stop_and_go": _stop_and_go,
    "u_turn": _u_turn,
    "left": lambda config, rng: _junction(config, rng, "left"),
    "right": lambda config, rng: _junction(config, rng, "right"),
    "through": lambda config, rng: _junction(config, rng, "through"),
    "wait": lambda config, rng: _junction(
        config, rng, str(rng.choice(["left", "right", "through"])), wait=True
    ),
    "roundabout": _roundabout,
}
"""Kinds of worlds by name."""
