"""Waymo Open Motion Dataset records in tf.Example form (releases 1.0 to 1.3, what Waymax reads).

Features and shapes: https://waymo.com/open/data/motion/tfexample
"""

import numpy as np

from s3jax.scenarios.example import parse_example
from s3jax.scenarios.raw import (
    LOG_DT,
    Lights,
    MapFeatures,
    RawScene,
    SceneError,
    Tracks,
    log_time,
    make_scene,
    split_map,
)
from s3jax.spatial.friction import FrictionMap, friction_map

_PERIODS = ("past", "current", "future")
_TRACK_FIELDS = ("x", "y", "z", "bbox_yaw", "velocity_x", "velocity_y", "length", "width", "height", "valid")


def scene_from_example(data: bytes) -> RawScene:
    """Reads a scene from a serialised WOMD tf.Example.

    Sizes (objects, steps, points, lights) are taken from the record.

    Raises:
      WireError: if the bytes are not a tf.Example.
      SceneError: if a feature is missing or has an impossible size, or there is no ego car.
    """
    return scene_from_features(parse_example(data))


def scene_from_features(features: dict) -> RawScene:
    """Reads a scene from parsed features (`parse_example`); errors as in `scene_from_example`."""
    count = len(_numbers(features, "state/type"))
    if count == 0:
        raise SceneError("feature state/type is empty")
    columns = [_by_object(features, field, count) for field in _TRACK_FIELDS]
    valid = columns.pop() == 1
    sdc = np.flatnonzero(_sized(features, "state/is_sdc", count) == 1)
    tracks = Tracks(
        *columns,
        valid=valid,
        types=_sized(features, "state/type", count).astype(int),
        ids=_sized(features, "state/id", count).astype(int),
    )
    ego = int(sdc[0]) if len(sdc) else -1
    name = features.get("scenario/id")
    return make_scene(
        scene_id=name[0].decode("utf-8", "replace") if isinstance(name, list) and name else "",
        time=_time(features, ego, valid),
        tracks=tracks,
        sdc=ego,
        features=_map(features),
        lights=_lights(features),
        friction=_friction(features),
    )


def _numbers(features, name):
    if name not in features:
        raise SceneError(f"not a WOMD scene: feature {name} is missing")
    values = features[name]
    if isinstance(values, list):
        raise SceneError(f"feature {name} holds bytes, not numbers")
    return values


def _sized(features, name, size):
    values = _numbers(features, name)
    if len(values) != size:
        raise SceneError(f"feature {name} has {len(values)} values, expected {size}")
    # A NaN has no integer; -1 is the dataset's own padding.
    return np.where(np.abs(values) < 2**31, values, -1)


def _by_object(features, field, count):
    parts = []
    for period in _PERIODS:
        values = _numbers(features, f"state/{period}/{field}")
        if len(values) % count:
            raise SceneError(f"feature state/{period}/{field} has {len(values)} values for {count} objects")
        parts.append(values.reshape(count, -1).astype(float))
    joined = np.concatenate(parts, axis=1)
    steps = sum(len(_numbers(features, f"state/{period}/valid")) for period in _PERIODS) // count
    if joined.shape[1] != steps:
        raise SceneError(f"feature state/*/{field} has {joined.shape[1]} steps, state/*/valid has {steps}")
    return joined


def _time(features, ego, valid):
    if ego < 0 or "state/current/timestamp_micros" not in features:
        return np.arange(valid.shape[1]) * LOG_DT
    return log_time(_by_object(features, "timestamp_micros", len(valid))[ego], valid[ego])


def _friction(features) -> FrictionMap:
    """What `s3jax.scenarios.womd_writer` adds; the dataset itself says nothing about friction."""
    if "s3jax/friction_base" not in features:
        return friction_map()
    values = _numbers(features, "s3jax/friction_values")
    polygons = _sized(features, "s3jax/friction_polygons", len(_numbers(features, "s3jax/friction_polygons")))
    if len(values) and len(polygons) % (2 * len(values)):
        raise SceneError(
            f"feature s3jax/friction_polygons has {len(polygons)} values for {len(values)} patches"
        )
    corners = polygons.reshape(len(values), -1, 2) if len(values) else np.zeros((0, 3, 2))
    try:
        (base,) = _numbers(features, "s3jax/friction_base")
        return friction_map(base, list(zip(corners.astype(float), values, strict=True)))
    except ValueError as error:
        raise SceneError(f"feature s3jax/friction_*: {error}") from None


def _map(features) -> MapFeatures:
    types = _numbers(features, "roadgraph_samples/type")
    count = len(types)
    ids = _sized(features, "roadgraph_samples/id", count)
    points = _sized(features, "roadgraph_samples/xyz", 3 * count).reshape(count, 3)
    good = _sized(features, "roadgraph_samples/valid", count) == 1
    return split_map(points[good].astype(float), types[good], ids[good])


def _lights(features) -> Lights:
    """Lights keep no column over time in the file; they are matched by lane id."""
    parts = {field: [] for field in ("x", "y", "state", "id", "valid")}
    for period in _PERIODS:
        stamps = len(_numbers(features, f"state/{period}/valid")) // len(_numbers(features, "state/type"))
        for field, values in parts.items():
            name = f"traffic_light_state/{period}/{field}"
            flat = _numbers(features, name)
            if stamps == 0:
                continue
            if len(flat) % stamps:
                raise SceneError(f"feature {name} has {len(flat)} values for {stamps} steps")
            values.append(flat.reshape(stamps, -1))
    if not parts["x"]:
        return Lights(*np.zeros((3, 0, 0)), np.zeros(0, int))
    x, y, state, lane, valid = (_joined(values, field) for field, values in parts.items())
    if not (x.shape == y.shape == state.shape == lane.shape == valid.shape):
        raise SceneError("the traffic light features differ in size")
    return Lights.by_lane(x, y, state, lane, valid == 1)


def _joined(values, field):
    if len({value.shape[1] for value in values}) != 1:
        raise SceneError(f"features traffic_light_state/*/{field} differ in the number of lights")
    return np.concatenate(values)
