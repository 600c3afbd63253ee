"""Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16)."""

import jax
import jax.numpy as jnp


def gae(reward, value, next_value, terminated, truncated, discount, trace):
    """Estimates advantages, bootstrapping through truncation but not through termination.

    Args:
      reward: [T, N].
      value: [T, N] value of the observation acted on.
      next_value: [T, N] value of the observation that the action led to, before any reset.
      terminated: [T, N] bool.
      truncated: [T, N] bool.
      discount: gamma.
      trace: lambda.

    Returns:
      [T, N] advantages; adding `value` gives the returns.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    keep = discount * trace * (1.0 - (terminated | truncated))

    def backward(advantage, step):
        delta, keep = step
        advantage = delta + keep * advantage
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(delta[0]), (delta, keep), reverse=True, unroll=8)[1]
