"""Waymo Open Motion Dataset records in Scenario-proto form.

The message types are declared here at run time, so neither generated code nor the `waymo_open_dataset`
package is needed. The many small leaf messages (object states, map points) are declared as `bytes`, which has
the same wire form, and decoded in blocks with NumPy; field order inside them is not fixed and differs between
real files.

Fields: https://github.com/waymo-research/waymo-open-dataset, protos/scenario.proto and protos/map.proto
"""

import functools
import struct

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from s3jax.scenarios import wire
from s3jax.scenarios.raw import (
    CROSSWALK,
    LOG_DT,
    ROAD_EDGE_TYPE,
    ROAD_LINE_TYPE,
    STOP_SIGN,
    Lights,
    RawScene,
    SceneError,
    Tracks,
    make_scene,
    stack_map,
)

# message -> field -> (number, type); a type with * is repeated. Enums are read as int32, the same wire form.
# `bytes` stands for a leaf message that is decoded with NumPy.
_MESSAGES = {
    "Scenario": {
        "timestamps_seconds": (1, "double*"),
        "tracks": (2, "Track*"),
        "scenario_id": (5, "bytes"),
        "sdc_track_index": (6, "int32"),
        "dynamic_map_states": (7, "DynamicMapState*"),
        "map_features": (8, "MapFeature*"),
    },
    "Track": {"id": (1, "int32"), "object_type": (2, "int32"), "states": (3, "bytes*")},
    "DynamicMapState": {"lane_states": (1, "TrafficSignalLaneState*")},
    "TrafficSignalLaneState": {"lane": (1, "int64"), "state": (2, "int32"), "stop_point": (3, "bytes")},
    "MapFeature": {
        "id": (1, "int64"),
        "lane": (3, "LaneCenter"),
        "road_line": (4, "RoadLine"),
        "road_edge": (5, "RoadEdge"),
        "stop_sign": (7, "StopSign"),
        "crosswalk": (8, "Polygon"),
        "speed_bump": (9, "Polygon"),
        "driveway": (10, "Polygon"),
    },
    "LaneCenter": {"type": (2, "int32"), "points": (8, "bytes*")},
    "RoadLine": {"type": (1, "int32"), "points": (2, "bytes*")},
    "RoadEdge": {"type": (1, "int32"), "points": (2, "bytes*")},
    "StopSign": {"points": (2, "bytes*")},
    "Polygon": {"points": (1, "bytes*")},
}
_BASE_TYPE = {
    "lane": 0,
    "road_line": ROAD_LINE_TYPE,
    "road_edge": ROAD_EDGE_TYPE,
    "stop_sign": STOP_SIGN,
    "crosswalk": CROSSWALK,
    "speed_bump": CROSSWALK + 1,
    "driveway": CROSSWALK + 2,
}
_POINT = (1, 2, 3)  # x, y, z
_STATE = (2, 3, 4, 8, 9, 10, 5, 6, 7, 11)  # x, y, z, heading, vx, vy, length, width, height, valid


@functools.cache
def _scenario_class():
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="s3jax_womd.proto", package="s3jax_womd", syntax="proto2")
    for name, declared in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in declared.items():
            base = kind.rstrip("*")
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if base in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{file.package}.{base}"
            else:
                added.type = getattr(kinds, f"TYPE_{base.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Scenario"))


def scene_from_proto(data: bytes) -> RawScene:
    """Reads a scene from a serialised WOMD Scenario message.

    Raises:
      SceneError: if the bytes are not a Scenario, tracks differ in length, or there is no ego car.
      WireError: if a leaf message is malformed.
    """
    try:
        scenario = _scenario_class().FromString(data)
    except DecodeError as error:
        raise SceneError(f"not a Scenario message ({' '.join(str(error).split())})") from None
    tracks = _tracks(scenario)
    steps = tracks.x.shape[1]
    time = np.array(scenario.timestamps_seconds) if scenario.timestamps_seconds else np.arange(steps) * LOG_DT
    if len(time) != steps:
        raise SceneError(f"{len(time)} time stamps for {steps} states in a track")
    # An absent index reads as 0, which would silently pick a wrong car.
    sdc = scenario.sdc_track_index if scenario.HasField("sdc_track_index") else -1
    return make_scene(
        scene_id=scenario.scenario_id.decode("utf-8", "replace"),
        time=time,
        tracks=tracks,
        sdc=sdc,
        features=_map(scenario),
        lights=_lights(scenario, steps),
    )


def _tracks(scenario) -> Tracks:
    if not scenario.tracks:
        raise SceneError("no tracks")
    steps = {len(track.states) for track in scenario.tracks}
    if len(steps) != 1:
        raise SceneError(f"tracks differ in length: {min(steps)} to {max(steps)} states")
    leaves = [state for track in scenario.tracks for state in track.states]
    columns = decode_leaves(leaves, _STATE).reshape(len(scenario.tracks), steps.pop(), len(_STATE))
    *numbers, valid = np.moveaxis(columns, -1, 0)
    return Tracks(
        *numbers,
        valid=valid == 1,
        types=np.array([track.object_type for track in scenario.tracks]),
        ids=np.array([track.id for track in scenario.tracks]),
    )


def _map(scenario):
    leaves, sizes, types, ids = [], [], [], []
    for feature in scenario.map_features:
        for name, base in _BASE_TYPE.items():
            if feature.HasField(name):
                part = getattr(feature, name)
                leaves.extend(part.points)
                sizes.append(len(part.points))
                types.append(base + getattr(part, "type", 0))
                ids.append(feature.id)
                break
    points = decode_leaves(leaves, _POINT)
    return stack_map(np.split(points, np.cumsum(sizes)[:-1]) if sizes else [], types, ids)


def _lights(scenario, steps) -> Lights:
    seen = [
        (step, light.lane, light.state, light.stop_point)
        for step, states in enumerate(scenario.dynamic_map_states[:steps])
        for light in states.lane_states
    ]
    lanes = np.unique(np.array([lane for _, lane, _, _ in seen], np.int64))
    shape = (len(lanes), steps)
    lights = Lights(np.zeros(shape), np.zeros(shape), np.full(shape, -1), lanes)
    points = decode_leaves([point for *_, point in seen], _POINT)
    for (step, lane, state, _), (x, y, _) in zip(seen, points, strict=True):
        row = np.searchsorted(lanes, lane)
        lights.x[row, step], lights.y[row, step], lights.state[row, step] = x, y, state
    return lights


def decode_leaves(messages: list[bytes], numbers: tuple[int, ...]) -> np.ndarray:
    """Decodes many small messages of doubles, floats and short varints at once.

    Messages of one length almost always share one layout, so each length is decoded as a block after checking
    that every message in it has the tags of the first one in the same places; the rest are walked one by one.

    Args:
      messages: serialised messages.
      numbers: field number of each column; other fields are skipped.

    Returns:
      [len(messages), len(numbers)] float64; an absent field is 0, the default of proto2.

    Raises:
      WireError: if a message is malformed.
    """
    values = np.zeros((len(messages), len(numbers)))
    lengths = np.fromiter(map(len, messages), int, len(messages))
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        block = np.frombuffer(b"".join([messages[row] for row in rows]), np.uint8).reshape(len(rows), length)
        layout = _layout(messages[rows[0]])
        tags = [start - 1 for _, _, start, _ in layout]
        alike = (block[:, tags] == block[0, tags]).all(axis=1) & bool(layout)
        for _, kind, start, _ in layout:
            if kind == wire.VARINT:
                alike &= block[:, start] < 0x80
        block, good = block[alike], rows[alike]
        for number, kind, start, end in layout:
            if number not in numbers:
                continue
            raw = np.ascontiguousarray(block[:, start:end])
            dtype = {wire.FIXED64: "<f8", wire.FIXED32: "<f4", wire.VARINT: "u1"}[kind]
            values[good, numbers.index(number)] = raw.view(dtype)[:, 0]
        for row in rows[~alike]:
            _decode_leaf(messages[row], numbers, values[row])
    return values


def _layout(message):
    """Returns the fields of a message as (number, wire type, start, end).

    Empty where other messages cannot share it: a tag or varint of several bytes, or a nested message.
    """
    layout, position = [], 0
    for number, kind, value in wire.fields(message):
        start, end = (position + 1, position + 2) if kind == wire.VARINT else value
        long_varint = kind == wire.VARINT and message[start] >= 0x80
        if kind == wire.BYTES or message[position] >= 0x80 or long_varint:
            return []
        layout.append((number, kind, start, end))
        position = end
    return layout


def _decode_leaf(message, numbers, out):
    for number, kind, value in wire.fields(message):
        if number in numbers and kind != wire.BYTES:
            if kind == wire.VARINT:
                out[numbers.index(number)] = value
            else:
                code = "<d" if kind == wire.FIXED64 else "<f"
                out[numbers.index(number)] = struct.unpack_from(code, message, value[0])[0]
