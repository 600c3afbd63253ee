"""Numbers that describe a scene, and the tags made of them.

The numbers are stored with each scenario; thresholds are applied when asked, over a table of all scenarios,
so that a tag can be relative to its data set. Definitions and thresholds: `TAGS`, and README.md in this
folder.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from s3jax.config import ConfigError
from s3jax.scenarios.polyline import distance_to_path, vertices
from s3jax.scenarios.raw import CROSSWALK, CYCLIST, LANES, LOG_DT, PEDESTRIAN, STOP_SIGN, VEHICLE, RawScene
from s3jax.spatial.frames import to_body, wrap_angle

FEATURES = (
    "path_length",
    "max_speed",
    "mean_speed",
    "min_accel",
    "max_accel",
    "brake_2_time",
    "brake_3_time",
    "max_lateral",
    "max_curvature",
    "heading_change",
    "heading_range",
    "stopped_time",
    "velocity_error",
    "lane_offset",
    "light_lanes",
    "stop_sign_gap",
    "crosswalk_gap",
    "crossing_lanes",
    "pedestrian_gap",
    "cyclist_gap",
    "lead_share",
    "headway",
    "objects",
    "edges_cut",
    "lanes_cut",
)
"""Names of the numbers, in the order in which they are stored; NaN where a scene has none."""

MOVING_SPEED = 2.0
"""Speed (m/s) above which curvature is measured."""

STOPPED_SPEED = 0.5
"""Speed (m/s) below which a car counts as stopped."""

_LOOK_AHEAD = 6.0  # m

HALF_WINDOW = 0.4
"""Seconds on each side in the Savitzky-Golay derivative (order 2)."""


def runs(mask) -> list[slice]:
    """Returns the runs of consecutive true entries of a mask [n]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(mask, int), [0]])))
    return [slice(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def measure_motion(x, y, yaw, speed, dt: float) -> dict[str, float]:
    """Returns the numbers that describe a car's own motion.

    Args:
      x: [T] (m). y: [T] (m). yaw: [T] (rad). speed: [T] forward (m/s). dt: sample interval (s); the
        derivatives are taken over 0.9 s, whatever the interval.

    Returns:
      path_length (m); max_speed, mean_speed (m/s); min_accel, max_accel (m/s^2); brake_2_time, brake_3_time:
      longest time below -2 and -3 m/s^2 (s); max_lateral (m/s^2); max_curvature (1/m); heading_change: net
      (rad); heading_range: largest less smallest heading (rad); stopped_time: longest stop (s);
      velocity_error: largest difference between recorded speed and that of the positions (m/s).
    """
    yaw = np.unwrap(yaw)
    half = max(1, round(HALF_WINDOW / dt))
    accel, rate = derivative(speed, half, dt), derivative(yaw, half, dt)
    travelled = np.hypot(np.diff(x), np.diff(y))
    moving = speed > MOVING_SPEED
    central = np.hypot(x[2:] - x[:-2], y[2:] - y[:-2]) / (2 * dt)
    return {
        "path_length": float(travelled.sum()),
        "max_speed": float(speed.max()),
        "mean_speed": float(speed.mean()),
        "min_accel": float(accel.min()),
        "max_accel": float(accel.max()),
        "brake_2_time": _longest(accel <= -2.0, dt),
        "brake_3_time": _longest(accel <= -3.0, dt),
        "max_lateral": float(np.abs(speed * rate).max()),
        "max_curvature": float(np.abs(rate[moving] / speed[moving]).max()) if moving.any() else 0.0,
        "heading_change": float(yaw[-1] - yaw[0]),
        "heading_range": float(yaw.max() - yaw.min()),
        "stopped_time": _longest(np.abs(speed) < STOPPED_SPEED, dt),
        "velocity_error": float(np.abs(central - np.abs(speed[1:-1])).max()),
    }


def measure(scene: RawScene, run: slice) -> dict[str, float]:
    """Returns `measure_motion` of the ego car over the steps `run`, and the numbers that describe its
    surroundings.

    Returns (beside those of `measure_motion`):
      lane_offset: range of the offset from the starting lane's centre line (m), 0 where the car leaves its
        end;
      light_lanes: lanes under a traffic light within 3 m of the path (which here goes on for 6 m ahead of the
      car); stop_sign_gap, crosswalk_gap: least distance to the path (m); crossing_lanes: lanes that cross the
      path at 30 to 150 degrees; pedestrian_gap, cyclist_gap: least distance to the ego car at one time (m);
      lead_share: share of time behind a vehicle in the same direction 2 to 50 m ahead; headway: shortest time
      gap to it above 2 m/s (s); objects: road users that come within 30 m.
    """
    tracks, ego = scene.tracks, scene.sdc
    x, y, yaw = (field[ego, run] for field in (tracks.x, tracks.y, tracks.yaw))
    speed = tracks.vx[ego, run] * np.cos(yaw) + tracks.vy[ego, run] * np.sin(yaw)
    path = np.stack([x, y], axis=1)
    return (
        measure_motion(x, y, yaw, speed, LOG_DT)
        | _measure_traffic(tracks, ego, run, speed)
        | _measure_map(scene, path, yaw, run)
    )


def derivative(values, half, dt):
    """Returns the slope of a least-squares parabola over `2 half + 1` samples; the ends repeat the nearest.

    Args:
      values: [n]. half: samples on each side. dt: sample interval (s).
    """
    if len(values) <= 2 * half:
        return np.gradient(values, dt)
    offsets = np.arange(-half, half + 1)
    slope = np.convolve(values, -offsets / (offsets @ offsets * dt), "valid")
    return np.pad(slope, half, "edge")


def _longest(mask, dt) -> float:
    return max((run.stop - run.start for run in runs(mask)), default=0) * dt


def _measure_traffic(tracks, ego, run, speed):
    seen = tracks.valid[:, run].copy()
    seen[ego] = False
    x, y, yaw = tracks.x[:, run], tracks.y[:, run], tracks.yaw[:, run]
    ahead, left = to_body(x - x[ego], y - y[ego], yaw[ego])
    gap = np.where(seen, np.hypot(ahead, left), np.inf)
    nearest = gap.min(axis=1)
    bumper = ahead - (tracks.length[:, run] + tracks.length[ego, run]) / 2
    lead = (
        seen
        & (tracks.types == VEHICLE)[:, None]
        & (np.abs(wrap_angle(yaw - yaw[ego])) < np.pi / 4)
        & (ahead > 2.0)
        & (ahead < 50.0)
        & (np.abs(left) < 1.8)
    )
    fast = speed > MOVING_SPEED
    following = np.where(lead, np.maximum(bumper, 0.0), np.inf).min(axis=0)
    headway = following[fast] / speed[fast]
    return {
        "pedestrian_gap": float(nearest[tracks.types == PEDESTRIAN].min(initial=np.inf)),
        "cyclist_gap": float(nearest[tracks.types == CYCLIST].min(initial=np.inf)),
        "lead_share": float(lead.any(axis=0).mean()),
        "headway": float(headway.min(initial=np.inf)),
        "objects": float((nearest < 30.0).sum()),
    }


def _measure_map(scene, path, yaw, run):
    features = scene.map
    points = features.points[:, :2]
    # A car that waits at a line has the light, the sign and the crossing a few metres ahead of its path.
    ahead = path[-1] + np.arange(1.0, _LOOK_AHEAD + 1)[:, None] * [np.cos(yaw[-1]), np.sin(yaw[-1])]
    vertex = np.concatenate([vertices(path, 1.0), ahead])
    gap = distance_to_path(points, vertex, 50.0)
    feature = np.repeat(np.arange(len(features.types)), np.diff(features.starts))
    nearest = np.full(len(features.types), np.inf)
    np.minimum.at(nearest, feature, gap)
    for row in np.flatnonzero((features.types == CROSSWALK) & np.isfinite(nearest)):
        corners = points[features.starts[row] : features.starts[row + 1]]
        nearest[row] = distance_to_path(_outline(corners), vertex, np.inf).min()
    lane = np.isin(features.types, LANES)
    lit = np.isin(features.ids, scene.lights.lane[(scene.lights.state[:, run] >= 0).any(axis=1)])
    near_lane = lane & (nearest < 3.0)
    return {
        "lane_offset": _lane_offset(features, near_lane, path, yaw),
        "light_lanes": float((near_lane & lit).sum()),
        "stop_sign_gap": float(nearest[features.types == STOP_SIGN].min(initial=np.inf)),
        "crosswalk_gap": float(nearest[features.types == CROSSWALK].min(initial=np.inf)),
        "crossing_lanes": float(_crossings(features, near_lane, path, yaw)),
    }


def _outline(corners):
    """Points about a metre apart around a polygon, of which some forms of the data give only the corners."""
    closed = np.concatenate([corners, corners[:1]])
    longest = np.hypot(*np.diff(closed, axis=0).T).max(initial=1.0)
    parts = np.linspace(0.0, 1.0, 1 + int(min(longest, 100.0)))[:, None]
    return np.concatenate([a + parts * (b - a) for a, b in zip(closed, closed[1:], strict=False)])


def _lanes(features, chosen):
    for feature in np.flatnonzero(chosen):
        line = features.points[features.starts[feature] : features.starts[feature + 1], :2]
        if len(line) >= 2:
            yield line


def _crossings(features, near_lane, path, yaw):
    count = 0
    for line in _lanes(features, near_lane):
        middle = (line[1:] + line[:-1]) / 2
        gap = np.hypot(middle[:, None, 0] - path[:, 0], middle[:, None, 1] - path[:, 1])
        row, step = np.unravel_index(gap.argmin(), gap.shape)
        if gap[row, step] < 3.0:
            heading = np.arctan2(*(line[row + 1] - line[row])[::-1])
            angle = abs(wrap_angle(heading - yaw[step]))
            count += np.pi / 6 < angle < 5 * np.pi / 6
    return count


def _lane_offset(features, near_lane, path, yaw):
    """Range of the offset from the lane in which the car starts, over the steps beside that lane's line."""
    best, least = None, 2.0
    for line in _lanes(features, near_lane):
        gap = np.hypot(*(line - path[0]).T)
        row = int(gap.argmin())
        ahead = line[min(row + 1, len(line) - 1)] - line[max(row - 1, 0)]
        aligned = abs(wrap_angle(np.arctan2(ahead[1], ahead[0]) - yaw[0])) < np.pi / 6
        if aligned and gap[row] < least and 0 < row < len(line) - 1:
            best, least = line, gap[row]
    if best is None:
        return 0.0
    step = np.diff(best, axis=0)
    length = np.maximum(np.hypot(*step.T), 1e-6)
    offset = path[:, None] - best[:-1]
    along = np.einsum("tsk,sk->ts", offset, step) / length**2
    across = (step[:, 0] * offset[..., 1] - step[:, 1] * offset[..., 0]) / length
    foot = np.hypot(across, np.maximum(np.maximum(-along, along - 1), 0.0) * length)
    segment = foot.argmin(axis=1)
    steps = np.arange(len(path))
    inside = (along[steps, segment] >= 0) & (along[steps, segment] <= 1)
    side = across[steps, segment][inside]
    return float(side.max() - side.min()) if len(side) else 0.0


class Tag(NamedTuple):
    """A tag: what it means, and the test over a table of numbers (name -> [S]); NaN passes no test."""

    meaning: str
    test: Callable[[dict[str, np.ndarray]], np.ndarray]


_DEGREE = np.pi / 180

TAGS = {
    "stationary": Tag("path shorter than 3 m", lambda f: f["path_length"] < 3),
    "moving": Tag("path of 10 m or more", lambda f: f["path_length"] >= 10),
    "straight": Tag(
        "path of 10 m or more, heading within 10 degrees",
        lambda f: (f["path_length"] >= 10) & (f["heading_range"] < 10 * _DEGREE),
    ),
    "gentle_curve": Tag(
        "path of 10 m or more, net heading change of 10 to 30 degrees",
        lambda f: (f["path_length"] >= 10) & _between(abs(f["heading_change"]), 10 * _DEGREE, 30 * _DEGREE),
    ),
    "left_turn": Tag(
        "net heading change of 30 to 135 degrees to the left",
        lambda f: _between(f["heading_change"], 30 * _DEGREE, 135 * _DEGREE),
    ),
    "right_turn": Tag(
        "net heading change of 30 to 135 degrees to the right",
        lambda f: _between(-f["heading_change"], 30 * _DEGREE, 135 * _DEGREE),
    ),
    "u_turn": Tag(
        "net heading change of 135 degrees or more", lambda f: abs(f["heading_change"]) >= 135 * _DEGREE
    ),
    "lane_change": Tag(
        "offset from the starting lane ranges over 2 to 6 m, path over 15 m, heading change under 20 degrees",
        lambda f: (
            _between(f["lane_offset"], 2, 6)
            & (f["path_length"] > 15)
            & (abs(f["heading_change"]) < 20 * _DEGREE)
        ),
    ),
    "intersection": Tag(
        "path over 5 m and a lane under a light, a stop sign within 15 m or a crossing lane",
        lambda f: (
            (f["path_length"] > 5)
            & ((f["light_lanes"] > 0) | (f["stop_sign_gap"] < 15) | (f["crossing_lanes"] > 0))
        ),
    ),
    "traffic_light": Tag("a light over a lane within 3 m of the path", lambda f: f["light_lanes"] > 0),
    "stop_sign": Tag("a stop sign within 15 m of the path", lambda f: f["stop_sign_gap"] < 15),
    "crosswalk": Tag("a crosswalk within 8 m of the path", lambda f: f["crosswalk_gap"] < 8),
    "stop_and_go": Tag(
        "below 0.5 m/s for 1 s and above 2 m/s at some time",
        lambda f: (f["stopped_time"] >= 1) & (f["max_speed"] > 2),
    ),
    "brake": Tag("-2 m/s^2 or less for 0.5 s", lambda f: f["brake_2_time"] >= 0.5),
    "hard_brake": Tag("-3 m/s^2 or less for 0.3 s", lambda f: f["brake_3_time"] >= 0.3),
    "hard_brake_rel": Tag(
        "the 5 % of the set that brake hardest", lambda f: f["min_accel"] <= _quantile(f["min_accel"], 0.05)
    ),
    "hard_accel": Tag("2 m/s^2 or more (0.9 s mean)", lambda f: f["max_accel"] >= 2),
    "hard_accel_rel": Tag(
        "the 5 % of the set that accelerate hardest",
        lambda f: f["max_accel"] >= _quantile(f["max_accel"], 0.95),
    ),
    "high_lateral": Tag("lateral acceleration above 2 m/s^2", lambda f: f["max_lateral"] > 2),
    "high_speed": Tag("above 15 m/s at some time", lambda f: f["max_speed"] > 15),
    "low_speed": Tag("moving, never above 6 m/s", lambda f: (f["path_length"] >= 10) & (f["max_speed"] < 6)),
    "close_following": Tag(
        "a lead vehicle half of the time, and a time gap below 1.5 s",
        lambda f: (f["lead_share"] >= 0.5) & (f["headway"] < 1.5),
    ),
    "pedestrian_near": Tag("a pedestrian within 15 m", lambda f: f["pedestrian_gap"] < 15),
    "cyclist_near": Tag("a cyclist within 15 m", lambda f: f["cyclist_gap"] < 15),
    "inconsistent": Tag(
        "recorded speed differs from that of the positions by over 1 m/s", lambda f: f["velocity_error"] > 1
    ),
}
"""Every tag. The rest of the package, the command line and the documentation take them from here."""


def table(scenarios) -> dict[str, np.ndarray]:
    """Returns the numbers of many scenarios by name, each [S]; NaN where a scenario has none."""
    return columns([scenario.features for scenario in scenarios])


def columns(features: Sequence[dict[str, float]]) -> dict[str, np.ndarray]:
    """Returns the table of many scenarios' `features`."""
    return {name: np.array([own.get(name, np.nan) for own in features], float) for name in FEATURES}


def select(numbers: dict[str, np.ndarray], only: Iterable[str], exclude: Iterable[str]) -> np.ndarray:
    """Returns which scenarios [S] have at least one tag of `only` (if it names any) and none of `exclude`.

    Args:
      numbers: name -> [S], from `table` or a store.
      only: names of tags.
      exclude: names of tags.

    Raises:
      ConfigError: for an unknown tag, with the nearest names; if none of at least one scenario is left, with
        the number of scenarios of each tag.
    """
    only, exclude = tuple(only), tuple(exclude)
    wanted, unwanted = _any(numbers, only), _any(numbers, exclude)
    kept = (wanted if only else np.ones_like(wanted)) & ~unwanted
    if len(kept) and not kept.any():
        asked = [
            f"{name} = {', '.join(tags)}" for name, tags in (("only", only), ("exclude", exclude)) if tags
        ]
        counts = {name: int(tag.test(numbers).sum()) for name, tag in TAGS.items()}
        there = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        raise ConfigError(
            f"no scenario of {len(kept)} is left with {' and '.join(asked)}; there are: {there or 'none'}"
        )
    return kept


def _any(numbers, names):
    found = np.zeros(len(numbers["path_length"]), bool)
    for name in names:
        if name not in TAGS:
            near = difflib.get_close_matches(name, TAGS, n=3, cutoff=0.0)
            raise ConfigError(
                f"unknown tag {name!r}; did you mean {near[0]}, {near[1]} or {near[2]}? "
                f"Known: {', '.join(TAGS)}"
            )
        found |= TAGS[name].test(numbers)
    return found


def _between(values, low, high):
    return (values >= low) & (values < high)


def _quantile(values, share):
    return np.nanquantile(values, share) if np.isfinite(values).any() else np.nan
