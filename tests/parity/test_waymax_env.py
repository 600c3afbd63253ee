"""Training inside Waymax: its environment step by step, every kind of model, the whole stage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.dynamics.store import make_dynamics
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.scenarios.bank import make_bank
from s3jax.scenarios.stream import ScenarioConfig

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = [
    {"kind": "bicycle"},
    {"kind": "single_track"},
    {"kind": "ddm"},
    {"kind": "transformer"},
    {"kind": "dytr"},
    {"kind": "ensemble", "size": 2},
]


def make(kind=None, **changes):
    from s3jax.waymax.env import WaymaxEnv

    return WaymaxEnv(EnvConfig.parse({"kind": "waymax", **changes}), make_dynamics(kind or {"kind": "ddm"}))


@pytest.fixture(scope="module")
def bank(waymax, worlds):
    from s3jax.waymax.config import WaymaxConfig
    from s3jax.waymax.scenes import SceneSet

    config = ScenarioConfig(files=(str(worlds[1]),))
    return jax.tree.map(jnp.asarray, SceneSet(config, WaymaxConfig(), 0.05).bank())


def world_of(env, bank):
    return World(bank, env.model.init(jax.random.key(0)))


def drive(env, world, states, action, steps):
    """Steps environments with one action; returns the results, leaves [T, N, ...]."""

    @jax.jit
    def run(world, states):
        def body(states, _):
            step = env.step_many(world, states, jnp.broadcast_to(jnp.asarray(action), (count, 2)))
            return step.state, step

        count = states.timestep.shape[0]
        return jax.lax.scan(body, states, None, length=steps)[1]

    return run(world, states)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
def test_every_kind_of_model_drives_inside_waymax(bank, kind):
    """Its memory is its own; Waymax records its poses, moves the others as in the log, and measures."""
    env = make(kind)
    world, scenes = world_of(env, bank), jnp.arange(4)
    states, observation = jax.jit(env.start_many)(world, scenes)
    assert observation.shape == (4, env.observation_size)
    result = drive(env, world, states, (0.05, 0.1), 40)
    sim, car, log = result.state.trajectory, result.state.tracking.vehicle, bank.states.log_trajectory
    assert np.isfinite(result.observation).all() and np.isfinite(result.reward).all()
    np.testing.assert_array_equal(np.asarray(result.state.timestep)[:, 0], 10 + np.arange(1, 41) // 2)
    for scene in range(4):
        driven = sim.x[-1, scene, 0, 11:31], sim.y[-1, scene, 0, 11:31]
        np.testing.assert_allclose(driven, (car.x[1::2, scene], car.y[1::2, scene]), atol=1e-5)
        speed = jnp.hypot(sim.vel_x[-1, scene, 0, 11:31], sim.vel_y[-1, scene, 0, 11:31])
        np.testing.assert_allclose(speed, jnp.hypot(car.vx, car.vy)[1::2, scene], atol=1e-4)
        seen = log.valid[scene, 1:, 11:31]
        np.testing.assert_array_equal(sim.valid[-1, scene, 1:, 11:31], seen)
        np.testing.assert_array_equal(sim.x[-1, scene, 1:, 11:31][seen], log.x[scene, 1:, 11:31][seen])


def test_a_reset_is_waymax_s_own_at_the_step_it_starts_at(waymax, bank):
    """Waymax's environment with `init_steps` gives the same state, but for where we put the ego car."""
    env = make(start={"cross_track": 0, "heading": 0, "speed": 0, "along": 0.6})
    world, count = world_of(env, bank), 32
    keys = jax.random.split(jax.random.key(0), count)
    states, _ = jax.jit(lambda world: env.reset_many(world, keys, jnp.zeros(count, int), 1))(world)
    starts = np.asarray(states.timestep)
    assert len(set(starts)) > 8 and starts.min() >= 10
    for i in range(4):
        config = waymax.config.EnvironmentConfig(init_steps=int(starts[i]) + 1, max_num_objects=32)
        theirs = waymax.env.PlanningAgentEnvironment(waymax.dynamics.StateDynamics(), config)
        scene = jax.tree.map(lambda rows, i=i: rows[states.tracking.scenario[i]], bank.states)
        theirs = theirs.reset(waymax.env.PlanningAgentSimulatorState(**scene))
        assert int(theirs.timestep) == starts[i]
        ours = jax.tree.map(lambda values, i=i: values[i], states.trajectory)
        # Position and speed on the resampled reference are those of the log to within its clock's jitter.
        np.testing.assert_allclose(ours.x[0], theirs.sim_trajectory.x[0], atol=0.02)
        for name, values in ours.items():
            np.testing.assert_array_equal(values[1:], theirs.sim_trajectory[name][1:], err_msg=name)
            if name not in ("x", "y", "yaw", "vel_x", "vel_y"):
                np.testing.assert_array_equal(values, theirs.sim_trajectory[name], err_msg=name)


def test_metrics_are_those_of_the_whole_scene(waymax, worlds):
    """Cutting objects and road points and looking at the ego car alone changes none of Waymax's metrics."""
    from s3jax.scenarios.waymax import to_waymax
    from s3jax.waymax.config import WaymaxConfig
    from s3jax.waymax.scenes import SceneBank, make_scene

    names = ("log_divergence", "overlap", "offroad", "kinematic_infeasibility")
    costs = dict.fromkeys(names, 1.0)
    env = make(waymax={"costs": costs, "terminate": []}, termination={"cross_track": 1e3, "heading": 9})
    config = waymax.config.MetricsConfig(metrics_to_run=names)
    everything = jax.jit(lambda state: waymax.metrics.run_metrics(state, config))
    seen = np.zeros(2, int)
    for kind, action in (("left", (0.0, 0.3)), ("through", (-0.3, 0.1)), ("right", (0.3, 0.2))):
        made = next(world for world in worlds[0] if world.kind == kind)
        full = to_waymax(made.scene, made.route)
        scene = make_scene(made.scene, full, 0.05, WaymaxConfig(), kind)
        state = jax.tree.map(lambda values: jnp.asarray(values)[None], scene.state)
        scenario = jax.tree.map(jnp.asarray, make_bank([scene.scenario]))
        bank = SceneBank(scenario, state, jnp.array([scene.first]))
        world = world_of(env, bank)
        states, _ = env.start_many(world, jnp.arange(1))
        result = drive(env, world, states, action, 80)
        for step in (19, 39, 59, 79):
            sim = jax.tree.map(lambda values, step=step: values[step, 0], result.state.trajectory)
            now = int(result.state.timestep[step, 0])
            # The ego car as driven, everyone else as logged, in the frame of the record.
            shift = {"x": scene.scenario.origin[0], "y": scene.scenario.origin[1]}
            whole = full.log_trajectory.replace(
                **{
                    name: np.concatenate(
                        [(sim[name][:1] + shift.get(name, 0)).astype(values.dtype), values[1:]]
                    )
                    for name, values in full.log_trajectory.items()
                }
            )
            state = full.replace(sim_trajectory=whole, timestep=jnp.int32(now))
            for name, value in everything(state).items():
                ours = float(result.costs[f"waymax_{name}"][step, 0])
                assert ours == pytest.approx(float(value.value[0]), abs=2e-3), (kind, step, name)
                seen += name in ("overlap", "offroad") and np.array([ours > 0, ours == 0])
    assert (seen > 2).all()


def test_overlap_and_leaving_the_road_end_episodes_by_config(bank):
    held = make(termination={"cross_track": 1e3, "heading": 9})
    free = make(termination={"cross_track": 1e3, "heading": 9}, waymax={"terminate": []})
    results = []
    for env in (held, free):
        world = world_of(env, bank)
        states, _ = env.start_many(world, jnp.arange(4))
        results.append(drive(env, world, states, (0.1, 0.5), 60))
    ended, kept = results
    hit = np.asarray(kept.costs["waymax_overlap"] + kept.costs["waymax_offroad"]) > 0
    assert hit[1::2].any() and not hit[::2].any()  # Waymax steps at every second control step
    first = hit.argmax(axis=0)
    for scene in np.flatnonzero(hit.any(axis=0)):
        last = first[scene]
        assert ended.terminated[last, scene] and not ended.terminated[:last, scene].any()
        assert ended.reward[last, scene] == 0.0 and not ended.truncated[last, scene]
        assert sum(bool(flag[last, scene]) for flag in ended.ended.values()) == 1
        assert ended.ended["waymax_overlap"][last, scene] or ended.ended["waymax_offroad"][last, scene]
    assert not kept.terminated.any()
    free_reward = 1.0 - sum(value for value in kept.costs.values())
    np.testing.assert_allclose(kept.reward, free_reward, atol=1e-5)


def test_the_task_is_the_native_one_but_for_waymax(bank):
    """The same policy sees and earns the same in both, where Waymax finds no fault."""
    env = make(waymax={"terminate": [], "costs": {"overlap": 0, "offroad": 0}})
    native = TrackingEnv(env.config, env.model)
    world = world_of(env, bank)
    states, _ = env.start_many(world, jnp.arange(4))
    result = drive(env, world, states, (0.02, 0.1), 30)
    inner = World(bank.scenarios, world.dynamics)
    state, _ = native.start_many(inner, jnp.arange(4))
    step = jax.jit(native.step_many)
    for k in range(30):
        expected = step(inner, state, jnp.tile(jnp.array([0.02, 0.1]), (4, 1)))
        state = expected.state
        np.testing.assert_allclose(result.observation[k], expected.observation, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(result.reward[k], expected.reward, atol=1e-4)


def test_the_log_s_end_truncates(bank):
    env = make(waymax={"terminate": []}, termination={"cross_track": 1e3, "heading": 9})
    world = world_of(env, bank)
    states, _ = env.start_many(world, jnp.arange(4))
    states = states.replace(timestep=jnp.full(4, 89))
    result = drive(env, world, states, (0.0, 0.0), 2)
    assert not result.truncated[0].any() and result.truncated[1].all()
    assert result.ended["end_of_log"][1].all() and (np.asarray(result.state.timestep[1]) == 90).all()


def test_what_cannot_be_is_refused(waymax, tmp_path):
    from s3jax.waymax.config import WaymaxConfig
    from s3jax.waymax.scenes import SceneSet

    with pytest.raises(ConfigError, match=r"step of 0\.1 s is not a multiple of the model's, 0\.03 s"):
        make({"kind": "bicycle", "dt": 0.03})
    with pytest.raises(ConfigError, match=r"leave env\.cars at 1"):
        make(cars=2)
    with pytest.raises(ConfigError, match=r"name the WOMD records to drive in, scenarios\.files"):
        SceneSet(ScenarioConfig(), WaymaxConfig(), 0.05)
