"""From a logged scene to a `Scenario`: resample the ego car, keep what is near its path."""

import re

import numpy as np

from s3jax.scenarios.polyline import distance_to_path, simplify, vertices
from s3jax.scenarios.raw import EDGES, LANES, LOG_DT, RawScene, SceneError
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tags import measure, runs
from s3jax.spatial.reference import STANDSTILL_SPEED, make_reference

MIN_DURATION = 3.0
"""Shortest ego log (s) that makes a scenario."""

MAX_SPEED = 120.0
"""An ego car whose positions are farther apart than this speed (m/s) allows makes no scenario."""

MAP_RADIUS = 30.0
"""Road edges and lanes farther from the path (m) are left out."""

BOX_RADIUS = 80.0
"""Road users that never come nearer to the ego car (m) are left out."""

MAX_EDGES, MAX_LANES, MAX_BOXES, MAX_LIGHTS = 256, 384, 64, 16
"""Most segments, road users and lights a scenario keeps; the nearest stay."""

MAP_TOLERANCE = 0.05
"""Map polylines are thinned within this distance (m)."""

_SPECIAL = re.compile(r"[^A-Za-z0-9_.-]")  # ids become file names


def compact(scene: RawScene, dt: float, source: str) -> Scenario:
    """Builds a scenario from a logged scene.

    The longest run of valid ego steps is used. Position and heading are held where the log stands still, so
    that the tracker's jitter does not move the reference. At most `MAX_EDGES` and similar limits are kept,
    nearest first; the ego car is never cut.

    Args:
      scene: the logged scene.
      dt: sample interval of the reference (s).
      source: where the scene came from.

    Raises:
      SceneError: if the ego car is valid for less than `MIN_DURATION`, or leaps.
    """
    run = _longest_run(scene.tracks.valid[scene.sdc])
    time = scene.time[run]
    if len(time) < 2 or time[-1] - time[0] < MIN_DURATION - LOG_DT / 2:
        raise SceneError(
            f"the ego car is valid for only {len(time)} steps in a row, a scenario needs {MIN_DURATION} s"
        )
    tracks = scene.tracks
    ego = np.stack([tracks.x, tracks.y, tracks.yaw, tracks.vx, tracks.vy])[:, scene.sdc, run]
    leap = np.hypot(*np.diff(ego[:2], axis=1)) / np.diff(time)
    if leap.max() > MAX_SPEED:
        raise SceneError(f"the ego car leaps at step {run.start + int(leap.argmax())}: {leap.max():.0f} m/s")
    origin = ego[:2, 0].copy()
    reference = _reference(time - time[0], *ego, origin, dt)
    path = reference.samples[: reference.length, :2]
    coarse = vertices(path, 1.0)
    boxes, sizes, types = _boxes(scene, run, origin)
    near = np.isfinite(distance_to_path(scene.map.points[:, :2] - origin, coarse, MAP_RADIUS))
    edges, edges_cut = _segments(scene, near, EDGES, origin, coarse, MAX_EDGES)
    lanes, lanes_cut = _segments(scene, near, LANES, origin, coarse, MAX_LANES)
    lights, states = _lights(scene, run, origin, coarse)
    features = measure(scene, run) | {"edges_cut": edges_cut, "lanes_cut": lanes_cut}
    return Scenario(
        id=_SPECIAL.sub("_", scene.id or source)[:48],
        source=source,
        dt=dt,
        reference=reference,
        origin=origin,
        friction=scene.friction._replace(polygons=scene.friction.polygons - origin),
        ego_size=np.array(
            [tracks.length[scene.sdc, run.start], tracks.width[scene.sdc, run.start]], np.float32
        ),
        edges=edges,
        lanes=lanes,
        box_dt=LOG_DT,
        boxes=boxes,
        box_sizes=sizes,
        box_types=types,
        lights=lights,
        light_states=states,
        features=features,
    )


def _longest_run(valid) -> slice:
    """Returns the longest run of true entries; empty if there is none."""
    return max(runs(valid), key=lambda run: run.stop - run.start, default=slice(0, 0))


def _reference(time, x, y, yaw, vx, vy, origin, dt):
    yaw = np.unwrap(yaw)
    speed = vx * np.cos(yaw) + vy * np.sin(yaw)
    still = np.abs(speed) < STANDSTILL_SPEED
    pose = np.stack([x - origin[0], y - origin[1], yaw])
    steps = np.where(still[1:] & still[:-1], 0.0, np.diff(pose, axis=1))
    held = pose[:, :1] + np.concatenate([np.zeros((3, 1)), np.cumsum(steps, axis=1)], axis=1)
    grid = np.arange(int(time[-1] / dt + 1e-3) + 1) * dt
    columns = [np.interp(grid, time, row) for row in (*held, np.where(still, 0.0, speed))]
    return make_reference(*columns, dt)


def _segments(scene: RawScene, near, types, origin, path, most):
    """Returns the map segments of some types near the path, [n, 4] float32, and how many were cut."""
    points = scene.map.points[:, :2] - origin
    kept = []
    for feature in np.flatnonzero(np.isin(scene.map.types, types)):
        span = slice(scene.map.starts[feature], scene.map.starts[feature + 1])
        for run in runs(near[span]):
            piece = points[span][run]
            if len(piece) < 2:
                continue
            corners = piece[simplify(piece, MAP_TOLERANCE)]
            kept.append(np.concatenate([corners[:-1], corners[1:]], axis=1))
    segments = np.concatenate([np.zeros((0, 4)), *kept])
    gap = distance_to_path((segments[:, :2] + segments[:, 2:]) / 2, path, np.inf)
    order = np.sort(np.argsort(gap, kind="stable")[:most])
    return segments[order].astype(np.float32), max(len(segments) - most, 0)


def _boxes(scene: RawScene, run, origin):
    tracks = scene.tracks
    valid = tracks.valid[:, run].copy()
    valid[scene.sdc] = False
    x, y = tracks.x[:, run] - origin[0], tracks.y[:, run] - origin[1]
    ego = scene.sdc
    gap = np.where(valid, np.hypot(x - x[ego], y - y[ego]), np.inf).min(axis=1)
    order = np.argsort(gap, kind="stable")[:MAX_BOXES]
    order = order[gap[order] < BOX_RADIUS]
    speed = np.hypot(tracks.vx[:, run], tracks.vy[:, run])
    boxes = np.stack([x, y, tracks.yaw[:, run], speed], axis=-1)[order].astype(np.float32)
    boxes[~valid[order]] = np.nan
    count = np.maximum(valid[order].sum(axis=1), 1)
    sizes = [
        (field[order, run] * valid[order]).sum(axis=1) / count for field in (tracks.length, tracks.width)
    ]
    return boxes, np.stack(sizes, axis=1).astype(np.float32), tracks.types[order].astype(np.int8)


def _lights(scene: RawScene, run, origin, path):
    state = scene.lights.state[:, run]
    seen = state >= 0
    count = np.maximum(seen.sum(axis=1), 1)
    place = np.stack(
        [
            (axis[:, run] * seen).sum(axis=1) / count - shift
            for axis, shift in zip((scene.lights.x, scene.lights.y), origin, strict=True)
        ],
        axis=1,
    )
    gap = distance_to_path(place, path, np.inf)
    gap[~seen.any(axis=1)] = np.inf
    order = np.argsort(gap, kind="stable")[:MAX_LIGHTS]
    order = order[np.isfinite(gap[order])]
    return place[order].astype(np.float32), state[order].astype(np.int8)
