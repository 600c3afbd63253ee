"""The store: compact, exact within its resolution, resumable; and choosing from it by tag."""

import json
from pathlib import Path

import numpy as np
import pytest
from test_load_scenarios import small_features
from test_womd_json import scene

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.scenarios.build import build
from s3jax.scenarios.example import encode_example
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.record import pack, record_type, unpack
from s3jax.scenarios.store import ScenarioStore
from s3jax.scenarios.tags import FEATURES, TAGS, select, table
from s3jax.scenarios.tfrecord import RecordError, write_records

WOMD = Path(__file__).parents[3] / "shared" / "data" / "womd"


@pytest.fixture
def files(tmp_path):
    """Three files: two records, one bad; a JSON scene; a truncated file."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_records(folder / "a", [encode_example(small_features()), b"bad"])
    (folder / "b.json").write_text(json.dumps(scene()))
    write_records(folder / "c", [encode_example(small_features(speed=0.0))])
    (folder / "c").write_bytes((folder / "c").read_bytes()[:-9])
    return folder / "*"


def equal(one, two):
    np.testing.assert_allclose(two.reference.samples, one.reference.samples, atol=2e-5)
    assert two.reference[1:] == one.reference[1:]
    np.testing.assert_array_equal(two.origin, one.origin)
    np.testing.assert_allclose(two.edges, one.edges, atol=0.0052)
    np.testing.assert_allclose(two.lanes, one.lanes, atol=0.0052)
    assert np.isnan(two.boxes).sum() == np.isnan(one.boxes).sum()
    gap = two.boxes - one.boxes
    gap[..., 2] = (gap[..., 2] + np.pi) % (2 * np.pi) - np.pi
    assert np.nanmax(np.abs(gap), initial=0) < 0.0052
    assert np.nanmax(np.abs(gap[..., 2]), initial=0) < 6e-5
    np.testing.assert_array_equal(two.box_types, one.box_types)
    np.testing.assert_array_equal(two.light_states, one.light_states)
    for name in FEATURES:
        np.testing.assert_allclose(two.features[name], one.features.get(name, np.nan), rtol=1e-6)


def test_a_record_is_small_and_keeps_the_scenario(tmp_path):
    assert record_type(0.05).itemsize <= 64 * 1024
    write_records(tmp_path / "a", [encode_example(small_features(objects=90))])
    (scenario,) = load_scenarios(tmp_path / "a")
    equal(scenario, unpack(pack(scenario), 0.05))
    for task in generate(ProceduralConfig(count=30), seed=2):
        again = unpack(pack(task), 0.05)
        equal(task, again)
        np.testing.assert_allclose(again.friction.polygons, task.friction.polygons, atol=1e-4)
        np.testing.assert_allclose(again.friction.values, task.friction.values, rtol=1e-6)


def test_wide_scenes_lose_resolution_not_range(tmp_path):
    features = small_features(objects=3, speed=70.0)
    write_records(tmp_path / "a", [encode_example(features)])
    (scenario,) = load_scenarios(tmp_path / "a")
    again = unpack(pack(scenario), 0.05)
    assert scenario.boxes[0, -1, 0] > 600
    np.testing.assert_allclose(again.boxes[..., 0], scenario.boxes[..., 0], atol=0.011)


def test_build_counts_errors_and_the_store_loads_like_the_files(files, tmp_path):
    summary = build(files, tmp_path / "store", workers=1)
    assert (summary.scenarios, len(summary.errors), summary.reused) == (2, 2, 0)
    assert "record 1 at byte" in summary.errors[0] and "truncated" in summary.errors[1]
    errors = []
    direct = load_scenarios(files, on_error=errors.append)
    assert [str(error) for error in errors] == summary.errors
    for one, two in zip(direct, load_scenarios(tmp_path / "store"), strict=True):
        assert (one.id, one.source) == (two.id, two.source)
        equal(one, two)


def test_an_interrupted_build_goes_on(files, tmp_path, monkeypatch):
    monkeypatch.setattr("s3jax.scenarios.build._GROUP_FILES", 1)
    calls = []
    build(
        files,
        tmp_path / "store",
        workers=1,
        progress=lambda done, total, note="": calls.append((done, total)),
    )
    assert calls[0] == (0, 3) and calls[-1] == (3, 3)
    (tmp_path / "store" / "index.npz").unlink()
    (tmp_path / "store" / "shard-00001.json").unlink()
    summary = build(files, tmp_path / "store", workers=1)
    assert (summary.scenarios, summary.reused, summary.shards) == (2, 2, 3)
    # A file that has changed is read again.
    (tmp_path / "in" / "b.json").write_text(json.dumps(scene(name="other")))
    assert build(files, tmp_path / "store", workers=1).reused == 2
    assert [s.id for s in load_scenarios(tmp_path / "store")] == ["small", "other"]


def test_strict_builds_raise_the_first_error(files, tmp_path):
    with pytest.raises(RecordError, match="record 1 at byte"):
        build(files, tmp_path / "store", workers=1, strict=True)


def test_mismatched_and_damaged_stores_are_refused(files, tmp_path):
    store = tmp_path / "store"
    build(files, store, workers=1)
    with pytest.raises(FileError, match=r"dt = 0\.05 s, not 0\.1 s"):
        build(files, store, dt=0.1, workers=1)
    with pytest.raises(FileError, match=r"dt = 0\.05 s, 0\.1 s is needed"):
        load_scenarios(store, dt=0.1)
    shard = store / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(FileError, match="shard-00000"):
        load_scenarios(store)
    with pytest.raises(FileError, match="no such file"):
        ScenarioStore(tmp_path / "in")


def test_tags_choose_scenarios():
    tasks = generate(ProceduralConfig(count=300), seed=1)
    numbers = table(tasks)
    turns = select(numbers, ["left_turn", "right_turn"], [])
    assert (turns == (TAGS["left_turn"].test(numbers) | TAGS["right_turn"].test(numbers))).all()
    dry = select(numbers, ["left_turn"], ["stop_and_go"])
    assert 0 < dry.sum() < turns.sum() and not (dry & TAGS["stop_and_go"].test(numbers)).any()
    assert select(numbers, [], []).all()
    # The hardest 5 % are 5 % whatever the set.
    assert TAGS["hard_brake_rel"].test(numbers).sum() == pytest.approx(15, abs=1)
    with pytest.raises(ConfigError, match="did you mean left_turn, "):
        select(numbers, ["leftturn"], [])


@pytest.mark.parametrize(
    ("tag", "yes", "no"),
    [
        ("hard_brake", {"brake_3_time": 0.3}, {"brake_3_time": 0.2}),
        ("stationary", {"path_length": 2.9}, {"path_length": 3.0}),
        ("u_turn", {"heading_change": -2.5}, {"heading_change": -2.2}),
        ("right_turn", {"heading_change": -0.6}, {"heading_change": 0.6}),
        ("pedestrian_near", {"pedestrian_gap": 14.0}, {"pedestrian_gap": np.inf}),
        ("close_following", {"lead_share": 0.6, "headway": 1.4}, {"lead_share": 0.6, "headway": 1.6}),
        ("stop_and_go", {"stopped_time": 1.0, "max_speed": 3.0}, {"stopped_time": 9.0, "max_speed": 0.4}),
    ],
)
def test_tag_thresholds(tag, yes, no):
    for values, expected in ((yes, True), (no, False), ({}, False)):
        numbers = {name: np.array([values.get(name, np.nan)]) for name in FEATURES}
        assert TAGS[tag].test(numbers).tolist() == [expected]


@pytest.mark.skipif(not WOMD.is_dir(), reason="the real scenes are not here")
def test_every_real_file_goes_into_a_store(tmp_path):
    summary = build(WOMD / "*", tmp_path / "store")
    assert (summary.scenarios, summary.errors) == (16, [])
    for one, two in zip(load_scenarios(WOMD / "*"), load_scenarios(tmp_path / "store"), strict=True):
        equal(one, two)
