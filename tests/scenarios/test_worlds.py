"""Procedural worlds: reproducible, on the road, free of overlaps, feasible, and readable as records."""

import itertools
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.config import ConfigError
from s3jax.errors import UserError
from s3jax.scenarios.build import _side_by_side, build_worlds
from s3jax.scenarios.checks import off_road, overlap
from s3jax.scenarios.compact import compact
from s3jax.scenarios.load import load_scenarios
from s3jax.scenarios.raw import CYCLIST, PEDESTRIAN, SceneError
from s3jax.scenarios.store import ScenarioStore
from s3jax.scenarios.womd_writer import features_from_scene, write_worlds
from s3jax.scenarios.world_kinds import KINDS, WorldConfig
from s3jax.scenarios.worlds import generate_world
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.friction import friction_at

GENTLE = WorldConfig()
LIMIT = WorldConfig.load(Path(__file__).parents[2] / "configs" / "scenarios" / "limit.yaml")
DRY = LIMIT.model_copy(update={"surfaces": ((1.0, 1.0),)})


def boxes(scene, rows=slice(None)):
    tracks = scene.tracks
    return np.stack(
        [field[rows] for field in (tracks.x, tracks.y, tracks.yaw, tracks.length, tracks.width)], axis=-1
    )


def test_overlap_of_boxes():
    box = np.array([0.0, 0.0, 0.0, 4.0, 2.0])
    for other, expected in (
        ([3.9, 0, 0, 4, 2], True),
        ([4.1, 0, 0, 4, 2], False),
        ([4.0, 0, 0, 4, 2], False),  # touching
        ([0, 0, 0.3, 1, 1], True),  # inside
        ([2.9, 1.9, np.pi / 4, 2, 2], False),  # near a corner, across its diagonal
        ([2.4, 1.4, np.pi / 4, 2, 2], True),
        ([0, 2.9, np.pi / 2, 4, 2], True),
        ([0, 3.1, np.pi / 2, 4, 2], False),
    ):
        assert overlap(box, np.array(other)) == overlap(np.array(other), box) == expected, other


def test_off_road_is_right_of_the_nearest_edge():
    road = np.array([[0.0, -2, 50, -2], [50, 2, 0, 2]])
    for y, out in ((0.5, False), (1.5, True), (-4.5, True), (90.0, False)):  # the last is too far to tell
        assert off_road(np.array([25.0, y, 0.05, 4.8, 2.0]), road) == out, y
    island = np.array([[0.0, 0, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 0, 0]])[
        :, [2, 3, 0, 1]
    ]  # clockwise
    for x, y, out in ((0.5, 0.5, True), (1.4, 0.5, False), (1.3, 1.3, False), (-0.3, -0.3, False)):
        assert off_road(np.array([x, y, 0.3, 0.2, 0.2]), island) == out, (x, y)


@pytest.mark.parametrize("config", [GENTLE, LIMIT], ids=["gentle", "limit"])
@pytest.mark.parametrize("kind", KINDS)
def test_worlds_are_clean(kind, config):
    for seed in range(4):
        world = generate_world(config, seed, kind)
        scene, tracks = world.scene, world.scene.tracks
        scenario = compact(scene, 0.05, "test")
        assert tracks.valid[0].all() and scenario.reference.length == 181
        ego = boxes(scene, 0) - [*scenario.origin, 0, 0, 0]
        assert not off_road(ego, scenario.edges).any(), f"{kind} {seed}: off the road"
        every = boxes(scene)
        for a, b in itertools.combinations(range(len(every)), 2):
            near = np.hypot(*(every[a, :, :2] - every[b, :, :2]).T) < 10
            both = near & tracks.valid[a] & tracks.valid[b]
            assert not overlap(every[a, both], every[b, both]).any(), f"{kind} {seed}: {a} and {b} overlap"
        # Waymax calls more than 10.4 m/s^2 or 0.3 1/m infeasible.
        speed = np.hypot(tracks.vx, tracks.vy)
        steady = tracks.valid[:, 1:] & tracks.valid[:, :-1]
        assert np.abs(np.diff(speed, axis=1) / 0.1)[steady].max() < 10.4
        turn, way = (
            np.abs(wrap_angle(np.diff(tracks.yaw[0]))),
            np.hypot(np.diff(tracks.x[0]), np.diff(tracks.y[0])),
        )
        assert (turn <= 0.3 * way + 1e-9).all()
        assert scenario.features["velocity_error"] < 1.0


def test_worlds_repeat_with_the_seed():
    for kind in KINDS:
        one, two = (generate_world(LIMIT, 7, kind) for _ in range(2))
        for a, b in zip(
            [*one.scene.tracks, *one.scene.map], [*two.scene.tracks, *two.scene.map], strict=True
        ):
            np.testing.assert_array_equal(a, b)
    different = [generate_world(GENTLE, seed).scene.id for seed in range(40)]
    assert len({name.rsplit("_", 1)[0] for name in different}) > 6


def test_traffic_and_manoeuvres_are_what_the_kind_says():
    def some(kind, config=GENTLE, count=12):
        return [compact(generate_world(config, seed, kind).scene, 0.05, "t") for seed in range(count)]

    assert max(s.features["min_accel"] for s in some("brake", DRY)) < -3
    assert min(s.features["heading_change"] for s in some("u_turn", LIMIT)) > 0.5
    assert sum(s.features["lane_offset"] > 2 for s in some("lane_change", LIMIT)) >= 8
    assert sum(s.features["lead_share"] > 0.9 for s in some("stop_and_go")) >= 10
    assert sum(s.features["light_lanes"] > 0 for s in some("wait")) >= 10
    assert all(s.reference.samples[180, 3] < 1.0 for s in some("wait"))
    lefts, rights = some("left", LIMIT), some("right", LIMIT)
    assert np.median([s.features["heading_change"] for s in lefts]) > 0.8
    assert np.median([s.features["heading_change"] for s in rights]) < -0.8
    types = np.concatenate([s.box_types for s in some("straight", count=20)])
    assert (types == PEDESTRIAN).any() and (types == CYCLIST).any()


def test_ice_lies_on_the_way_and_the_ego_car_respects_it():
    config = DRY.model_copy(update={"patches": 1.0})
    met = 0
    for seed in range(30):
        scenario = compact(generate_world(config, seed).scene, 0.05, "t")
        x, y, _, speed, curvature = scenario.reference.samples[:181].T
        icy = friction_at(scenario.friction, x, y) < 0.5
        met += icy.any()
        assert np.abs(speed**2 * curvature)[icy].max(initial=0) < 9.81 * 0.3 + 0.2, scenario.id
    assert met > 20


def test_no_reference_asks_for_more_grip_than_the_road_has():
    for seed in range(60):
        world = generate_world(LIMIT, seed)
        tracks = world.scene.tracks
        speed, yaw = np.hypot(tracks.vx[0], tracks.vy[0]), np.unwrap(tracks.yaw[0])
        rate, turn = np.diff(speed) / 0.1, (speed[1:] + speed[:-1]) / 2 * np.diff(yaw) / 0.1
        under = friction_at(world.scene.friction, tracks.x[0], tracks.y[0])
        grip = 9.81 * np.minimum(under[1:], under[:-1])
        assert (np.hypot(rate, turn) < grip * 1.05).all(), world.scene.id


def test_records_read_back_as_they_were_written(tmp_path):
    worlds = [generate_world(LIMIT, seed) for seed in range(6)]
    write_worlds(tmp_path / "w.tfrecord", worlds)
    read = load_scenarios(tmp_path / "w.tfrecord")
    for world, two in zip(worlds, read, strict=True):
        one = compact(world.scene, 0.05, "t")
        gap = two.reference.samples[:181, :4] - one.reference.samples[:181, :4]
        gap[:, 2] = wrap_angle(gap[:, 2])
        assert np.abs(gap).max() < 1e-3
        assert len(two.boxes) == len(one.boxes) and np.isnan(two.boxes).sum() == np.isnan(one.boxes).sum()
        np.testing.assert_allclose(two.friction.polygons, one.friction.polygons, atol=1e-3)
        np.testing.assert_allclose(
            [two.friction.base, *two.friction.values], [one.friction.base, *one.friction.values], rtol=1e-6
        )
        for name in ("light_lanes", "crosswalk_gap", "pedestrian_gap", "lead_share", "path_length"):
            assert two.features[name] == pytest.approx(one.features[name], abs=0.6), name
    features = features_from_scene(worlds[0].scene, worlds[0].route)
    assert features["roadgraph_samples/xyz"].shape == (20_000, 3) and features["state/future/x"].shape == (
        128,
        80,
    )
    assert features["path_samples/on_route"][0] == 1 and features["path_samples/valid"][0].sum() > 50


def test_only_scenes_of_91_steps_become_records():
    world = generate_world(GENTLE, 0)
    short = world.scene.__class__(**{**vars(world.scene), "time": world.scene.time[:50]})
    with pytest.raises(SceneError, match="91 steps"):
        features_from_scene(short, world.route)


def test_worlds_fill_a_store_that_goes_on_after_an_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr("s3jax.scenarios.build._GROUP_WORLDS", 3)
    summary = build_worlds(GENTLE, 8, tmp_path / "store", seed=5, workers=2)
    assert (summary.scenarios, summary.reused, summary.shards) == (8, 0, 3)
    store = ScenarioStore(tmp_path / "store")
    assert [store[i].id[-6:] for i in range(8)] == [f"{seed:06d}" for seed in range(5, 13)]
    (tmp_path / "store" / "shard-00001.json").unlink()
    assert build_worlds(GENTLE, 8, tmp_path / "store", seed=5, workers=1).reused == 2
    assert build_worlds(LIMIT, 8, tmp_path / "store", seed=5, workers=1).reused == 0
    assert len(load_scenarios(tmp_path / "store")) == 8
    with pytest.raises(FileError, match="dt"):
        build_worlds(GENTLE, 8, tmp_path / "store", dt=0.1, workers=1)


def test_a_worker_that_dies_is_an_error_in_one_line():
    with pytest.raises(UserError, match="a worker process died"):
        list(_side_by_side([(0, partial(os._exit, 1))], workers=1))


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match="did you mean roundabout"):
        WorldConfig.parse({"mix": {"roundabot": 1.0}})
    with pytest.raises(ConfigError, match="not all zero"):
        WorldConfig.parse({"mix": {"left": 0.0}})
