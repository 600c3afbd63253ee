"""Against Waymax itself; runs where the real package is installed, and is skipped elsewhere.

Waymax (commit 48b33d7) needs TensorFlow; `s3jax/scenarios/README.md` records the environment and the outcome.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.scenarios.checks import off_road, overlap
from s3jax.scenarios.compact import compact
from s3jax.scenarios.example import parse_example
from s3jax.scenarios.read import parse_scene
from s3jax.scenarios.tfrecord import read_records
from s3jax.scenarios.waymax import (
    WaymaxError,
    from_waymax,
    hand_over,
    load_waymax,
    simulator_state,
    to_waymax,
)
from s3jax.scenarios.womd_writer import write_worlds
from s3jax.scenarios.world_kinds import KINDS, WorldConfig
from s3jax.scenarios.worlds import generate_world

pytestmark = pytest.mark.filterwarnings("ignore")  # TensorFlow's and Waymax's own

WOMD = Path(__file__).parents[3] / "shared" / "data" / "womd"
RECORD = WOMD / "motion_data_one_example.tfrecord"
real = pytest.mark.skipif(not RECORD.is_file(), reason="the real record is not here")


@pytest.fixture(scope="module")
def waymax():
    try:
        load_waymax()
    except WaymaxError as error:
        pytest.skip(str(error))
    import waymax.config
    import waymax.dataloader
    import waymax.metrics

    return waymax


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """One gentle world of each kind, and the file that holds them."""
    made = [generate_world(WorldConfig(), 3, kind) for kind in KINDS]
    path = tmp_path_factory.mktemp("worlds") / "worlds.tfrecord"
    write_worlds(path, made)
    return made, path


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
    from s3jax.scenarios.read import _records

    (record,) = _records(WOMD / name)
    scene = parse_scene(record)
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


@pytest.fixture(scope="module")
def states(worlds):
    made, _ = worlds
    found = [(to_waymax(world.scene, world.route), world.scene) for world in made]
    if RECORD.is_file():
        (record,) = read_records(RECORD)
        found.append((simulator_state(parse_example(record.data)), parse_scene(record)))
    return found


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


def test_a_distilled_model_drives_inside_waymax(waymax, worlds):
    """The model keeps its own state; Waymax records the poses, and they are the model's, exactly."""
    import waymax.dynamics
    import waymax.env

    from s3jax.dynamics.base import rollout
    from s3jax.dynamics.store import make_dynamics
    from s3jax.spatial.state import VehicleState

    made, _ = worlds
    world = made[list(KINDS).index("curve")]
    config = waymax.config.EnvironmentConfig(metrics=waymax.config.MetricsConfig(metrics_to_run=()))
    environment = waymax.env.PlanningAgentEnvironment(waymax.dynamics.StateDynamics(), config)
    model = make_dynamics({"kind": "ddm"})
    params = model.init(jax.random.key(0))
    repeat = round(0.1 / model.dt)
    controls = jnp.tile(jnp.array([[0.1, 0.3]]), (repeat, 1))

    @jax.jit
    def run(state, car):
        state = environment.reset(state)
        carry = model.reset(params, car)

        def step(carry, _):
            carry, state = carry
            carry, driven = rollout(model, params, carry, controls, jnp.ones((repeat, 2)))
            car = jax.tree.map(lambda field: field[-1], driven)
            return (carry, hand_over(environment, state, car)), car

        (_, state), cars = jax.lax.scan(step, (carry, state), None, length=80)
        return state, cars

    state = jax.tree.map(jnp.asarray, to_waymax(world.scene, world.route))
    log = state.log_trajectory
    car = VehicleState(
        log.x[0, 10],
        log.y[0, 10],
        log.yaw[0, 10],
        jnp.hypot(log.vel_x[0, 10], log.vel_y[0, 10]),
        *jnp.zeros(3),
    )
    final, cars = run(state, car)
    ego = jax.tree.map(lambda field: np.asarray(field)[0, 11:], final.sim_trajectory)
    np.testing.assert_allclose(ego.x, cars.x, atol=1e-5)
    np.testing.assert_allclose(np.hypot(ego.vel_x, ego.vel_y), np.hypot(cars.vx, cars.vy), atol=1e-4)
    assert np.abs(np.asarray(cars.vy)).max() > 0.01  # side slip, which Waymax's own bicycle sets to zero
