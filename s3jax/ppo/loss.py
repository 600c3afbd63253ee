"""PPO's loss (Schulman et al. 2017, arXiv 1707.06347, eqs. 7 and 9)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from s3jax.ppo import distribution


class Batch(NamedTuple):
    """What the loss needs of T steps in N environments; each [T, N, ...] but `memory`.

    Attributes:
      observation: normalised.
      start: whether an episode begins here, other than at the first step.
      memory: [1, N, H] the policy's before the first step, or None.
      noise: what the actions were drawn from; it serves to estimate the entropy.
      raw_action: before the tanh.
      log_prob: of the actions, when they were taken.
      value: as estimated then.
      advantage: normalised.
      value_target: what the values should be.
    """

    observation: jax.Array
    start: jax.Array
    memory: jax.Array | None
    noise: jax.Array
    raw_action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    value_target: jax.Array


def loss(params, network, config, batch: Batch, entropy_weight):
    """Returns the loss [] and its parts by name, each []."""
    memory = None if batch.memory is None else batch.memory[0]
    mean, log_std, value = network.apply(params, batch.observation, memory, batch.start, method="unroll")
    log_ratio = distribution.log_prob(mean, log_std, batch.raw_action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage))
    square = (value - batch.value_target) ** 2
    if config.value_clip is not None:
        near = batch.value + jnp.clip(value - batch.value, -config.value_clip, config.value_clip)
        square = jnp.maximum(square, (near - batch.value_target) ** 2)
    value_loss = 0.5 * jnp.mean(square)
    entropy = jnp.mean(distribution.entropy(batch.noise, mean, log_std))
    total = policy_loss + config.value_weight * value_loss - entropy_weight * entropy
    return total, {
        "policy": policy_loss,
        "value": value_loss,
        "entropy": entropy,
        "kl": jnp.mean(ratio - 1 - log_ratio),  # the k3 estimator: never negative
        "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip),
        "ratio_error": jnp.mean(jnp.abs(ratio - 1)),
    }
