"""Distillation: recordings of a vehicle simulator become a fast, differentiable dynamics model."""

from s3jax.distil.config import DistilConfig
from s3jax.distil.stage import distil

__all__ = ["DistilConfig", "distil"]
