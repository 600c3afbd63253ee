"""The tracking environment: any distilled dynamics, any scenario bank, pure functions. JAX."""

from s3jax.env.tracking import EnvConfig, EnvState, Step, TrackingEnv, World

__all__ = ["EnvConfig", "EnvState", "Step", "TrackingEnv", "World"]
