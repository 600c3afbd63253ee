"""What policy and critic see: the surface label, the oracle, and noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.env import EnvConfig, TrackingEnv, layout


def make(bicycle, **config):
    return TrackingEnv(EnvConfig.parse(config), bicycle)


def slices(config):
    """Name -> slice of each part of an observation."""
    parts, found, start = layout.policy_parts(config) | layout.critic_parts(config), {}, 0
    for name, (size, _) in parts.items():
        found[name] = slice(start, start + size)
        start += size
    return found


def at(env, world, x, told=True):
    """The observation of a car at x on the icy road."""
    state, _ = env.start(world, 0)
    vehicle = state.vehicle._replace(x=jnp.asarray(x))
    state = state.replace(vehicle=vehicle, cursor=jnp.asarray(x / 0.5), told=jnp.asarray(told))
    return np.asarray(env.observe(world, state))


@pytest.mark.parametrize(("x", "label"), [(10.0, 0.7), (20.0, 0.4), (30.0, 0.1)])
def test_the_policy_is_told_the_nominal_surface_or_that_it_is_unknown(bicycle, icy, x, label):
    env = make(bicycle, observation={"surface": True})
    part = slices(env.config)["surface"]
    np.testing.assert_allclose(at(env, icy, x)[part], [label, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(at(env, icy, x, told=False)[part], [0.0, 0.0])


def test_the_surface_is_dropped_in_a_share_of_the_episodes(bicycle, icy):
    env = make(bicycle, observation={"surface": True}, surface_dropout=0.3)
    keys = jax.random.split(jax.random.key(0), 400)
    _, observation = jax.jit(lambda keys: env.reset_many(icy, keys, jnp.zeros(400, int), 1))(keys)
    known = np.asarray(observation[:, slices(env.config)["surface"]][:, 1])
    assert set(known) == {0.0, 1.0}
    assert np.mean(1 - known) == pytest.approx(0.3, abs=0.06)


def test_the_critics_oracle_follows_what_the_policy_sees(bicycle, icy):
    plain, critic, policy = (make(bicycle, oracle=who) for who in ("none", "critic", "policy"))
    size = plain.observation_size
    assert plain.policy_size == size
    assert (critic.policy_size, policy.policy_size) == (size, policy.observation_size)
    assert critic.observation_size == policy.observation_size > size
    observation = at(critic, icy, 17.0)
    assert observation.shape == (critic.observation_size,)
    np.testing.assert_array_equal(observation, at(policy, icy, 17.0))
    np.testing.assert_array_equal(observation[:size], at(plain, icy, 17.0))
    part = slices(critic.config)
    # Axles at 18.29 and 15.59 m; preview points every 2 m from 19 m on: only the first is off the ice.
    np.testing.assert_allclose(observation[part["oracle_friction"]], [0.7] * 3 + [0.1] * 9, rtol=1e-6)
    np.testing.assert_allclose(observation[part["oracle_body"]], [10.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_the_oracle_knows_the_deviations(bicycle, icy):
    env = make(bicycle, oracle="critic")
    state, observation = jax.jit(env.reset)(icy, jax.random.key(3))
    part = slices(env.config)
    np.testing.assert_array_equal(observation[part["oracle_deviations"]], jnp.stack(state.perturbation))
    nominal = observation[part["oracle_friction"]] / state.perturbation.friction_gain
    assert jnp.abs(nominal[:, None] - jnp.array([0.7, 0.1, 1.0])).min(axis=1).max() < 1e-5


def test_noise_reaches_only_what_the_policy_sees(bicycle, icy):
    noise = {"position": 0.1, "heading": 0.02, "velocity": 0.3, "yaw_rate": 0.05, "steer_angle": 0.01}
    clean, noisy = make(bicycle, oracle="critic"), make(bicycle, oracle="critic", noise=noise)
    keys, none, size = jax.random.split(jax.random.key(0), 500), jnp.zeros(500, int), clean.policy_size

    def run(env):
        state, first = jax.jit(lambda keys: env.reset_many(icy, keys, none, 1))(keys)
        return first, jax.jit(env.step_many)(icy, state, jnp.full((500, 2), 0.3))

    (first, step), (noisy_first, noisy_step) = run(clean), run(noisy)
    for a, b in ((first, noisy_first), (step.observation, noisy_step.observation)):
        np.testing.assert_allclose(a[:, size:], b[:, size:], rtol=1e-5, atol=1e-5)  # the oracle
    np.testing.assert_allclose(step.reward, noisy_step.reward, rtol=1e-5)
    off = np.asarray(noisy_step.observation - step.observation)[:, :size]
    part = slices(clean.config)
    np.testing.assert_allclose(off[:, part["error"]].std(0), [0.1, 0.02, 0.3], rtol=0.15)
    history = off[:, part["history"]].reshape(500, -1, 6)
    np.testing.assert_allclose(history[:, -1].std(0), [0.3, 0.3, 0.05, 0.01, 0.0, 0.0], rtol=0.15, atol=1e-6)
    # What was sensed stays in the history, and each step is sensed anew.
    size, rows = 6, slice(part["history"].start, part["history"].stop)
    np.testing.assert_array_equal(
        noisy_first[:, rows][:, -size:], noisy_step.observation[:, rows][:, -2 * size : -size]
    )
    assert abs(np.corrcoef(history[:, -1, 0], history[:, -2, 0])[0, 1]) < 0.2


def test_without_noise_no_key_is_carried(bicycle, icy):
    state, _ = jax.eval_shape(make(bicycle).reset, icy, jax.random.key(0))
    assert state.key is None and state.sensed is None


def test_nonsense_is_refused():
    for config in (
        {"observation": {"surface": "ice"}},
        {"oracle": "everyone"},
        {"noise": {"position": -1}},
        {"randomisation": {"mass": [0.0, 1.0]}},
        {"randomisation": {"lag": [0.2, 0.1]}},
        {"randomisation": {"delay": [0.0, 2.0]}},
    ):
        with pytest.raises(ConfigError):
            EnvConfig.parse(config)
