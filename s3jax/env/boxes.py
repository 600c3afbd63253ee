"""Cars as oriented boxes, all pairs of a world at once."""

import jax.numpy as jnp

from s3jax.spatial.frames import to_body


def relative(x, y, yaw):
    """Returns the place of each car in the body frame of each other.

    Args:
      x: [..., A] (m). y: [..., A] (m). yaw: [..., A] (rad).

    Returns:
      Two arrays [..., A, A] (m): entry i, j is where car j is, ahead and to the left of car i.
    """
    return to_body(x[..., None, :] - x[..., :, None], y[..., None, :] - y[..., :, None], yaw[..., :, None])


def overlap(x, y, yaw, length, width):
    """Returns whether the boxes [..., A] of each pair of cars overlap, [..., A, A]; a car overlaps itself.

    Two rectangles are apart exactly if an axis of one of them separates them. Row i tests the axes of car i,
    so the other car's test is the transposed entry. What is not finite overlaps nothing.
    """
    ahead, left = relative(x, y, yaw)
    turned = to_body(jnp.cos(yaw)[..., None, :], jnp.sin(yaw)[..., None, :], yaw[..., :, None])
    cos, sin = map(jnp.abs, turned)
    own_length, own_width = length[..., :, None], width[..., :, None]
    length, width = length[..., None, :], width[..., None, :]
    meets = (2.0 * jnp.abs(ahead) < own_length + length * cos + width * sin) & (
        2.0 * jnp.abs(left) < own_width + length * sin + width * cos
    )
    return meets & jnp.swapaxes(meets, -1, -2)


def nearest(distance, count: int):
    """Returns the `count` nearest cars of each car, nearest first.

    A car's rank is the number of cars that are nearer: for a few cars that is less work than sorting.

    Args:
      distance: [..., A, A] from car i to car j; infinite for those that are not to be seen.
      count: K.

    Returns:
      Their numbers and whether there is one, both [..., A, K].
    """
    cars = jnp.arange(distance.shape[-1])
    one, other = distance[..., :, None], distance[..., None, :]
    nearer = (other < one) | ((other == one) & (cars < cars[:, None]))
    rank = jnp.where(jnp.isfinite(distance), jnp.sum(nearer, axis=-1), -1)
    chosen = rank[..., None, :] == jnp.arange(count)[:, None]
    return jnp.sum(jnp.where(chosen, cars, 0), axis=-1), jnp.any(chosen, axis=-1)
