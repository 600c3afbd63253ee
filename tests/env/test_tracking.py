"""The tracking environment on a hand-made world."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.dynamics.single_track import SingleTrackConfig
from s3jax.env import EnvConfig, TrackingEnv, World
from s3jax.env.episodes import run_episodes, summarise
from s3jax.scenarios.bank import make_bank
from s3jax.spatial.friction import friction_map
from s3jax.spatial.reference import make_reference

DT = 0.05
MODEL = SingleTrackConfig().make()


def straight(speed, samples=100, friction=None):
    x = np.arange(samples) * DT * speed
    reference = make_reference(x, 0 * x, 0 * x, np.full(samples, speed), DT)
    return SimpleNamespace(dt=DT, reference=reference, friction=friction or friction_map(1.0))


@pytest.fixture(scope="module")
def world():
    ice = [([(20, -5), (40, -5), (40, 5), (20, 5)], "ice")]
    scenarios = [
        straight(10.0),
        straight(20.0, 60),
        straight(10.0, friction=friction_map(0.7, ice)),
        straight(0.0),
    ]
    return World(jax.tree.map(jnp.asarray, make_bank(scenarios)), MODEL.init(jax.random.key(0)))


def make(**config):
    return TrackingEnv(EnvConfig.parse(config), MODEL)


def run(env, world, scenario, actions):
    """Steps one environment from the start of a scenario; returns the list of results."""
    step = jax.jit(env.step)
    state, _ = env.start(world, scenario)
    results = []
    for action in actions:
        results.append(step(world, state, jnp.asarray(action)))
        state = results[-1].state
    return results


def test_a_start_lies_on_the_reference_with_the_state_that_follows_it(world):
    state, observation = make().start(world, 1)
    assert observation.shape == (make().observation_size,)
    np.testing.assert_allclose(observation[:3], 0.0, atol=1e-6)
    assert float(state.vehicle.vx) == 20.0


def test_actions_are_rates_of_the_control(world):
    env = make(control_rate=[2.0, 4.0])
    results = run(env, world, 0, [(1.0, -0.5)] * 3 + [(0.0, 9.0)] * 7 + [(0.0, -9.0)] * 12)
    controls = np.array([result.state.history[-1, 4:] for result in results])
    np.testing.assert_allclose(controls[:3], [[0.1, -0.1], [0.2, -0.2], [0.3, -0.3]], atol=1e-6)
    np.testing.assert_allclose(controls[9], [0.3, 1.0])
    np.testing.assert_allclose(controls[-1], [0.3, -1.0])
    assert results[9].state.vehicle.yaw_rate > 0.1  # + steer turns left
    assert results[-1].state.vehicle.vx < results[9].state.vehicle.vx  # - pedal brakes


def test_leaving_the_corridor_terminates_without_truncating(world):
    results = run(make(), world, 0, [(1.0, 0.0)] * 60)
    first = next(i for i, result in enumerate(results) if result.terminated)
    last = results[first]
    assert abs(last.error.cross_track) > 3.5 or abs(last.error.heading) > 1.2
    assert not last.truncated
    assert last.reward == 0.0


def test_the_end_of_the_scenario_truncates(world):
    results = run(make(), world, 1, [(0.0, 0.0)] * 80)
    first = next(i for i, result in enumerate(results) if result.truncated)
    assert 55 <= first <= 70  # 60 samples, coasting
    assert not results[first].terminated
    assert results[first].reward > 0.5


def test_a_stop_is_kept_and_ends_with_the_log(world):
    results = run(make(), world, 3, [(0.0, -0.2)] * 100)
    first = next(i for i, result in enumerate(results) if result.truncated)
    assert 95 <= first <= 99  # 100 samples; the cursor moves with time
    assert abs(float(results[first].state.vehicle.x)) < 0.2  # an automatic creeps before the brake bites


def test_the_step_limit_truncates(world):
    results = run(make(termination={"steps": 5}), world, 0, [(0.0, 0.0)] * 5)
    assert [bool(result.truncated) for result in results] == [False] * 4 + [True]


def test_reward_is_one_less_the_named_costs(world):
    result = run(make(), world, 0, [(0.3, 0.2)] * 5)[-1]
    assert float(result.reward) == pytest.approx(1.0 - float(sum(result.costs.values())), abs=1e-6)
    assert all(value >= 0 for value in result.costs.values())
    assert result.costs["cross_track"] == pytest.approx(2.0 * abs(float(result.error.cross_track)), abs=1e-6)


def test_ice_is_felt_axle_by_axle(world):
    env = make()
    state, _ = env.start(world, 2)
    for x, front, rear in ((10.0, 0.7, 0.7), (19.5, 0.1, 0.7), (30.0, 0.1, 0.1), (40.5, 0.7, 0.1)):
        there = state.replace(vehicle=state.vehicle._replace(x=jnp.asarray(x)))
        np.testing.assert_allclose(env._road_friction(world, there), [front, rear], rtol=1e-6)


def test_resets_deviate_within_their_bounds_and_cover_all_scenarios(world):
    env = make(start={"along": 0.5, "cross_track": 0.4, "heading": 0.1, "speed": 1.0})
    keys = jax.random.split(jax.random.key(0), 512)
    state, observation = jax.jit(jax.vmap(env.reset, (None, 0)))(world, keys)
    assert set(np.asarray(state.scenario)) == {0, 1, 2, 3}
    assert np.isfinite(observation).all()
    for column, bound in ((0, 0.4), (1, 0.1), (2, 1.0)):
        worst = float(jnp.abs(observation[:, column]).max())
        assert 0.9 * bound < worst <= bound + 1e-5
    assert (state.vehicle.vx >= 0).all()
    assert state.cursor.max() <= 0.5 * 99
    gain = state.perturbation.steer_gain
    assert 0.85 <= gain.min() < gain.max() <= 1.15


def test_delay_bias_and_gain_reach_the_car_but_not_the_observed_control(world):
    env = make(control_rate=[2.0, 4.0])
    state, _ = env.start(world, 0)
    action = jnp.array([1.0, 1.0])
    step = jax.jit(env.step)
    plain = step(world, state, action).state
    for name, value in (("delay", 1.0), ("steer_bias", 0.05), ("steer_gain", 0.5), ("pedal_gain", 0.5)):
        perturbation = state.perturbation._replace(**{name: jnp.asarray(value)})
        other = step(world, state.replace(perturbation=perturbation), action).state
        np.testing.assert_array_equal(other.history[-1, 4:], plain.history[-1, 4:])
        changed = (
            other.vehicle.vx != plain.vehicle.vx or other.vehicle.steer_angle != plain.vehicle.steer_angle
        )
        assert changed, name
    late = state.replace(perturbation=state.perturbation._replace(delay=jnp.ones(())))
    assert float(step(world, late, action).state.vehicle.steer_angle) == 0.0


def test_a_poisoned_state_terminates(world):
    env = make()
    state, _ = env.start(world, 0)
    poisoned = state.replace(carry=jax.tree.map(lambda x: x * jnp.nan, state.carry))
    result = env.step(world, poisoned, jnp.zeros(2))
    assert result.terminated and not result.truncated
    assert result.reward == 0.0


def test_the_bank_is_an_argument_not_a_constant(world):
    env = make()
    keys = jax.random.split(jax.random.key(0), 4)
    state, _ = jax.eval_shape(jax.vmap(env.reset, (None, 0)), world, keys)
    jaxpr = jax.make_jaxpr(jax.vmap(env.step, (None, 0, 0)))(world, state, jnp.zeros((4, 2)))
    assert max((np.size(const) for const in jaxpr.consts), default=0) < 1000


def test_a_simple_driver_completes_the_straights(world):
    """Steers and accelerates against the errors: the environment is drivable, and its summary says so."""
    env = make()

    def act(observation, memory):
        cross_track, heading, speed = observation[:, 0], observation[:, 1], observation[:, 2]
        control = jnp.stack([-0.3 * cross_track - 1.5 * heading, -0.3 * speed], axis=-1)
        return 5.0 * (control - observation[:, -2:]), memory

    episodes = jax.jit(lambda world: run_episodes(env, world, jnp.arange(3), act))(world)
    summary = summarise(episodes, DT)
    assert summary["completed"] == 1.0 and summary["ended_end_of_log"] == 1.0
    driven = np.asarray(episodes.active)
    cross_track = np.asarray(episodes.error.cross_track)[driven]
    assert float(summary["cross_track_rms"]) == pytest.approx(np.sqrt(np.mean(cross_track**2)), rel=1e-4)
    assert 0 < summary["pedal_rate_rms"] <= 4.0  # the bound of the control's rate
    assert summary["cross_track_rms"] < 0.05
    assert summary["speed_rms"] < 1.5
    assert episodes.active.sum(0)[1] < episodes.active.sum(0)[0]
