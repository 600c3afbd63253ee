"""Against Waymax itself; runs where the real package is installed, and is skipped elsewhere.

Waymax (commit 48b33d7) needs TensorFlow; `s3jax/scenarios/README.md` records the environment and the outcome.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from real_data import RECORD, WOMD

from s3jax.scenarios.checks import off_road, overlap
from s3jax.scenarios.compact import compact
from s3jax.scenarios.example import parse_example
from s3jax.scenarios.read import parse_scene, read_scenes
from s3jax.scenarios.tfrecord import read_records
from s3jax.scenarios.waymax import from_waymax, simulator_state, to_waymax
from s3jax.scenarios.world_kinds import KINDS

pytestmark = pytest.mark.filterwarnings("ignore")  # TensorFlow's and Waymax's own
real = pytest.mark.skipif(not RECORD.is_file(), reason="the real record is not here")


def load(waymax, path, **options):
    config = waymax.config.DatasetConfig(path=str(path), max_num_rg_points=20_000, repeat=1, **options)
    return list(waymax.dataloader.simulator_state_generator(config))


def same(ours, theirs):
    """Every array equal in shape, type and value; returns how many there are."""
    ours, theirs = (jax.tree_util.tree_flatten_with_path(tree)[0] for tree in (ours, theirs))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    for (path, one), (_, two) in zip(ours, theirs, strict=True):
        one, two = np.asarray(one), np.asarray(two)
        name = jax.tree_util.keystr(path)
        assert (one.shape, one.dtype) == (two.shape, two.dtype), name
        # Mean sizes are summed in another order, in float32.
        tolerance = 3e-6 if name.endswith(("length", "width", "height")) else 0
        np.testing.assert_allclose(one, two, rtol=0, atol=tolerance, err_msg=name)
    return len(ours)


@real
def test_the_real_record_equals_what_waymax_loads(waymax):
    (theirs,) = load(waymax, RECORD)
    (record,) = read_records(RECORD)
    assert same(simulator_state(parse_example(record.data)), theirs) == 45


def test_worlds_equal_what_waymax_loads_with_their_routes(waymax, worlds):
    _, path = worlds
    states = load(waymax, path, include_sdc_paths=True, num_paths=10, num_points_per_path=300)
    for record, theirs in zip(read_records(path), states, strict=True):
        assert same(simulator_state(parse_example(record.data)), theirs) == 52


@real
def test_a_scenario_comes_back_from_waymax(waymax):
    (record,) = read_records(RECORD)
    direct = compact(parse_scene(record), 0.1, "file")
    (state,) = load(waymax, RECORD)
    back = from_waymax(state, 0.1)
    np.testing.assert_allclose(back.reference.samples, direct.reference.samples, atol=1e-5)
    np.testing.assert_allclose(back.boxes, direct.boxes, atol=1e-5)
    np.testing.assert_array_equal(back.edges, direct.edges)
    assert back.features["light_lanes"] == direct.features["light_lanes"]


@real
@pytest.mark.parametrize("name", ["motion_data_one_scenario.tfrecord", "straight.json", "many_objects.json"])
def test_other_forms_run_in_waymax(waymax, name):
    ((_, scene),) = read_scenes(WOMD / name)
    state = to_waymax(scene)
    assert bool(state.log_trajectory.valid[np.argmax(state.object_metadata.is_sdc)].all())
    back = from_waymax(state)
    np.testing.assert_allclose(back.origin, compact(scene, 0.05, "x").origin, atol=2e-3)


def displaced(state, rng, size):
    """The log at a random step, every object moved and turned: some collide, some leave the road."""
    step = int(rng.integers(0, 91))
    log = state.log_trajectory
    shape = log.x.shape
    moved = log.replace(
        x=log.x + rng.normal(0, size, shape).astype(np.float32),
        y=log.y + rng.normal(0, size, shape).astype(np.float32),
        yaw=log.yaw + rng.normal(0, 0.4, shape).astype(np.float32),
    )
    return state.replace(sim_trajectory=moved, timestep=jnp.int32(step)), step


def boxes(trajectory, step, origin):
    fields = (
        trajectory.x - origin[0],
        trajectory.y - origin[1],
        trajectory.yaw,
        trajectory.length,
        trajectory.width,
    )
    return np.stack([np.asarray(field)[:, step] for field in fields], axis=-1).astype(float)


def test_overlap_equals_waymax(waymax, states):
    compute = jax.jit(waymax.metrics.OverlapMetric().compute)
    rng = np.random.default_rng(0)
    seen, hits, differ = 0, 0, 0
    for state, _ in states:
        for _ in range(4):
            moved, step = displaced(state, rng, 2.0)
            theirs = compute(moved)
            valid = np.asarray(theirs.valid)
            every = boxes(
                moved.sim_trajectory,
                step,
                (float(state.log_trajectory.x[0, 0]), float(state.log_trajectory.y[0, 0])),
            )
            pairs = overlap(every[:, None], every[None]) & valid & ~np.eye(len(every), dtype=bool)
            ours, expected = pairs.any(axis=1)[valid], np.asarray(theirs.value)[valid] > 0
            seen, hits, differ = seen + len(ours), hits + expected.sum(), differ + (ours != expected).sum()
    print(f"overlap: {seen} boxes, {hits} overlap, {differ} differ")
    # Ours is computed in float64; a box that touches another within float32 may fall either way.
    assert hits > 100 and differ <= 0.001 * seen


def test_off_road_agrees_with_waymax(waymax, states):
    """Waymax measures to the nearest point of an edge, we to the nearest segment; corners may differ."""
    compute = jax.jit(waymax.metrics.OffroadMetric().compute)
    rng = np.random.default_rng(1)
    seen, out, differ = 0, 0, 0
    for state, scene in states:
        edges = compact(scene, 0.05, "x").edges.astype(float)
        origin = np.array([scene.tracks.x[scene.sdc, 0], scene.tracks.y[scene.sdc, 0]])
        row = int(np.argmax(state.object_metadata.is_sdc))
        for _ in range(6):
            moved, step = displaced(state, rng, 4.0)
            expected = bool(np.asarray(compute(moved).value)[row] > 0)
            ours = bool(off_road(boxes(moved.sim_trajectory, step, origin)[row], edges))
            seen, out, differ = seen + 1, out + expected, differ + (ours != expected)
    print(f"off-road: {seen} ego poses, {out} off the road, {differ} differ")
    assert out >= 20 and differ <= 0.05 * seen


def test_worlds_are_clean_in_waymax(waymax, states):
    names = ("overlap", "offroad", "kinematic_infeasibility", "sdc_wrongway", "sdc_off_route")
    config = waymax.config.MetricsConfig(metrics_to_run=names)

    @jax.jit
    def measure(state, step):
        now = state.replace(sim_trajectory=state.log_trajectory, timestep=step)
        return waymax.metrics.run_metrics(now, config)

    for state, scene in states[: len(KINDS)]:
        for step in (1, 30, 60, 90):
            for name, result in measure(state, jnp.int32(step)).items():
                value, valid = (np.atleast_1d(np.asarray(part)) for part in (result.value, result.valid))
                assert not (value[:1][valid[:1]] > 0).any(), f"{scene.id}: {name} at step {step}"
