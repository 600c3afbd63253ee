"""The tanh-squashed Gaussian policy.

The raw, pre-tanh action is kept and the log-Jacobian is subtracted analytically: distrax's own tanh
transform has no entropy and gives NaN at saturation.
"""

import math
import warnings

import jax
import jax.numpy as jnp

with warnings.catch_warnings():  # tfp-nightly, under distrax, reads a deprecated name of jax.core
    warnings.simplefilter("ignore", DeprecationWarning)
    import distrax


def _normal(mean, log_std):
    return distrax.Independent(distrax.Normal(mean, jnp.exp(log_std)), 1)


def _log_jacobian(raw):
    """Returns log |d tanh(raw) / d raw| summed over the last axis, exact also at saturation."""
    return jnp.sum(2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw)), axis=-1)


def sample(noise, mean, log_std):
    """Returns raw actions [..., A] from standard normal noise [..., A]; the action is their tanh."""
    return mean + jnp.exp(log_std) * noise


def log_prob(mean, log_std, raw):
    """Returns the log-density [...] of the action tanh(raw), raw [..., A]."""
    return _normal(mean, log_std).log_prob(raw) - _log_jacobian(raw)


def entropy(noise, mean, log_std):
    """Estimates the entropy [...] of the squashed Gaussian from standard normal noise [..., A], unbiased."""
    return _normal(mean, log_std).entropy() + _log_jacobian(sample(noise, mean, log_std))
