"""Scenes as Waymo Open Motion Dataset tf.Example records, which Waymax and this package read.

Beside the dataset's own features a record has `path_samples/*`, the ego car's route as Waymax wants it, and
`s3jax/friction_*`, which other readers ignore.
"""

from collections.abc import Iterable

import numpy as np

from s3jax.scenarios.example import encode_example
from s3jax.scenarios.raw import CROSSWALK, STOP_SIGN, RawScene, SceneError
from s3jax.scenarios.roads import resample
from s3jax.scenarios.tfrecord import write_records

OBJECTS, LIGHTS, POINTS = 128, 16, 20_000
ROUTES, ROUTE_POINTS = 10, 300
_PERIODS = {"past": slice(0, 10), "current": slice(10, 11), "future": slice(11, 91)}
_CURRENT = 10
_MAP_SPACING = 1.0
# Which features are kept when there are more points than fit: lanes, lines, signs, crossings, edges.
_PRIORITY = np.array([0, 0, 0, 0, 0, *[1] * 9, *[4] * 3, 2, 3, 3, 5])


def features_from_scene(scene: RawScene, route: np.ndarray) -> dict:
    """Returns the features of a WOMD tf.Example; `encode_example` makes the record.

    Args:
      scene: a scene of 91 steps of 0.1 s.
      route: [n, 2] path that the ego car is to follow (m).

    Raises:
      SceneError: if the scene has another number of steps.
    """
    if len(scene.time) != 91:
        raise SceneError(f"a WOMD record has 91 steps, the scene {len(scene.time)}")
    friction = scene.friction
    return {
        "scenario/id": [scene.id.encode()],
        **_state(scene),
        **_roadgraph(scene),
        **_lights(scene),
        **_route(scene, route),
        "s3jax/friction_base": np.array([friction.base], np.float32),
        "s3jax/friction_polygons": friction.polygons.astype(np.float32),
        "s3jax/friction_values": friction.values.astype(np.float32),
    }


def write_worlds(path, worlds: Iterable) -> None:
    """Writes worlds (`s3jax.scenarios.worlds`) to a TFRecord file."""
    write_records(path, (encode_example(features_from_scene(world.scene, world.route)) for world in worlds))


def _padded(values, size, fill=-1):
    out = np.full((size, *values.shape[1:]), fill, values.dtype)
    out[: min(len(values), size)] = values[:size]
    return out


def _state(scene):
    """The ego car first, the others by their distance to it at the current step."""
    tracks, ego = scene.tracks, scene.sdc
    gap = np.hypot(*(axis[:, _CURRENT] - axis[ego, _CURRENT] for axis in (tracks.x, tracks.y)))
    gap = np.where(tracks.valid[:, _CURRENT], gap, np.inf)
    gap[ego] = -1.0
    order = np.argsort(gap, kind="stable")
    valid = tracks.valid[order]
    columns = {
        "x": tracks.x, "y": tracks.y, "z": tracks.z, "bbox_yaw": tracks.yaw, "velocity_x": tracks.vx,
        "velocity_y": tracks.vy, "length": tracks.length, "width": tracks.width, "height": tracks.height,
        "speed": np.hypot(tracks.vx, tracks.vy), "vel_yaw": np.arctan2(tracks.vy, tracks.vx),
    }  # fmt: skip
    columns = {
        name: np.where(valid, values[order], -1.0).astype(np.float32) for name, values in columns.items()
    }
    columns["valid"] = valid.astype(np.int64)
    stamps = np.round(scene.time * 1e6).astype(np.int64)
    columns["timestamp_micros"] = np.where(valid, stamps, -1)
    first = np.arange(len(order)) == 0
    features = {
        "state/id": _padded(tracks.ids[order].astype(np.float32), OBJECTS),
        "state/type": _padded(tracks.types[order].astype(np.float32), OBJECTS),
        "state/is_sdc": _padded(first.astype(np.int64), OBJECTS),
        "state/tracks_to_predict": _padded(first.astype(np.int64), OBJECTS),
        "state/objects_of_interest": _padded(np.zeros(len(order), np.int64), OBJECTS),
        "state/difficulty_level": _padded(np.zeros(len(order), np.int64), OBJECTS),
    }
    for name, values in columns.items():
        full = _padded(values, OBJECTS, 0 if name == "valid" else -1)
        features |= {f"state/{period}/{name}": full[:, steps] for period, steps in _PERIODS.items()}
    return features


def _roadgraph(scene):
    features = scene.map
    points, directions, types, ids = [], [], [], []
    for row in np.argsort(_PRIORITY[features.types], kind="stable"):
        line = features.points[features.starts[row] : features.starts[row + 1]]
        kind = features.types[row]
        if kind == CROSSWALK:
            line = np.concatenate([line, line[:1]])
        line = line if kind == STOP_SIGN else resample(line, _MAP_SPACING)
        step = np.diff(line, axis=0, append=line[-1:])
        points.append(line)
        directions.append(step / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-9))
        types.append(np.full(len(line), kind))
        ids.append(np.full(len(line), features.ids[row]))
    count = min(sum(map(len, points)), POINTS)
    return {
        "roadgraph_samples/xyz": _padded(np.concatenate(points).astype(np.float32), POINTS),
        "roadgraph_samples/dir": _padded(np.concatenate(directions).astype(np.float32), POINTS),
        "roadgraph_samples/type": _padded(np.concatenate(types), POINTS),
        "roadgraph_samples/id": _padded(np.concatenate(ids), POINTS),
        "roadgraph_samples/valid": (np.arange(POINTS) < count).astype(np.int64),
    }


def _lights(scene):
    lights, steps = scene.lights, len(scene.time)
    seen = lights.state >= 0
    columns = {
        "x": np.where(seen, lights.x, -1.0).astype(np.float32),
        "y": np.where(seen, lights.y, -1.0).astype(np.float32),
        "z": np.where(seen, 0.0, -1.0).astype(np.float32),
        "state": lights.state.astype(np.int64),
        "id": np.where(seen, lights.lane[:, None], -1),
        "valid": seen.astype(np.int64),
    }
    features = {
        f"traffic_light_state/{period}/timestamp_micros": np.round(scene.time[span] * 1e6).astype(np.int64)
        for period, span in _PERIODS.items()
    }
    for name, values in columns.items():
        full = _padded(values.reshape(-1, steps), LIGHTS, 0 if name == "valid" else -1).T
        features |= {f"traffic_light_state/{period}/{name}": full[span] for period, span in _PERIODS.items()}
    return features


def _route(scene, route):
    """The route from the ego car's first position on, at least a metre apart; the other rows are padding."""
    start = np.array([scene.tracks.x[scene.sdc, 0], scene.tracks.y[scene.sdc, 0]])
    line = route[int(np.hypot(*(route - start).T).argmin()) :]
    length = np.hypot(*np.diff(line, axis=0).T).sum()
    line = resample(line, max(_MAP_SPACING, length / (ROUTE_POINTS - 1)))[:ROUTE_POINTS]
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    shape = (ROUTES, ROUTE_POINTS)
    xyz, valid = np.full((*shape, 3), -1.0, np.float32), np.zeros(shape, np.int64)
    ids, length, on_route = np.full(shape, -1), np.zeros(shape, np.float32), np.zeros((ROUTES, 1), np.int64)
    xyz[0, : len(line)] = np.pad(line, ((0, 0), (0, 1)))
    valid[0, : len(line)], ids[0, : len(line)], on_route[0] = 1, 1, 1
    length[0, : len(line)] = travelled
    return {
        "path_samples/xyz": xyz,
        "path_samples/valid": valid,
        "path_samples/id": ids,
        "path_samples/arc_length": length,
        "path_samples/on_route": on_route,
    }
