"""The trained policy alone: what acting, evaluating and exporting need of a training state."""

import jax.numpy as jnp

from s3jax.ppo.networks import MLP
from s3jax.ppo.normaliser import Normaliser


def policy_of(state) -> dict:
    """Returns the policy in a `TrainState` as nested dictionaries of arrays.

    Returns:
      `params`: the actor's layers `dense_0`, `dense_1`, ...; `mean` and `variance` [D] of the observations.
    """
    normaliser = state.normaliser
    return {
        "params": state.params["params"]["actor"],
        "mean": normaliser.mean,
        "variance": normaliser.variance,
    }


def mean_action(policy: dict, observation):
    """Returns the deterministic action [..., A] in [-1, 1] for observations [..., D]."""
    layers = [policy["params"][f"dense_{i}"]["kernel"] for i in range(len(policy["params"]))]
    actor = MLP([kernel.shape[1] for kernel in layers[:-1]], layers[-1].shape[1])
    normaliser = Normaliser(count=jnp.zeros(()), mean=policy["mean"], variance=policy["variance"])
    return jnp.tanh(actor.apply({"params": policy["params"]}, normaliser(observation)))
