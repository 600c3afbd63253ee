"""Scenes in the JSON form of GPUDrive and Nocturne, which both make from the Waymo Open Motion Dataset.

One file holds one scene. Several generations are in use: headings are in degrees in files whose objects have
no `id`, and in radians in the others; heights, map types and metadata came later.
https://github.com/Emerge-Lab/gpudrive
"""

import json

import numpy as np

from s3jax.scenarios.raw import (
    CROSSWALK,
    CYCLIST,
    LOG_DT,
    PEDESTRIAN,
    ROAD_EDGE_TYPE,
    ROAD_LINE_TYPE,
    STOP_SIGN,
    VEHICLE,
    Lights,
    RawScene,
    SceneError,
    Tracks,
    make_scene,
    stack_map,
)
from s3jax.spatial.frames import wrap_angle

_OBJECT_TYPES = {"vehicle": VEHICLE, "pedestrian": PEDESTRIAN, "cyclist": CYCLIST}
_MAP_TYPES = {
    "lane": 2,
    "road_line": ROAD_LINE_TYPE,
    "road_edge": ROAD_EDGE_TYPE,
    "stop_sign": STOP_SIGN,
    "crosswalk": CROSSWALK,
    "speed_bump": CROSSWALK + 1,
    "driveway": CROSSWALK + 2,
}
_LIGHT_STATES = (
    "unknown",
    "arrow_stop",
    "arrow_caution",
    "arrow_go",
    "stop",
    "caution",
    "go",
    "flashing_stop",
    "flashing_caution",
)
_INVALID = -10000.0  # exactly this coordinate stands for "not seen"; real ones go beyond it


def scene_from_json(data: bytes) -> RawScene:
    """Reads a scene from the text of a GPUDrive or Nocturne JSON file.

    Without metadata the ego car is the last object, as both projects write it.

    Raises:
      SceneError: if the text is not JSON, or not such a scene.
    """
    try:
        text = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SceneError(f"not valid JSON ({' '.join(str(error).split())})") from None
    if not isinstance(text, dict) or not isinstance(text.get("objects"), list) or "roads" not in text:
        raise SceneError("not a GPUDrive or Nocturne scene: no objects and roads in it")
    if not text["objects"]:
        raise SceneError("no objects")
    try:
        return _scene(text)
    except SceneError:
        raise
    except KeyError as error:
        raise SceneError(f"malformed GPUDrive JSON: field {error} is missing") from None
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise SceneError(f"malformed GPUDrive JSON: {' '.join(str(error).split())}") from None


def _scene(text) -> RawScene:
    objects = text["objects"]
    steps = {len(item["valid"]) for item in objects}
    if len(steps) != 1:
        raise SceneError(f"objects differ in length: {min(steps)} to {max(steps)} steps")
    steps = steps.pop()
    place, velocity = (_series(objects, name, ("x", "y", "z"), steps) for name in ("position", "velocity"))
    heading = np.array([item["heading"] for item in objects], float).reshape(len(objects), steps)
    valid = np.array([item["valid"] for item in objects], bool) & (place[..., :2] != _INVALID).all(axis=2)
    tracks = Tracks(
        x=place[..., 0],
        y=place[..., 1],
        z=place[..., 2],
        yaw=_radians(heading, velocity, valid, degrees="id" not in objects[0]),
        vx=velocity[..., 0],
        vy=velocity[..., 1],
        length=_constant(objects, "length", steps),
        width=_constant(objects, "width", steps),
        height=_constant(objects, "height", steps),
        valid=valid,
        types=np.array([_OBJECT_TYPES.get(item.get("type"), 0) for item in objects]),
        ids=np.array([int(item.get("id", row)) for row, item in enumerate(objects)]),
    )
    return make_scene(
        scene_id=str(text.get("scenario_id") or text.get("name") or "").removesuffix(".json"),
        time=np.arange(steps) * LOG_DT,
        tracks=tracks,
        sdc=int((text.get("metadata") or {}).get("sdc_track_index", len(objects) - 1)),
        features=_map(text["roads"]),
        lights=_lights(text.get("tl_states") or {}, steps),
    )


def _series(objects, name, axes, steps):
    """A vector over time of every object, [N, T, len(axes)]; 0 for an axis that the file leaves out."""
    values = [[point.get(axis, 0.0) for axis in axes] for item in objects for point in item[name]]
    return np.array(values, float).reshape(len(objects), steps, len(axes))


def _constant(objects, name, steps):
    return np.repeat(np.array([[item.get(name, 0.0)] for item in objects], float), steps, axis=1)


def _radians(heading, velocity, valid, degrees):
    """Headings in radians: by the rule of the file's generation, unless cars in motion say otherwise."""
    readings = {True: np.deg2rad(heading), False: heading}
    moving = valid & (np.hypot(velocity[..., 0], velocity[..., 1]) > 3.0)
    if moving.any():
        course = np.arctan2(velocity[..., 1], velocity[..., 0])[moving]
        error = {kind: np.median(np.abs(wrap_angle(yaw[moving] - course))) for kind, yaw in readings.items()}
        degrees = degrees if error[degrees] <= error[not degrees] + 0.1 else not degrees
    return readings[degrees]


def _map(roads):
    points, types, ids = [], [], []
    for row, road in enumerate(roads):
        geometry = road["geometry"]
        geometry = [geometry] if isinstance(geometry, dict) else geometry
        kind = road.get("map_element_id", _MAP_TYPES.get(road.get("type"), 0))
        line = np.array([[point["x"], point["y"], point.get("z", 0.0)] for point in geometry], float)
        points.append(line.reshape(-1, 3))
        types.append(int(kind))
        ids.append(int(road.get("id", row)))
    return stack_map(points, types, ids)


def _lights(lanes, steps) -> Lights:
    shape = (len(lanes), steps)
    numbers = np.array([int(lane) for lane in lanes], int)
    lights = Lights(np.zeros(shape), np.zeros(shape), np.full(shape, -1), numbers)
    for row, light in enumerate(lanes.values()):
        columns = (light[name] for name in ("time_index", "state", "x", "y"))
        for step, state, x, y in zip(*columns, strict=True):
            if 0 <= step < steps:
                name = str(state).lower()
                lights.state[row, step] = _LIGHT_STATES.index(name) if name in _LIGHT_STATES else 0
                lights.x[row, step], lights.y[row, step] = float(x), float(y)
    return lights
