"""Reading WOMD records: both forms, real and synthetic, whole and damaged."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s3jax.archive import FileError
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.compact import MAX_BOXES, MAX_EDGES
from s3jax.scenarios.example import encode_example, parse_example
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.read import expand, parse_scene
from s3jax.scenarios.tfrecord import Record, RecordError, read_records, write_records
from s3jax.scenarios.womd_proto import _scenario_class, decode_leaves

WOMD = Path(__file__).parents[3] / "shared" / "data" / "womd"
real = pytest.mark.skipif(not WOMD.is_dir(), reason="the real records are not here")


def small_features(objects=4, sdc=1, steps=(10, 1, 80), speed=5.0):
    """A WOMD-layout scene: cars side by side on a straight road with an edge on the right, one light."""
    periods = dict(zip(("past", "current", "future"), steps, strict=True))
    features = {
        "scenario/id": [b"small"],
        "state/type": np.ones(objects, np.float32),
        "state/id": np.arange(objects, dtype=np.float32),
        "state/is_sdc": (np.arange(objects) == sdc).astype(int),
    }
    start = 0
    for period, count in periods.items():
        time = np.arange(start, start + count) * 0.1
        start += count
        shape = (objects, count)
        rows = {name: np.zeros(shape, np.float32) for name in ("z", "bbox_yaw", "velocity_y")}
        rows["x"] = np.broadcast_to(1000 + speed * time, shape).astype(np.float32)
        rows["y"] = np.broadcast_to(2000 + 4.0 * np.arange(objects)[:, None], shape).astype(np.float32)
        rows["velocity_x"] = np.full(shape, speed, np.float32)
        rows |= {"length": np.full(shape, 4.5, np.float32), "width": np.full(shape, 1.9, np.float32)}
        rows["height"] = np.full(shape, 1.5, np.float32)
        rows["valid"] = np.ones(shape, int)
        features |= {f"state/{period}/{name}": value for name, value in rows.items()}
        lights = {"x": np.full(count, 1020.0), "y": np.full(count, 2004.0), "state": np.full(count, 4)}
        lights |= {"id": np.full(count, 7), "valid": np.ones(count, int)}
        features |= {f"traffic_light_state/{period}/{name}": value for name, value in lights.items()}
    points = np.zeros((200, 3))
    points[:, 0] = np.tile(980.0 + np.arange(100.0), 2)
    points[:, 1] = np.repeat([2004.0, 1998.0], 100)
    return features | {
        "roadgraph_samples/xyz": points,
        "roadgraph_samples/type": np.repeat([2, 15], 100),
        "roadgraph_samples/id": np.repeat([7, 8], 100),
        "roadgraph_samples/valid": np.ones(200, int),
    }


def small_scenario(tracks=3, sdc=0, steps=91):
    """The same kind of scene as a Scenario message."""
    scenario = _scenario_class()()
    scenario.scenario_id = b"proto"
    scenario.timestamps_seconds.extend(np.arange(steps) * 0.1)
    if sdc is not None:
        scenario.sdc_track_index = sdc
    for row in range(tracks):
        track = scenario.tracks.add(id=row + 10, object_type=1)
        for step in range(steps):
            track.states.append(
                leaf({2: 0.5 * step, 3: 4.0 * row, 4: 0.0}, {5: 4.5, 6: 1.9, 8: 0.0, 9: 5.0, 10: 0.0})
            )
    edge = scenario.map_features.add(id=3).road_edge
    edge.type = 1
    edge.points.extend(leaf({1: float(x), 2: -3.0, 3: 0.0}, {}) for x in range(60))
    scenario.dynamic_map_states.add().lane_states.add(
        lane=5, state=6, stop_point=leaf({1: 9.0, 2: 0.0, 3: 0.0}, {})
    )
    return scenario


def leaf(doubles, floats, reverse=False):
    """A small message of doubles and floats and, where there are floats, a valid flag (field 11)."""
    parts = [bytes([number << 3 | 1]) + np.float64(value).tobytes() for number, value in doubles.items()]
    parts += [bytes([number << 3 | 5]) + np.float32(value).tobytes() for number, value in floats.items()]
    parts += [b"\x58\x01"] if floats else []
    return b"".join(reversed(parts) if reverse else parts)


def save(path, *messages):
    write_records(path, messages)
    return path


def test_example_becomes_a_scenario(tmp_path):
    (scenario,) = load_scenarios(save(tmp_path / "a", encode_example(small_features())), dt=0.05)
    samples = scenario.reference.samples[: scenario.reference.length]
    assert scenario.id == "small" and scenario.source == f"{tmp_path / 'a'}#0"
    assert scenario.reference.length == 181 and scenario.duration == pytest.approx(9.0)
    np.testing.assert_allclose(samples[:, 0], 0.25 * np.arange(181), atol=2e-4)
    np.testing.assert_allclose(samples[:, 1:], [[0, 0, 5, 0]] * 181, atol=2e-4)
    np.testing.assert_array_equal(scenario.origin, [1000, 2004])
    assert scenario.boxes.shape == (3, 91, 4)
    assert sorted(scenario.boxes[:, 0, 1].tolist()) == [-4, 4, 8]
    np.testing.assert_allclose(scenario.edges, [[-20, -6, 75, -6]], atol=1)
    assert scenario.lights.tolist() == [[20, 0]] and scenario.light_states.tolist() == [[4] * 91]
    assert scenario.features["light_lanes"] == 1


def test_proto_becomes_a_scenario(tmp_path):
    (scenario,) = load_scenarios(save(tmp_path / "a", small_scenario().SerializeToString()), dt=0.05)
    assert scenario.id == "proto" and scenario.reference.length == 181
    np.testing.assert_allclose(scenario.reference.samples[:181, 0], 0.25 * np.arange(181), atol=1e-9)
    np.testing.assert_allclose(scenario.ego_size, [4.5, 1.9])
    assert scenario.boxes.shape == (2, 91, 4) and len(scenario.edges) == 1
    assert scenario.light_states[0, 0] == 6 and (scenario.light_states[0, 1:] == -1).all()


@pytest.mark.parametrize("sdc", [0, 3, 199])
def test_the_ego_car_survives_truncation_whatever_its_row(tmp_path, sdc):
    (scenario,) = load_scenarios(save(tmp_path / "a", encode_example(small_features(objects=200, sdc=sdc))))
    assert len(scenario.boxes) <= MAX_BOXES
    assert scenario.origin[1] == pytest.approx(2000 + 4 * sdc)
    assert (scenario.boxes[:, 0, 1] != 0).all()


def test_standing_still_is_held_against_jitter(tmp_path):
    features = small_features(speed=0.0)
    noise = np.random.default_rng(0).normal(0, 0.02, (4, 80)).astype(np.float32)
    features["state/future/x"] = features["state/future/x"] + noise
    features["state/future/velocity_x"] = noise
    (scenario,) = load_scenarios(save(tmp_path / "a", encode_example(features)))
    assert np.ptp(scenario.reference.samples[:, :2], axis=0).max() == 0
    assert (scenario.reference.samples[:, 3] == 0).all()


def test_the_longest_valid_run_is_used(tmp_path):
    features = small_features()
    features["state/future/valid"][1, 40:43] = 0
    features["state/past/valid"][1, :2] = 0
    (scenario,) = load_scenarios(save(tmp_path / "a", encode_example(features)))
    assert scenario.reference.length == 2 * (51 - 2 - 1) + 1
    assert scenario.origin[0] == pytest.approx(1001.0)


def test_headings_take_the_shortest_way(tmp_path):
    features = small_features()
    features["state/future/bbox_yaw"][1] = np.float32(2 * np.pi)
    (scenario,) = load_scenarios(save(tmp_path / "a", encode_example(features)))
    np.testing.assert_allclose(scenario.reference.samples[:, 2], 0, atol=1e-6)


def _without(name):
    features = small_features()
    del features[name]
    return encode_example(features)


def _with(**values):
    return encode_example(
        small_features() | {name.replace("__", "/"): value for name, value in values.items()}
    )


def leaping():
    features = small_features()
    features["state/future/x"][:, 20:] += 1e5
    return encode_example(features)


def timeless():
    scenario = small_scenario()
    scenario.timestamps_seconds[90] = 1e9
    return scenario.SerializeToString()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "neither a WOMD tf.Example nor a WOMD Scenario"),
        (b"not a message at all", "record 1"),
        (_without("state/future/x"), "feature state/future/x is missing"),
        (_without("roadgraph_samples/xyz"), "feature roadgraph_samples/xyz is missing"),
        (encode_example({"image": [b"png"]}), "feature state/type is missing"),
        (_with(state__is_sdc=np.zeros(4, int)), "no ego car"),
        (_with(state__is_sdc=np.zeros(3, int)), "has 3 values, expected 4"),
        (_with(state__future__x=np.zeros(7)), "has 7 values for 4 objects"),
        (_with(state__future__x=np.zeros(4)), "has 12 steps"),
        (_with(**{f"state__{p}__valid": np.zeros((4, n), int) for p, n in zip(("past", "current", "future"),
                                                                             (10, 1, 80), strict=True)}),
         "valid for only 0 steps"),
        (encode_example(small_features(steps=(0, 1, 0))), "valid for only 1 steps"),
        (leaping(), "the ego car leaps at step 30"),
        (timeless(), "time stamps do not increase"),
        (small_scenario(sdc=None).SerializeToString(), "no ego car"),
        (small_scenario(sdc=3).SerializeToString(), "no ego car"),
        (small_scenario(steps=1).SerializeToString(), "valid for only 1 steps"),
        (small_scenario(tracks=0).SerializeToString(), "no tracks"),
    ],
)  # fmt: skip
def test_unusable_records_are_named_or_counted(tmp_path, message, reason):
    path = save(tmp_path / "a", encode_example(small_features()), message)
    with pytest.raises(RecordError, match=reason) as caught:
        load_scenarios(path)
    assert f"{path}: record 1 at byte " in str(caught.value) and "\n" not in str(caught.value)
    errors = []
    assert len(load_scenarios(path, on_error=errors.append)) == 1
    assert [str(error) for error in errors] == [str(caught.value)]


def test_a_file_without_a_usable_scenario_is_an_error(tmp_path):
    path = save(tmp_path / "a", b"")
    with pytest.raises(FileError, match="no usable scenario"):
        load_scenarios(path, on_error=lambda error: None)


def test_patterns(tmp_path):
    for name in ("t-00000-of-00002", "t-00001-of-00002", "u"):
        save(tmp_path / name, encode_example(small_features()))
    assert [Path(p).name for p in expand(tmp_path / "t@2")] == ["t-00000-of-00002", "t-00001-of-00002"]
    assert len(load_scenarios([tmp_path / "t*", tmp_path / "u"])) == 3
    assert len(load_scenarios(tmp_path / "t@2", limit=1)) == 1
    with pytest.raises(FileError, match="3 of 3 shards are missing"):
        expand(tmp_path / "t@3")
    with pytest.raises(FileError, match="no file matches"):
        expand(tmp_path / "x*")
    with pytest.raises(FileError, match="no such file"):
        load_scenarios(tmp_path / "absent")


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["double1", "float2", "flag3", "long4", "nested5"]), unique=True),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_block_decoding_equals_walking(shapes, seed):
    rng = np.random.default_rng(seed)
    messages, expected = [], []
    for names, reverse in shapes:
        parts, row = [], [0.0] * 4
        for name in names:
            value = float(np.float32(rng.normal()))
            if name == "double1":
                parts.append(b"\x09" + np.float64(value).tobytes())
                row[0] = value
            elif name == "float2":
                parts.append(b"\x15" + np.float32(value).tobytes())
                row[1] = value
            elif name == "flag3":
                row[2] = float(rng.integers(0, 2))
                parts.append(bytes([0x18, int(row[2])]))
            elif name == "long4":
                row[3] = 300.0
                parts.append(b"\x20\xac\x02")
            else:
                parts.append(b"\x2a\x02\x08\x01")
        messages.append(b"".join(reversed(parts) if reverse else parts))
        expected.append(row)
    np.testing.assert_array_equal(decode_leaves(messages, (1, 2, 3, 4)), np.array(expected).reshape(-1, 4))


MESSAGES = [encode_example(small_features()), small_scenario().SerializeToString()]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(MESSAGES),
    st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 2**31)),
    st.booleans(),
)
def test_mutated_bytes_give_scenarios_or_one_line_errors(tmp_path, message, changes, cut, reframe):
    """Damage inside a record with a matching CRC, and damage to the file itself."""

    def damage(data):
        data = bytearray(data)
        for place, value in changes:
            data[place % len(data)] = value
        return bytes(data[: cut % len(data)] if cut is not None else data)

    path = tmp_path / "a"
    if reframe:
        write_records(path, [damage(message)])
    else:
        write_records(path, [message])
        path.write_bytes(damage(path.read_bytes()))
    try:
        scenarios = load_scenarios(path)
    except FileError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert np.isfinite(make_bank(scenarios).samples).all()


# Sums over the public record, taken with an independent reader (protobuf); they are checksums, not data.
SUMS = {
    "roadgraph_samples/dir": -139.92410703319104,
    "roadgraph_samples/id": 2854277.0,
    "roadgraph_samples/type": 165343.0,
    "roadgraph_samples/xyz": -15562459.734622955,
    "state/current/bbox_yaw": -112.19044163823128,
    "state/future/length": 19403.521179139614,
    "state/future/timestamp_micros": 25399389404.0,
    "state/future/valid": 5448.0,
    "state/future/velocity_y": -12832.438881993294,
    "state/id": 12347.0,
    "state/past/x": -257210.50955200195,
    "state/tracks_to_predict": 8.0,
    "state/type": 138.0,
    "traffic_light_state/current/x": -3936.858856201172,
    "traffic_light_state/future/state": 3927.0,
    "traffic_light_state/past/id": 23377.0,
}


@real
def test_the_real_example_has_the_recorded_sums():
    (record,) = read_records(WOMD / "motion_data_one_example.tfrecord")
    features = parse_example(record.data)
    assert len(features) == 72
    for name, total in SUMS.items():
        assert float(np.sum(features[name], dtype=np.float64)) == pytest.approx(total, rel=1e-12), name


@real
@pytest.mark.parametrize(
    ("name", "scene", "tracks", "features", "sdc"),
    [
        ("motion_data_one_example.tfrecord", "a3bb37c25ce56418", 128, 254, 8),
        ("motion_data_one_scenario.tfrecord", "637f20cafde22ff8", 83, 301, 82),
        ("womd_scenario_input.tfrecord", "ee519cf571686d19", 257, 215, 256),
    ],
)
def test_the_real_records_load(name, scene, tracks, features, sdc):
    (record,) = read_records(WOMD / name)
    raw = parse_scene(record)
    assert (raw.id, len(raw.tracks.ids), len(raw.map.types), raw.sdc) == (scene, tracks, features, sdc)
    (scenario,) = load_scenarios(WOMD / name)
    assert scenario.reference.length in (180, 181)
    assert len(scenario.boxes) == MAX_BOXES and 0 < len(scenario.edges) <= MAX_EDGES
    assert scenario.features["velocity_error"] < 0.1


@real
def test_plain_and_block_decoding_of_real_protos_agree():
    (record,) = read_records(WOMD / "womd_scenario_input.tfrecord")
    scenario = _scenario_class().FromString(record.data)
    leaves = [state for track in itertools.islice(scenario.tracks, 20) for state in track.states]
    together = decode_leaves(leaves, (2, 3, 8, 11))
    apart = np.concatenate([decode_leaves([message], (2, 3, 8, 11)) for message in leaves])
    np.testing.assert_array_equal(together, apart)
    assert (together[:, 3] == 1).any()


def test_record_errors_survive_pickling_between_processes():
    import pickle

    error = Record("a", 3, 77, b"").error("why")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a: record 3 at byte 77: why" and again.reason == "why"


def test_urls_are_read_through_fsspec():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://scenes/t-00000-of-00001", "wb") as file:
        file.write(b"")
    with pytest.raises(FileError, match="empty file"):
        load_scenarios("memory://scenes/t@1")
    with pytest.raises(FileError, match="empty file"):
        load_scenarios("memory://scenes/t-*")
    with pytest.raises(FileError, match="no such file"):
        load_scenarios("memory://scenes/absent")


def test_urls_without_fsspec_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    for url in ("gs://bucket/file", "gs://bucket/*"):
        with pytest.raises(FileError, match=r"URLs need pip install 's3jax\[cloud\]'"):
            load_scenarios(url)
