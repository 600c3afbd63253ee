"""Minibatches that shuffle without moving data between devices."""

import jax
import jax.numpy as jnp


def group_minibatches(keys, batch, minibatches: int):
    """Permutes environments within fixed groups and splits them into minibatches.

    A permutation over all environments would gather the whole batch on every device; one inside groups
    that each live on one device moves nothing, and is the same algorithm for any number of devices.

    Args:
      keys: [G] PRNG keys, one for each group.
      batch: pytree of [T, N, ...]; G divides N.
      minibatches: number of minibatches; divides N / G.

    Returns:
      The pytree with leaves [minibatches, T, N / minibatches, ...].
    """
    groups = keys.shape[0]
    members = jax.tree.leaves(batch)[0].shape[1] // groups
    order = jax.vmap(lambda key: jnp.argsort(jax.random.bits(key, (members,))))(keys)

    def split(x):
        x = x.reshape(x.shape[0], groups, members, *x.shape[2:])
        x = jax.vmap(lambda members, order: members[:, order], in_axes=(1, 0), out_axes=1)(x, order)
        x = x.reshape(*x.shape[:2], minibatches, -1, *x.shape[3:])
        x = jnp.moveaxis(x, 2, 0)
        return x.reshape(minibatches, x.shape[1], -1, *x.shape[4:])

    return jax.tree.map(split, batch)
