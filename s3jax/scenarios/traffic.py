"""Traffic of procedural worlds: cars along paths by the Intelligent Driver Model, and what keeps clear of
them.

Treiber, Hennecke, Helbing, "Congested traffic states in empirical observations and microscopic simulations",
Physical Review E 62 (2000).
"""

from dataclasses import dataclass, field

import numpy as np

from s3jax.scenarios.raw import LOG_DT, VEHICLE
from s3jax.scenarios.roads import SPACING, heading
from s3jax.scenarios.speed import fastest_speed

STEPS = 91
_CAP_STEP = 2.0  # m between the nodes of a car's fastest speeds
_HEADWAY, _STANDSTILL_GAP = 1.3, 2.0  # s, m
_JERK, _BRAKE_JERK, _HARDEST = 4.0, 16.0, 9.0


@dataclass
class Driver:
    """A car and how it is driven.

    Attributes:
      path: [n, 2] points `SPACING` apart.
      place: distance along the path at the start (m). speed: at the start (m/s).
      limit: speed limit (m/s), a number or one per point. accel, brake: comfortable (m/s^2).
      lateral: largest lateral acceleration (m/s^2). grip: share of the friction circle that may be used.
      friction: friction at each point of the path.
      size: length, width, height (m).
      leader: row of the car in front, or -1.
      stop: distance at which to stop (m). hold: seconds of standstill there. release: earliest time to go on
        (s).
      prescribed: [STEPS] speed that is driven whatever stands ahead, NaN where the driver decides.
      types: kind of road user.
    """

    path: np.ndarray
    place: float
    speed: float
    limit: float | np.ndarray = 13.0
    accel: float = 1.8
    brake: float = 2.5
    lateral: float = 2.0
    grip: float = 0.5
    friction: float | np.ndarray = 1.0
    size: tuple[float, float, float] = (4.8, 2.0, 1.6)
    leader: int = -1
    stop: float = np.inf
    hold: float = 0.0
    release: float = 0.0
    prescribed: np.ndarray = field(default_factory=lambda: np.full(STEPS, np.nan))
    type: int = VEHICLE


def simulate(drivers: list[Driver]) -> tuple[np.ndarray, np.ndarray]:
    """Drives all cars together for `STEPS` steps of 0.1 s.

    Returns:
      Distance along its path [N, STEPS] (m) and speed [N, STEPS] (m/s) of each.
    """
    count = len(drivers)

    def column(name):
        return np.array([getattr(driver, name) for driver in drivers], float)

    stop, hold, release = column("stop"), column("hold"), column("release")
    accel, brake = column("accel"), column("brake")
    caps = _caps(drivers, stop)
    last = np.array([(len(driver.path) - 2) * SPACING for driver in drivers])
    leader = np.array([driver.leader for driver in drivers])
    length = np.array([driver.size[0] for driver in drivers])
    bumpers = np.where(leader >= 0, (length + length[leader]) / 2, -np.inf)
    comfort = 2 * np.sqrt(accel * brake)
    prescribed = np.stack([driver.prescribed for driver in drivers])
    place = column("place")
    speed = np.minimum(column("speed"), _at(caps, np.zeros(count, int), place))
    speed = np.where(np.isfinite(prescribed[:, 0]), prescribed[:, 0], speed)
    rate, waited = np.zeros(count), np.zeros(count)
    places, speeds = np.zeros((2, count, STEPS))
    for step in range(STEPS):
        places[:, step], speeds[:, step] = place, speed
        waiting = (step * LOG_DT < release) | (waited < hold)
        waited += LOG_DT * ((speed < 0.1) & (place > stop - 3.0))
        cap = _at(caps, (waiting & (place < stop + 3.0)).astype(int), place + speed * LOG_DT)
        gap = np.maximum(place[leader] - place - bumpers, 0.1)
        wanted = _STANDSTILL_GAP + np.maximum(speed * (_HEADWAY + (speed - speed[leader]) / comfort), 0.0)
        follow = accel * (1 - (wanted / gap) ** 2)
        target = np.maximum(np.minimum((cap - speed) / (2 * LOG_DT), follow), -_HARDEST)
        jerk = LOG_DT * np.where((target < -brake) | (rate < -brake), _BRAKE_JERK, _JERK)
        rate = np.minimum(np.maximum(target, rate - jerk), rate + jerk)
        told = prescribed[:, min(step + 1, STEPS - 1)]
        after = np.where(np.isfinite(told), told, np.maximum(speed + rate * LOG_DT, 0.0))
        rate = np.where(after > 0, (after - speed) / LOG_DT, 0.0)
        place = np.minimum(place + (speed + after) / 2 * LOG_DT, last)
        speed = np.where(place >= last, 0.0, after)
    return places, speeds


def _caps(drivers, stop):
    """Fastest speeds [2, N, nodes] every `_CAP_STEP`: on a free way, and with a halt at `stop`."""
    every = round(_CAP_STEP / SPACING)
    nodes = max(len(driver.path) for driver in drivers) // every + 1
    bend, limit, grip = np.zeros((3, len(drivers), nodes))
    bends = {}
    for row, driver in enumerate(drivers):
        if id(driver.path) not in bends:
            bends[id(driver.path)] = _coarse(
                np.abs(np.gradient(heading(driver.path), SPACING)), every, nodes, np.max
            )
        bend[row] = bends[id(driver.path)]
        limit[row] = _coarse(np.broadcast_to(driver.limit, len(driver.path)), every, nodes, np.min)
        grip[row] = _coarse(np.broadcast_to(driver.friction, len(driver.path)), every, nodes, np.min)
        grip[row] *= 9.81 * driver.grip
    halted = np.where(np.arange(nodes) * _CAP_STEP >= stop[:, None] - 1.0, 0.0, limit)
    lateral, brake = (
        np.array([getattr(driver, name) for driver in drivers] * 2) for name in ("lateral", "brake")
    )
    endless = np.full(2 * len(drivers), np.inf)
    both = fastest_speed(
        np.concatenate([limit, halted]),
        np.concatenate([bend, bend]),
        np.concatenate([grip, grip]),
        _CAP_STEP,
        lateral=lateral,
        brake=brake,
        accel=endless,
        start=endless,
    )
    return both.reshape(2, len(drivers), nodes)


def _coarse(values, every, nodes, combine):
    """The extreme of a quantity around every `every`-th point, the last one repeated to `nodes`."""
    padded = np.pad(values, (every // 2, (nodes + 1) * every - len(values)), "edge")[: nodes * every]
    return combine(padded.reshape(nodes, every), axis=1)


def _at(caps, which, place):
    node = np.minimum(place / _CAP_STEP, caps.shape[2] - 1.001)
    low = node.astype(int)
    rows = np.arange(len(place))
    before = caps[which, rows, low]
    return before + (node - low) * (caps[which, rows, low + 1] - before)


def poses(path: np.ndarray, place: np.ndarray, yaw: np.ndarray | None = None) -> np.ndarray:
    """Returns x, y, yaw [T, 3] at distances [T] along a path of `SPACING`; `yaw` is its heading, if known."""
    yaw = heading(path) if yaw is None else yaw
    at = np.arange(len(path)) * SPACING
    return np.stack([np.interp(place, at, values) for values in (*path.T, yaw)], axis=1)
