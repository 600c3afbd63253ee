"""Traffic of procedural worlds: cars along paths by the Intelligent Driver Model.

Treiber, Hennecke, Helbing, "Congested traffic states in empirical observations and microscopic simulations",
Physical Review E 62 (2000).
"""

from dataclasses import dataclass, field

import numpy as np

from s3jax.scenarios.raw import LOG_DT, VEHICLE
from s3jax.scenarios.roads import SPACING, heading
from s3jax.tracks.speed import fastest_speed

STEPS = 91
_CAP_STEP = 2.0  # m between the nodes of a car's fastest speeds
_HEADWAY, _STANDSTILL_GAP = 1.3, 2.0  # s, m
_ACCEL_JERK = 4.0  # m/s^3
_BRAKE_RATE = 4.0  # 1/s: comfortable braking is reached, and left, in a quarter of a second
_FORESIGHT = 0.4  # s by which a driver sees a lower limit coming
_FREE, _HALTED, _GRIP, _BEND = range(4)  # tables of `_along`


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
      type: kind of road user.
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
    along = _along(drivers, stop)
    last = np.array([(len(driver.path) - 2) * SPACING for driver in drivers])
    leader = np.array([driver.leader for driver in drivers])
    length = np.array([driver.size[0] for driver in drivers])
    bumpers = np.where(leader >= 0, (length + length[leader]) / 2, -np.inf)
    comfort, pedal = 2 * np.sqrt(accel * brake), LOG_DT * _BRAKE_RATE * brake
    prescribed = np.stack([driver.prescribed for driver in drivers])
    place, speed = column("place"), column("speed")
    # Who starts on the limit may have to brake at once.
    speed = np.minimum(speed, _at(along[_FREE], place + speed * 2 * _FORESIGHT))
    speed = np.minimum(speed, _at(along[_FREE], place))
    speed = np.where(np.isfinite(prescribed[:, 0]), prescribed[:, 0], speed)
    rate, waited = np.zeros(count), np.zeros(count)
    places, speeds = np.zeros((2, count, STEPS))
    for step in range(STEPS):
        places[:, step], speeds[:, step] = place, speed
        waiting = (step * LOG_DT < release) | (waited < hold)
        waited += LOG_DT * ((speed < 0.1) & (place > stop - 3.0))
        halt = waiting & (place < stop + 3.0)
        free, halted, grip, bend = _at(along, place)
        soon = _at(along[:_GRIP], place + speed * _FORESIGHT)
        cap = np.where(halt, np.minimum(halted, soon[_HALTED]), np.minimum(free, soon[_FREE]))
        # What cornering leaves of the friction circle; a little is always left for the brakes.
        rest = np.sqrt(np.maximum(grip**2 - (bend * speed**2) ** 2, 0.1 * grip**2))
        gap = np.maximum(place[leader] - place - bumpers, 0.1)
        wanted = _STANDSTILL_GAP + np.maximum(speed * (_HEADWAY + (speed - speed[leader]) / comfort), 0.0)
        follow = accel * (1 - (wanted / gap) ** 2)
        target = np.minimum(np.minimum((cap - speed) / (2 * LOG_DT), follow), rest)
        rise = np.where(rate < 0, pedal, LOG_DT * _ACCEL_JERK)
        rate = np.minimum(np.maximum(np.maximum(target, -rest), rate - pedal), rate + rise)
        told = prescribed[:, min(step + 1, STEPS - 1)]
        after = np.where(np.isfinite(told), told, np.maximum(speed + rate * LOG_DT, 0.0))
        rate = np.where(after > 0, (after - speed) / LOG_DT, 0.0)
        place = np.minimum(place + (speed + after) / 2 * LOG_DT, last)
        speed = np.where(place >= last, 0.0, after)
    return places, speeds


def _along(drivers, stop):
    """Tables [4, N, nodes] every `_CAP_STEP`: fastest speed when free and with a halt, grip, curvature."""
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
    return np.concatenate([both.reshape(2, len(drivers), nodes), grip[None], bend[None]])


def _coarse(values, every, nodes, combine):
    """The extreme of a quantity around every `every`-th point, the last one repeated to `nodes`."""
    padded = np.pad(values, (every // 2, (nodes + 1) * every - len(values)), "edge")[: nodes * every]
    return combine(padded.reshape(nodes, every), axis=1)


def _at(tables, place):
    """Values [..., N] of tables [..., N, nodes] at one place [N] in each row."""
    node = np.minimum(place / _CAP_STEP, tables.shape[-1] - 1.001)
    low = node.astype(int)
    rows = np.arange(len(place))
    before = tables[..., rows, low]
    return before + (node - low) * (tables[..., rows, low + 1] - before)


def poses(path: np.ndarray, place: np.ndarray, yaw: np.ndarray | None = None) -> np.ndarray:
    """Returns x, y, yaw [T, 3] at distances [T] along a path of `SPACING`; `yaw` is its heading, if known."""
    yaw = heading(path) if yaw is None else yaw
    at = np.arange(len(path)) * SPACING
    return np.stack([np.interp(place, at, values) for values in (*path.T, yaw)], axis=1)
