"""Running mean and variance of observations (Chan et al. 1983, parallel update)."""

import jax
import jax.numpy as jnp
from flax import struct

CLIP = 10.0
"""Normalised observations are clipped to [-CLIP, CLIP]."""

MIN_STD = 1e-2
"""Floor of the standard deviation, so that a constant input stays small."""


@struct.dataclass
class Normaliser:
    """Statistics of the observations seen so far.

    Attributes:
      count: [] number of observations.
      mean: [D].
      variance: [D].
    """

    count: jax.Array
    mean: jax.Array
    variance: jax.Array

    @classmethod
    def create(cls, size: int) -> "Normaliser":
        """Returns the statistics before any observation of this size: the identity."""
        return cls(count=jnp.zeros(()), mean=jnp.zeros(size), variance=jnp.ones(size))

    def update(self, batch, axis: str | None = None) -> "Normaliser":
        """Returns the statistics after also seeing a batch.

        Args:
          batch: [..., D].
          axis: name of the mapped axis over which the batch is spread in equal parts.
        """
        batch = batch.reshape(-1, batch.shape[-1])
        mean = _average(jnp.mean(batch, 0), axis)
        variance = _average(jnp.mean((batch - mean) ** 2, 0), axis)
        count = float(batch.shape[0] * (jax.lax.axis_size(axis) if axis else 1))
        total = self.count + count
        share = count / total
        delta = mean - self.mean
        return Normaliser(
            count=jnp.minimum(total, 1e8),  # keeps adapting, and float32 keeps counting
            mean=self.mean + delta * share,
            variance=self.variance * (1 - share) + variance * share + delta**2 * share * (1 - share),
        )

    def __call__(self, observation):
        """Returns observations [..., D] normalised and clipped."""
        scaled = (observation - self.mean) / jnp.maximum(jnp.sqrt(self.variance), MIN_STD)
        return jnp.clip(scaled, -CLIP, CLIP)


def _average(x, axis):
    return jax.lax.pmean(x, axis) if axis else x
