"""The trained policy alone: what acting, evaluating and exporting need of a training state."""

import jax.numpy as jnp

from s3jax.ppo.networks import GRU, MLP
from s3jax.ppo.normaliser import Normaliser


def policy_of(state, policy_size: int) -> dict:
    """Returns the policy in a `TrainState` as nested dictionaries of arrays.

    Args:
      state: the training state.
      policy_size: entries of the observation that the policy sees, P.

    Returns:
      `actor`: its layers `dense_0`, `dense_1`, ...; `gru`, if it has one: `input`, `kernel` and `bias`;
      `mean` and `variance` [P] of the observations.
    """
    params = state.params["params"]
    return {
        **{name: params[name] for name in ("actor", "gru") if name in params},
        "mean": state.normaliser.mean[..., :policy_size],
        "variance": state.normaliser.variance[..., :policy_size],
    }


def initial_memory(policy: dict, *shape):
    """Returns the memory [*shape, H] at the start of an episode, or None."""
    return jnp.zeros((*shape, policy["gru"]["bias"].shape[-1])) if "gru" in policy else None


def mean_action(policy: dict, observation, memory=None):
    """Acts without noise.

    Args:
      policy: as from `policy_of`.
      observation: [..., P] or longer; the policy sees the leading P entries.
      memory: [..., H], or None for a policy without a GRU.

    Returns:
      Action [..., A] in [-1, 1], and the new memory.
    """
    normaliser = Normaliser(count=jnp.zeros(()), mean=policy["mean"], variance=policy["variance"])
    features = normaliser(observation[..., : policy["mean"].shape[-1]])
    if "gru" in policy:
        gru = GRU(policy["gru"]["bias"].shape[-1])
        start = jnp.zeros((1, *features.shape[:-1]), bool)
        memory = gru.apply({"params": policy["gru"]}, features[None], memory, start)[0]
        features = jnp.concatenate([features, memory], -1)
    layers = [policy["actor"][f"dense_{i}"]["kernel"] for i in range(len(policy["actor"]))]
    actor = MLP([kernel.shape[1] for kernel in layers[:-1]], layers[-1].shape[1])
    return jnp.tanh(actor.apply({"params": policy["actor"]}, features)), memory
