"""The fixed-size record in which a scenario is stored: 57 kB at dt = 0.05 s, so that a shard can be
memory-mapped.

References are float32; everything around them is int16 in units of `scale`, which is 1 cm unless a scene is
wider than 327 m. Logs longer than `DURATION` are cut.
"""

import numpy as np

from s3jax.scenarios.compact import MAX_BOXES, MAX_EDGES, MAX_LANES, MAX_LIGHTS
from s3jax.scenarios.raw import LOG_DT
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tags import FEATURES
from s3jax.spatial.friction import FrictionMap
from s3jax.spatial.reference import Reference, make_reference

DURATION = 9.1
"""Longest reference that a record holds (s): the 91 steps of a WOMD log."""

MAX_PATCHES, MAX_CORNERS = 4, 12
"""Most friction patches a record holds, and corners of each."""

_STEPS = round(DURATION / LOG_DT)
_ABSENT = -(2**15)
_LIMIT = 2**15 - 1
_SPEED_UNIT, _ANGLE_UNIT = 0.01, np.pi / _LIMIT


def record_type(dt: float) -> np.dtype:
    """Returns the NumPy type of a stored scenario whose reference is sampled every `dt` seconds."""
    return np.dtype(
        [
            ("id", "S48"),
            ("source", "S160"),
            ("origin", "f8", 2),
            ("scale", "f4"),
            ("length", "i4"),
            ("reference", "f4", (round(DURATION / dt) + 1, 4)),
            ("ego_size", "f4", 2),
            ("base", "f4"),
            ("patches", "i4"),
            ("corners", "i4"),
            ("polygons", "f4", (MAX_PATCHES, MAX_CORNERS, 2)),
            ("values", "f4", MAX_PATCHES),
            ("edge_count", "i4"),
            ("edges", "i2", (MAX_EDGES, 4)),
            ("lane_count", "i4"),
            ("lanes", "i2", (MAX_LANES, 4)),
            ("steps", "i4"),
            ("box_count", "i4"),
            ("boxes", "i2", (MAX_BOXES, _STEPS, 4)),
            ("box_sizes", "f4", (MAX_BOXES, 2)),
            ("box_types", "i1", MAX_BOXES),
            ("light_count", "i4"),
            ("lights", "i2", (MAX_LIGHTS, 2)),
            ("light_states", "i1", (MAX_LIGHTS, _STEPS)),
            ("features", "f4", len(FEATURES)),
        ]
    )


def pack(scenario: Scenario) -> np.ndarray:
    """Returns the scenario as a record [] of `record_type(scenario.dt)`."""
    out = np.zeros((), record_type(scenario.dt))
    out["id"], out["source"] = scenario.id.encode()[:48], scenario.source.encode()[-160:]
    out["origin"], out["ego_size"] = scenario.origin, scenario.ego_size
    reference = scenario.reference
    last = reference.offset + min(reference.length, len(out["reference"]))
    own = reference.samples[reference.offset : last, :4]
    out["length"] = len(own)
    out["reference"][: len(own)] = own
    friction = scenario.friction
    count, corners = friction.polygons.shape[:2]
    if count > MAX_PATCHES or corners > MAX_CORNERS:
        raise ValueError(f"{scenario.id}: {count} friction patches of {corners} corners do not fit a record")
    out["base"], out["patches"], out["corners"] = friction.base, count, corners
    out["polygons"][:count, :corners], out["values"][:count] = friction.polygons, friction.values
    boxes = scenario.boxes[:, :_STEPS]
    places = [scenario.edges, scenario.lanes, scenario.lights, boxes[..., :2][np.isfinite(boxes[..., 0])]]
    extent = max((float(np.abs(place).max()) for place in places if place.size), default=0.0)
    out["scale"] = scale = np.float32(max(0.01, extent / _LIMIT))
    for name, values, unit in (
        ("edge", scenario.edges, scale),
        ("lane", scenario.lanes, scale),
        ("light", scenario.lights, scale),
    ):
        out[f"{name}_count"] = len(values)
        out[f"{name}s"][: len(values)] = np.round(values / unit)
    count, steps = boxes.shape[:2]
    out["box_count"], out["steps"] = count, max(steps, min(scenario.light_states.shape[1], _STEPS))
    units = np.array([scale, scale, _ANGLE_UNIT, _SPEED_UNIT])
    wrapped = boxes.copy()
    wrapped[..., 2] = (boxes[..., 2] + np.pi) % (2 * np.pi) - np.pi
    packed = np.clip(np.round(np.nan_to_num(wrapped / units)), -_LIMIT, _LIMIT)
    out["boxes"][:count, :steps] = np.where(np.isfinite(boxes), packed, _ABSENT)
    out["box_sizes"][:count], out["box_types"][:count] = scenario.box_sizes, scenario.box_types
    states = scenario.light_states[:, :_STEPS]
    out["light_states"][: len(states), : states.shape[1]] = states
    out["features"] = [scenario.features.get(name, np.nan) for name in FEATURES]
    return out


def unpack_task(record: np.ndarray, dt: float) -> tuple[Reference, FrictionMap]:
    """Returns the reference and the friction of a record; nothing else of it is read from the disk."""
    patches, corners = int(record["patches"]), int(record["corners"])
    friction = FrictionMap(
        base=np.float64(record["base"]),
        polygons=record["polygons"][:patches, :corners].astype(float),
        values=record["values"][:patches].astype(float),
    )
    return make_reference(*record["reference"][: record["length"]].T.astype(float), dt), friction


def unpack(record: np.ndarray, dt: float) -> Scenario:
    """Returns the scenario that was packed into a record."""
    scale, steps, boxes = float(record["scale"]), int(record["steps"]), int(record["box_count"])
    reference, friction = unpack_task(record, dt)
    packed = record["boxes"][:boxes, :steps]
    units = np.array([scale, scale, _ANGLE_UNIT, _SPEED_UNIT], np.float32)
    lights = int(record["light_count"])
    return Scenario(
        id=record["id"].item().decode("utf-8", "replace"),
        source=record["source"].item().decode("utf-8", "replace"),
        dt=dt,
        reference=reference,
        origin=np.array(record["origin"]),
        friction=friction,
        ego_size=np.array(record["ego_size"]),
        edges=record["edges"][: record["edge_count"]] * np.float32(scale),
        lanes=record["lanes"][: record["lane_count"]] * np.float32(scale),
        box_dt=LOG_DT,
        boxes=np.where(packed == _ABSENT, np.float32(np.nan), packed * units),
        box_sizes=np.array(record["box_sizes"][:boxes]),
        box_types=np.array(record["box_types"][:boxes]),
        lights=record["lights"][:lights] * np.float32(scale),
        light_states=np.array(record["light_states"][:lights, :steps]),
        features=dict(zip(FEATURES, record["features"].astype(float).tolist(), strict=True)),
    )
