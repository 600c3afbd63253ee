"""Scenes to and from Waymax, the simulator of https://github.com/waymo-research/waymax.

Waymax is not a dependency: its licence is non-commercial and it is installed from its repository.
`load_waymax` checks that what is installed is the real one. A state made here equals the one that Waymax's
own loader makes of the same record, without TensorFlow's part in it (`tests/parity`). Training and driving
in it are in `s3jax.waymax`.
"""

import importlib
import sys

import numpy as np

from s3jax.errors import UserError
from s3jax.scenarios.compact import compact
from s3jax.scenarios.example import parse_example
from s3jax.scenarios.raw import (
    ROAD_EDGE_TYPE,
    Lights,
    RawScene,
    SceneError,
    Tracks,
    log_time,
    make_scene,
    split_map,
)
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.wire import WireError
from s3jax.scenarios.womd_writer import features_from_scene

_BOUNDARY = 15  # what Waymax takes for a road edge; of an edge of unknown type it knows nothing
_PERIODS = ("past", "current", "future")
_INSTALL = "install it from a checkout of s3jax with `pip install --group waymax`"


class WaymaxError(UserError):
    """Waymax is absent, or a package of that name is not the simulator."""


def load_waymax():
    """Returns the package `waymax`.

    Raises:
      WaymaxError: if it is not installed, or is not the simulator; the message says what to do.
    """
    try:
        package = importlib.import_module("waymax")
        for module, name in (("datatypes", "SimulatorState"), ("env", "PlanningAgentEnvironment")):
            getattr(importlib.import_module(f"waymax.{module}"), name)
    except ImportError as error:
        if error.name == "waymax":
            raise WaymaxError(
                f"Waymax is not installed; {_INSTALL} (`waymax` on PyPI is a stranger's)"
            ) from None
        if error.name and not error.name.startswith("waymax."):
            raise WaymaxError(f"Waymax needs {error.name}, which is not installed; {_INSTALL}") from None
        raise _stranger() from None
    except AttributeError:
        raise _stranger() from None
    return package


def _stranger() -> WaymaxError:
    path = sys.modules["waymax"].__file__
    return WaymaxError(
        f"the installed package `waymax` ({path}) is not the simulator (PyPI's is a stranger's); "
        f"`pip uninstall waymax`, then {_INSTALL}"
    )


def to_waymax(scene: RawScene, route: np.ndarray | None = None):
    """Returns a scene of 91 steps as a Waymax `SimulatorState`, with the route as its SDC path.

    Args:
      scene: a scene from any reader or from the world generator.
      route: [n, 2] path for the ego car (m); its log by default.
    """
    if route is None:
        route = np.stack([scene.tracks.x[scene.sdc], scene.tracks.y[scene.sdc]], axis=1)[
            scene.tracks.valid[scene.sdc]
        ]
    features = features_from_scene(scene, route)
    types = features["roadgraph_samples/type"]
    features["roadgraph_samples/type"] = np.where(types == ROAD_EDGE_TYPE, _BOUNDARY, types)
    return simulator_state(features)


def state_of(data: bytes, scene: RawScene):
    """Returns the Waymax `SimulatorState` of a record: as in the file if that is a tf.Example, else rebuilt.

    Args:
      data: the record.
      scene: what `s3jax.scenarios.read.parse_scene` made of it.

    Raises:
      SceneError: if the record cannot be a state of Waymax.
      WaymaxError: if Waymax is not installed.
    """
    try:
        features = parse_example(data)
    except WireError:
        return to_waymax(scene)
    return simulator_state(features)


def simulator_state(features: dict):
    """Returns the Waymax `SimulatorState` of a WOMD tf.Example's features (`parse_example`).

    Raises:
      SceneError: if a feature is missing or has an impossible size.
      WaymaxError: if Waymax is not installed.
    """
    datatypes = load_waymax().datatypes
    try:
        layout = state_layout(features)
    except KeyError as error:
        raise SceneError(f"feature {error.args[0]} is missing") from None
    except ValueError as error:
        raise SceneError(f"features of sizes that do not fit together ({error})") from None
    log = datatypes.Trajectory(**layout["log_trajectory"])
    # The simulated trajectory holds the first step of the log; the rest is for the simulator to fill.
    first = {name: np.where(np.arange(value.shape[-1]) == 0, value, np.zeros((), value.dtype))
             for name, value in layout["log_trajectory"].items()}  # fmt: skip
    paths = layout.get("sdc_paths")
    return datatypes.SimulatorState(
        sim_trajectory=datatypes.Trajectory(**first),
        log_trajectory=log,
        log_traffic_light=datatypes.TrafficLights(**layout["log_traffic_light"]),
        object_metadata=datatypes.ObjectMetadata(**layout["object_metadata"]),
        timestep=np.zeros((), np.int32),
        sdc_paths=None if paths is None else datatypes.Paths(**paths),
        roadgraph_points=datatypes.RoadgraphPoints(**layout["roadgraph_points"]),
    )


def state_layout(features: dict) -> dict[str, dict[str, np.ndarray]]:
    """Returns the arrays of Waymax's state by the names of its types and fields; NumPy, needs no Waymax."""
    count = len(features["state/type"])
    valid = _steps(features, "valid", count) == 1
    yaw = _steps(features, "bbox_yaw", count)
    pi = np.float32(np.pi)
    trajectory = {
        "x": _steps(features, "x", count),
        "y": _steps(features, "y", count),
        "z": _steps(features, "z", count),
        "vel_x": _steps(features, "velocity_x", count),
        "vel_y": _steps(features, "velocity_y", count),
        "yaw": (yaw + pi) % (2 * pi) - pi,
        "valid": valid,
        "timestamp_micros": _steps(features, "timestamp_micros", count).astype(np.int32),
    }
    for name in ("length", "width", "height"):
        trajectory[name] = _mean_size(_steps(features, name, count), valid)
    target = features["state/tracks_to_predict"]
    layout = {
        "log_trajectory": trajectory,
        "object_metadata": {
            "ids": features["state/id"].astype(np.int32),
            "object_types": features["state/type"].astype(np.int32),
            "is_sdc": features["state/is_sdc"] == 1,
            "is_modeled": target == 1,
            "is_valid": target != -1,
            "objects_of_interest": features["state/objects_of_interest"] == 1,
            "is_controlled": np.zeros(count, bool),
        },
        "roadgraph_points": {
            **_axes(features["roadgraph_samples/xyz"], "x", "y", "z"),
            **_axes(features["roadgraph_samples/dir"], "dir_x", "dir_y", "dir_z"),
            "types": features["roadgraph_samples/type"].astype(np.int32).reshape(-1),
            "ids": features["roadgraph_samples/id"].astype(np.int32).reshape(-1),
            "valid": features["roadgraph_samples/valid"].reshape(-1) == 1,
        },
        "log_traffic_light": {
            "x": _light_steps(features, "x", valid.shape[1]),
            "y": _light_steps(features, "y", valid.shape[1]),
            "z": _light_steps(features, "z", valid.shape[1]),
            "state": _light_steps(features, "state", valid.shape[1]).astype(np.int32),
            "lane_ids": _light_steps(features, "id", valid.shape[1]).astype(np.int32),
            "valid": _light_steps(features, "valid", valid.shape[1]) == 1,
        },
    }
    if "path_samples/xyz" in features:
        layout["sdc_paths"] = _paths(features)
    return layout


def _steps(features, name, count):
    return np.concatenate(
        [features[f"state/{period}/{name}"].reshape(count, -1) for period in _PERIODS], axis=1
    )


def _light_steps(features, name, steps):
    flat = np.concatenate(
        [features[f"traffic_light_state/{period}/{name}"].reshape(-1) for period in _PERIODS]
    )
    return np.ascontiguousarray(flat.reshape(steps, -1).T)


def _mean_size(values, valid):
    """One size per object: the mean over the steps at which it was seen, -1 if it never was."""
    count = valid.sum(axis=1, keepdims=True)
    total = np.where(valid, values, 0).sum(axis=1, keepdims=True, dtype=np.float32)
    mean = np.where(count > 0, total / np.maximum(count, 1).astype(np.float32), np.float32(-1))
    return np.repeat(mean, values.shape[1], axis=1)


def _axes(flat, *names):
    return dict(zip(names, np.ascontiguousarray(np.asarray(flat, np.float32).reshape(-1, 3).T), strict=True))


def _paths(features):
    count = len(features["path_samples/on_route"].reshape(-1))
    shape = (count, -1)
    return {
        **{
            name: axis.reshape(shape)
            for name, axis in _axes(features["path_samples/xyz"], "x", "y", "z").items()
        },
        "ids": features["path_samples/id"].astype(np.int32).reshape(shape),
        "valid": features["path_samples/valid"].reshape(shape) == 1,
        "arc_length": features["path_samples/arc_length"].astype(np.float32).reshape(shape),
        "on_route": features["path_samples/on_route"].reshape(count, 1) == 1,
    }


def from_waymax(state, dt: float = 0.05, scene_id: str = "waymax") -> Scenario:
    """Returns the log of a Waymax `SimulatorState` without batch dimensions as a scenario.

    Raises:
      SceneError: if the state has batch dimensions, no ego car, or its log is too short.
    """
    return compact(scene_from_waymax(state, scene_id), dt, source="waymax")


def scene_from_waymax(state, scene_id: str = "waymax") -> RawScene:
    """Returns the log of a Waymax `SimulatorState` as a scene; errors as in `from_waymax`."""
    log, meta, points, lights = (
        state.log_trajectory, state.object_metadata, state.roadgraph_points, state.log_traffic_light,
    )  # fmt: skip
    if np.ndim(log.x) != 2:
        raise SceneError(
            f"a Waymax state of shape {np.shape(log.x)[:-2]}, expected one without batch dimensions"
        )
    ego = np.flatnonzero(np.asarray(meta.is_sdc))
    if len(ego) == 0:
        raise SceneError("no ego car: no object is marked is_sdc")
    row = int(ego[0])
    numbers = (log.x, log.y, log.z, log.yaw, log.vel_x, log.vel_y, log.length, log.width, log.height)
    good = np.asarray(points.valid)
    xyz = np.stack([np.asarray(axis, float)[good] for axis in (points.x, points.y, points.z)], axis=1)
    lanes = np.asarray(lights.lane_ids)
    return make_scene(
        scene_id=scene_id,
        time=log_time(np.asarray(log.timestamp_micros)[row], np.asarray(log.valid)[row]),
        tracks=Tracks(
            *(np.asarray(values, float) for values in numbers),
            valid=np.asarray(log.valid),
            types=np.asarray(meta.object_types),
            ids=np.asarray(meta.ids),
        ),
        sdc=row,
        features=split_map(xyz, np.asarray(points.types)[good], np.asarray(points.ids)[good]),
        lights=Lights.by_lane(
            *(np.asarray(values).T for values in (lights.x, lights.y, lights.state, lanes, lights.valid))
        ),
    )
