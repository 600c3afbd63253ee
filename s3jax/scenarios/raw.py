"""The one structure that every reader fills: a scene as logged, in NumPy.

Positions are in the frame of the log (m), angles in radians, x forward at yaw 0, counter-clockwise. Type
numbers are those of the Waymo Open Motion Dataset: https://waymo.com/open/data/motion/tfexample
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.friction import FrictionMap, friction_map

LOG_DT = 0.1
"""Nominal seconds between the steps of a log."""

VEHICLE, PEDESTRIAN, CYCLIST = 1, 2, 3
LANES = (1, 2)
EDGES = (14, 15, 16)
STOP_SIGN, CROSSWALK = 17, 18
ROAD_LINE_TYPE, ROAD_EDGE_TYPE = 5, 14
"""Map types of a road line and a road edge whose own type is unknown; the known types follow."""

_FAR = 1e6  # m
_LONGEST_STEP = 1.0  # s


class SceneError(ValueError):
    """A scene cannot be used; the message says why."""


class Tracks(NamedTuple):
    """Logged objects.

    Attributes:
      x, y, z: [N, T] centre of the box (m). yaw: [N, T] heading in [-pi, pi) (rad).
      vx, vy: [N, T] velocity (m/s).
      length, width, height: [N, T] size of the box (m).
      valid: [N, T] whether the object was seen; the other fields mean nothing where it was not.
      types: [N] vehicle, pedestrian, cyclist, or another number.
      ids: [N] number of the object in its file.
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    yaw: np.ndarray
    vx: np.ndarray
    vy: np.ndarray
    length: np.ndarray
    width: np.ndarray
    height: np.ndarray
    valid: np.ndarray
    types: np.ndarray
    ids: np.ndarray


class MapFeatures(NamedTuple):
    """Map polylines stored end to end: feature f has the points `points[starts[f]:starts[f + 1]]`.

    Attributes:
      points: [R, 3] x, y, z (m). starts: [F + 1]. types: [F] map type. ids: [F].
    """

    points: np.ndarray
    starts: np.ndarray
    types: np.ndarray
    ids: np.ndarray


class Lights(NamedTuple):
    """Traffic lights.

    Attributes:
      x, y: [L, T] stop point (m). state: [L, T] 1..8 as in the dataset, 0 unknown, -1 absent. lane: [L] lane
        id.
    """

    x: np.ndarray
    y: np.ndarray
    state: np.ndarray
    lane: np.ndarray

    @classmethod
    def by_lane(cls, x, y, state, lane, valid) -> "Lights":
        """Sorts lights [T, columns] that keep no column over time into rows by lane."""
        lanes = np.unique(lane[valid])
        shape = (len(lanes), len(lane))
        lights = cls(np.zeros(shape), np.zeros(shape), np.full(shape, -1), lanes)
        step, column = np.nonzero(valid)
        row = np.searchsorted(lanes, lane[step, column])
        for out, values in zip(lights, (x, y, state), strict=False):
            out[row, step] = values[step, column]
        return lights


@dataclass(frozen=True, eq=False)
class RawScene:
    """A logged scene.

    Attributes:
      id: the dataset's name of the scene.
      time: [T] seconds, increasing.
      tracks: the logged objects.
      sdc: row of the ego car in `tracks`.
      map: the map.
      lights: the traffic lights.
      friction: the road's friction, patches in the frame of the log.
    """

    id: str
    time: np.ndarray
    tracks: Tracks
    sdc: int
    map: MapFeatures
    lights: Lights
    friction: FrictionMap


def make_scene(
    scene_id: str,
    time,
    tracks: Tracks,
    sdc: int,
    features: MapFeatures,
    lights: Lights,
    friction: FrictionMap | None = None,
) -> RawScene:
    """Checks what every reader must deliver and builds the scene.

    Steps of a track with numbers that are not finite or absurdly large become invalid, and such map points
    are dropped, so that nothing behind this point meets them.

    Raises:
      SceneError: if there is no ego car, or time does not increase in sensible steps.
    """
    count, steps = tracks.x.shape
    if not 0 <= sdc < count:
        raise SceneError(f"no ego car: its index is {sdc} and there are {count} tracks")
    if steps == 0:
        raise SceneError("no time steps")
    time = np.asarray(time, float)
    steps = np.diff(time)
    if not (np.isfinite(time).all() and np.all((steps > 0) & (steps <= _LONGEST_STEP))):
        raise SceneError(f"time stamps do not increase by up to {_LONGEST_STEP} s")
    numbers = np.stack(tracks[:9])
    valid = tracks.valid & (np.abs(numbers) < _FAR).all(axis=0)
    tracks = Tracks(*np.where(valid, numbers, 0.0), valid, tracks.types, tracks.ids)
    tracks = tracks._replace(yaw=wrap_angle(tracks.yaw))
    seen = (np.abs(lights.x) < _FAR) & (np.abs(lights.y) < _FAR) & (lights.state >= 0)
    lights = Lights(
        np.where(seen, lights.x, 0.0),
        np.where(seen, lights.y, 0.0),
        np.where(seen, lights.state, -1),
        lights.lane,
    )
    friction = friction_map() if friction is None else friction
    return RawScene(scene_id, time, tracks, sdc, _finite(features), lights, friction)


def log_time(micros: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Returns a track's own time stamps [T] (s), nominal where it was not seen; about 0 at the first step."""
    time = np.arange(len(valid)) * LOG_DT
    seen = np.flatnonzero(valid)
    if len(seen) == 0:
        return time
    stamps = np.asarray(micros, float) * 1e-6
    return np.where(valid, stamps - stamps[seen[0]] + time[seen[0]], time)


def split_map(points, types, ids) -> MapFeatures:
    """Builds map features from points [R, 3] that come feature by feature, each with its type and id [R]."""
    change = np.flatnonzero((np.diff(ids) != 0) | (np.diff(types) != 0)) + 1
    starts = np.concatenate([[0], change, [len(ids)]]) if len(ids) else np.array([0])
    return MapFeatures(points, starts, types[starts[:-1]].astype(int), ids[starts[:-1]].astype(np.int64))


def stack_map(points: list, types: list, ids: list) -> MapFeatures:
    """Builds map features from one [n, 3] array, type and id per feature."""
    sizes = [len(p) for p in points]
    return MapFeatures(
        points=np.concatenate([np.zeros((0, 3)), *points]).astype(float),
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(int),
        types=np.array(types, int),
        ids=np.array(ids, np.int64),
    )


def _finite(features: MapFeatures) -> MapFeatures:
    good = (np.abs(features.points) < _FAR).all(axis=1)
    if good.all():
        return features
    kept = np.concatenate([[0], np.cumsum(good)])
    return features._replace(points=features.points[good], starts=kept[features.starts])
