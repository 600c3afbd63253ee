"""A procedural world in the making, and how road users are put into it.

`config` is the `WorldConfig` of `s3jax.scenarios.world_kinds`, `rng` a NumPy generator.
"""

from dataclasses import dataclass, field

import numpy as np

from s3jax.scenarios.raw import CYCLIST
from s3jax.scenarios.roads import LANE_WIDTH, SPACING, Lane, RoadMap, offset, resample
from s3jax.scenarios.traffic import STEPS, Driver

EGO_SIZE = (5.29, 2.33, 1.77)
"""Length, width and height (m) of the car that logged the Waymo Open Motion Dataset."""


@dataclass
class Plan:
    """A world in the making.

    Attributes:
      roads: the map.
      ego: the ego car; row 0 of the traffic.
      drivers: the other cars and cyclists, in rows from 1 on.
      walks: footpath, place on it (m) and speed (m/s) of each pedestrian.
      lights: the lane under each light and its states, [STEPS].
    """

    roads: RoadMap
    ego: Driver
    drivers: list[Driver] = field(default_factory=list)
    walks: list[tuple[np.ndarray, float, float]] = field(default_factory=list)
    lights: list[tuple[Lane, np.ndarray]] = field(default_factory=list)


def draw_limit(config, rng, low, high) -> float:
    """Draws a speed limit (m/s)."""
    return rng.uniform(low, high) * rng.uniform(*config.speed)


def ego_car(config, rng, path, place, speed, limit, **changes) -> Driver:
    """Returns the ego car, its comfort drawn."""
    draw = {name: rng.uniform(*getattr(config, name)) for name in ("lateral", "accel", "brake", "grip")}
    return Driver(path, place, speed, limit, size=EGO_SIZE, **draw, **changes)


def other_car(rng, path, place, speed, limit=13.0, **changes) -> Driver:
    """Returns another car, its size drawn."""
    size = (
        float(np.clip(rng.normal(4.8, 0.3), 3.8, 6.0)),
        float(np.clip(rng.normal(2.05, 0.08), 1.75, 2.35)),
        1.6,
    )
    return Driver(path, place, speed, limit, size=size, **changes)


def add_queue(config, rng, plan: Plan, path, limit, first, last, stop=np.inf, release=0.0) -> None:
    """Adds cars along a path from `last` back to `first`, each behind the one before."""
    place = last - rng.uniform(0.0, 25.0)
    leader = -1
    while place > first:
        speed = (
            rng.uniform(0.6, 1.0) * limit if stop == np.inf else min(limit, np.sqrt(max(stop - place, 0.0)))
        )
        plan.drivers.append(
            other_car(rng, path, place, speed, limit, leader=leader, stop=stop, release=release)
        )
        leader = len(plan.drivers)  # the ego car is row 0
        place -= rng.uniform(12.0, 60.0) / max(config.traffic, 0.05)


def add_parked(config, rng, plan: Plan, line, side) -> None:
    """Adds parked cars along a line, `side` metres to its right."""
    row = resample(offset(line, -side))
    place = rng.uniform(5.0, 30.0)
    while place < (len(row) - 20) * SPACING:
        if rng.random() < 0.6 * min(config.traffic, 1.5):
            plan.drivers.append(other_car(rng, row, place, 0.0, prescribed=np.zeros(STEPS)))
        place += rng.uniform(6.5, 14.0)


def add_walkers(config, rng, plan: Plan, line, side) -> None:
    """Adds pedestrians along a line, `side` metres to its right, either way."""
    path = resample(offset(line, -side))
    for _ in range(rng.poisson(1.5 * config.traffic)):
        way = path if rng.random() < 0.5 else path[::-1]
        plan.walks.append((way, rng.uniform(0.0, 0.8) * len(way) * SPACING, rng.uniform(1.0, 1.8)))


def add_cyclist(config, rng, plan: Plan, lane: Lane) -> None:
    """Adds a cyclist at the right border of a lane, now and then."""
    if rng.random() < 0.25 * config.traffic:
        path = resample(offset(lane.path, -LANE_WIDTH / 2 - 0.1))
        size = (1.8, 0.7, 1.7)
        speed = rng.uniform(3.0, 6.0)
        plan.drivers.append(
            Driver(path, rng.uniform(0, 0.7) * len(path) * SPACING, speed, speed, size=size, type=CYCLIST)
        )


def add_neighbours(config, rng, plan: Plan, prescribed=None) -> None:
    """Puts a car ahead of the ego car on its path, and one behind it."""
    ego = plan.ego
    limit = float(np.max(ego.limit))
    ahead = ego.place + rng.uniform(8.0, 14.0) + 1.2 * ego.speed
    plan.drivers.append(other_car(rng, ego.path, ahead, ego.speed, rng.uniform(0.7, 1.0) * limit))
    if prescribed is not None:
        plan.drivers[-1].prescribed = prescribed
    ego.leader = len(plan.drivers)
    plan.drivers.append(
        other_car(rng, ego.path, ego.place - 12.0 - 1.3 * ego.speed, 0.95 * ego.speed, limit, leader=0)
    )
