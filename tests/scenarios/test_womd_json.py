"""GPUDrive and Nocturne JSON: every generation, damaged files, real ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s3jax.archive import FileError
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.tfrecord import RecordError
from s3jax.scenarios.womd_json import scene_from_json

WOMD = Path(__file__).parents[3] / "shared" / "data" / "womd"


def scene(degrees=False, ids=True, steps=91, speed=5.0, metadata=True, **changes):
    """Two cars driving at 0.5 rad, the second one the ego car."""
    time = np.arange(steps) * 0.1
    objects = []
    for row in range(2):
        x, y = 100 + 6 * row + np.cos(0.5) * speed * time, 50 + np.sin(0.5) * speed * time
        item = {
            "position": [{"x": a, "y": b} for a, b in zip(x, y, strict=True)],
            "width": 2.0,
            "length": 4.6,
            "heading": [float(np.rad2deg(0.5)) if degrees else 0.5] * steps,
            "velocity": [{"x": np.cos(0.5) * speed, "y": np.sin(0.5) * speed}] * steps,
            "valid": [True] * steps,
            "type": "vehicle",
        }
        objects.append(item | ({"id": row + 7} if ids else {}))
    roads = [
        {"type": "road_edge", "geometry": [{"x": 90.0 + i, "y": 45.0} for i in range(40)]},
        {"type": "stop_sign", "geometry": {"x": 101.0, "y": 51.0}},
    ]
    lights = {"12": {"state": ["stop"] * 3, "x": [100.0] * 3, "y": [50.0] * 3, "time_index": [0, 1, 2]}}
    text = {"name": "tfrecord-1_2.json", "objects": objects, "roads": roads, "tl_states": lights}
    return text | ({"metadata": {"sdc_track_index": 1}} if metadata else {}) | changes


def save(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("degrees", [True, False])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("metadata", [True, False])
def test_every_generation_gives_the_same_scenario(tmp_path, degrees, ids, metadata):
    """The headings' unit follows the cars' motion, also where it is not the one of the file's generation."""
    (scenario,) = load_scenarios(save(tmp_path / "a.json", scene(degrees, ids, metadata=metadata)))
    assert scenario.id == "tfrecord-1_2" and scenario.reference.length == 181
    np.testing.assert_allclose(scenario.reference.samples[:, 2], 0.5, atol=1e-9)
    np.testing.assert_allclose(scenario.reference.samples[:, 3], 5.0, atol=1e-9)
    np.testing.assert_allclose(scenario.origin, [106, 50])
    assert scenario.boxes.shape == (1, 91, 4) and len(scenario.edges) == 1
    assert scenario.features["stop_sign_gap"] < 6
    assert scenario.light_states[0, :4].tolist() == [4, 4, 4, -1]


@pytest.mark.parametrize(("ids", "yaw"), [(False, np.deg2rad(0.5)), (True, 0.5)])
def test_the_unit_follows_the_generation_where_nothing_moves(ids, yaw):
    raw = scene_from_json(json.dumps(scene(ids=ids, speed=0.0)).encode())
    np.testing.assert_allclose(raw.tracks.yaw, yaw)


def test_unseen_steps_are_not_read_as_positions(tmp_path):
    text = scene()
    for step in range(40):
        text["objects"][0]["position"][step] = {"x": -10000.0, "y": -10000.0}
        text["objects"][0]["valid"][step] = step < 20  # some files say valid all the same
    (scenario,) = load_scenarios(save(tmp_path / "a.json", text))
    assert np.isnan(scenario.boxes[0, :40]).all() and np.isfinite(scenario.boxes[0, 40:]).all()


def test_far_coordinates_are_not_taken_for_unseen(tmp_path):
    text = scene()
    for item in text["objects"]:
        for point in item["position"]:
            point["x"] -= 13000
    (scenario,) = load_scenarios(save(tmp_path / "a.json", text))
    assert scenario.reference.length == 181


def _without(name):
    text = scene()
    del text["objects"][1][name]
    return text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"objects": [', "not valid JSON"),
        ("{}", "not a GPUDrive or Nocturne scene"),
        ("[" * 100000, "wrong length checksum|not valid JSON"),
        ('{"a":' * 100000, "not valid JSON"),
        (scene(objects=[]), "no objects"),
        (scene(objects=3), "not a GPUDrive or Nocturne scene"),
        (_without("heading"), "field 'heading' is missing"),
        (_without("valid"), "field 'valid' is missing"),
        (scene() | {"metadata": {"sdc_track_index": 9}}, "no ego car"),
        (scene() | {"metadata": {"sdc_track_index": "first"}}, "malformed GPUDrive JSON"),
        (scene(roads=[{"type": "lane"}]), "field 'geometry' is missing"),
        (scene(steps=11), "valid for only 11 steps"),
        (scene(steps=0), "no time steps"),
    ],
)
def test_unusable_files_are_named(tmp_path, value, reason):
    path = save(tmp_path / "a.json", value)
    with pytest.raises(RecordError, match=reason) as caught:
        load_scenarios(path)
    assert f"{path}: record 0 at byte 0: " in str(caught.value) and "\n" not in str(caught.value)


TEXT = json.dumps(scene()).encode()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(TEXT) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_text_gives_a_scenario_or_a_one_line_error(tmp_path, changes):
    data = bytearray(TEXT)
    for place, value in changes:
        data[place] = value
    path = tmp_path / "a.json"
    path.write_bytes(data)
    try:
        (scenario,) = load_scenarios(path)
    except FileError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert np.isfinite(scenario.reference.samples).all()


@pytest.mark.skipif(not WOMD.is_dir(), reason="the real scenes are not here")
@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("brake", "brake straight"),
        ("high_speed", "high_speed"),
        ("lead", "close_following"),
        ("left", "left_turn"),
        ("many_objects", "stationary pedestrian_near"),
        ("older_layout", "left_turn"),
        ("peds", "pedestrian_near"),
        ("right", "right_turn"),
        ("stop_go", "stop_and_go"),
        ("stopped", "stationary"),
        ("straight", "straight"),
        ("traffic_light", "traffic_light"),
        ("uturn_or_high_lat", "high_lateral"),
    ],
)
def test_real_scenes_have_the_tags_that_they_are_named_for(name, tags):
    (scenario,) = load_scenarios(WOMD / f"{name}.json", only=[tags.split()[0]])
    for tag in tags.split():
        assert load_scenarios(WOMD / f"{name}.json", only=[tag])
    # Positions, speeds and headings of the log agree, so units and frames are right.
    assert scenario.features["velocity_error"] < 0.2
