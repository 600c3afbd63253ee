"""The parts of PPO against plain references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from s3jax.config import ConfigError
from s3jax.ppo import distribution
from s3jax.ppo.config import PPOConfig
from s3jax.ppo.gae import gae
from s3jax.ppo.normaliser import Normaliser
from s3jax.ppo.shuffle import group_minibatches


def gae_by_definition(reward, value, next_value, terminated, truncated, discount, trace):
    """Sums the discounted temporal differences of each step's own future, step by step."""
    steps, envs = reward.shape
    advantage = np.zeros_like(reward)
    for n in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                bootstrap = 0.0 if terminated[k, n] else discount * next_value[k, n]
                advantage[t, n] += weight * (reward[k, n] + bootstrap - value[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
                weight *= discount * trace
    return advantage


def test_gae_matches_its_definition_with_every_kind_of_ending():
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 24, 16))
    terminated, truncated = rng.random((2, 24, 16)) < 0.15  # both at once, and at the edge, occur
    assert (terminated & truncated).any() and (terminated | truncated)[-1].any()
    expected = gae_by_definition(reward, value, next_value, terminated, truncated, 0.97, 0.9)
    actual = gae(reward, value, next_value, terminated, truncated, 0.97, 0.9)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_value_after_termination_is_ignored_even_if_not_finite():
    one = jnp.ones((1, 1))
    advantage = gae(one, one, jnp.nan * one, one > 0, one < 0, 0.9, 0.9)
    np.testing.assert_allclose(advantage, 0.0)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, -1.0), (0.8, 0.3), (-2.0, -0.5)])
def test_squashed_density_and_entropy_against_integration(mean, log_std):
    mean_array, log_std_array = jnp.array([mean]), jnp.array([log_std])

    raw = np.linspace(-8.0, 8.0, 4001)
    slope = np.cosh(raw) ** -2  # of the control tanh(raw)
    log_density = np.asarray(distribution.log_prob(mean_array, log_std_array, jnp.asarray(raw)[:, None]))
    density = np.exp(log_density)
    assert np.trapezoid(density * slope, raw) == pytest.approx(1.0, abs=1e-3)
    exact = -np.trapezoid(density * log_density * slope, raw)
    noise = jax.random.normal(jax.random.key(0), (20_000, 1))
    estimate = distribution.entropy(noise, mean_array, log_std_array).mean()
    assert float(estimate) == pytest.approx(exact, abs=0.03)


def test_density_and_its_gradient_stay_finite_at_saturation():
    def density(mean, raw):
        return distribution.log_prob(mean, jnp.zeros(1), raw)

    for raw in (-40.0, 0.0, 40.0):
        value, slope = jax.value_and_grad(density)(jnp.ones(1), jnp.array([raw]))
        assert np.isfinite(value) and np.isfinite(slope).all()


def test_normaliser_matches_the_statistics_of_all_batches():
    rng = np.random.default_rng(0)
    batches = [rng.normal(3.0, 2.0, (n, 7, 4)) * [1, 10, 0.1, 0] for n in (5, 1, 30)]
    normaliser = Normaliser.create(4)
    for batch in batches:
        normaliser = normaliser.update(jnp.asarray(batch))
    everything = np.concatenate([b.reshape(-1, 4) for b in batches])
    np.testing.assert_allclose(normaliser.mean, everything.mean(0), rtol=1e-4)
    np.testing.assert_allclose(normaliser.variance, everything.var(0), rtol=1e-4, atol=1e-6)
    assert np.abs(normaliser(jnp.full(4, 1e9))).max() == 10.0


def test_minibatches_hold_each_environment_once_and_stay_in_their_group():
    batch = {"a": jnp.arange(3 * 24).reshape(3, 24), "b": jnp.arange(3 * 24 * 2).reshape(3, 24, 2)}
    parts = group_minibatches(jax.random.split(jax.random.key(1), 4), batch, minibatches=3)
    assert parts["a"].shape == (3, 3, 8) and parts["b"].shape == (3, 3, 8, 2)
    np.testing.assert_array_equal(np.sort(parts["a"][:, 0].ravel()), np.arange(24))
    np.testing.assert_array_equal(parts["b"][..., 0], 2 * parts["a"])  # samples stay whole
    np.testing.assert_array_equal(parts["a"][:, 1] - parts["a"][:, 0], 24)  # steps stay in order
    groups = np.sort(parts["a"][:, 0].reshape(3, 4, 2) // 6, axis=-1)
    np.testing.assert_array_equal(groups, np.broadcast_to(np.arange(4)[None, :, None], (3, 4, 2)))
    other = group_minibatches(jax.random.split(jax.random.key(2), 4), batch, minibatches=3)
    assert (np.asarray(other["a"]) != np.asarray(parts["a"])).any()


def test_an_indivisible_batch_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match="num_envs = 100 must be a multiple of"):
        PPOConfig.load(None, ["num_envs=100", "groups=8", "minibatches=4"])
