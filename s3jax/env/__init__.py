"""The tracking environment: any distilled dynamics, any scenario bank, pure functions. JAX."""

from s3jax.env.config import EnvConfig
from s3jax.env.tracking import EnvState, Step, TrackingEnv, World
from s3jax.env.traffic import TrafficEnv

__all__ = ["EnvConfig", "EnvState", "Step", "TrackingEnv", "TrafficEnv", "World", "make_env"]


def make_env(config: EnvConfig, model) -> TrackingEnv:
    """Returns the environment of a configuration: `TrafficEnv` with several cars per world."""
    return (TrafficEnv if config.cars > 1 else TrackingEnv)(config, model)
