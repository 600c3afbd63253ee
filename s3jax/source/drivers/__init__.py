"""Scripted drivers: followers of a reference, excitation, random controls, driving at the limit."""

from s3jax.source.drivers.base import Driver, Noisy
from s3jax.source.drivers.preview import PreviewConfig, PreviewDriver, speed_limits
from s3jax.source.drivers.scripted import MANOEUVRES, LimitDriver, Manoeuvre, RandomDriver

__all__ = [
    "MANOEUVRES",
    "Driver",
    "LimitDriver",
    "Manoeuvre",
    "Noisy",
    "PreviewConfig",
    "PreviewDriver",
    "RandomDriver",
    "speed_limits",
]
