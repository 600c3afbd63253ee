"""Whole episodes of a deterministic policy, for evaluation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from s3jax.env.tracking import TrackingEnv, World
from s3jax.spatial.reference import TrackingError


class Episodes(NamedTuple):
    """One episode of each of N scenarios, over a fixed number of steps T.

    Attributes:
      active: [T, N] whether the episode was still running.
      error: tracking errors, each [T, N].
      control: [T, N, 2].
      terminated: [N] whether the car left the corridor, turned round or diverged.
    """

    active: jax.Array
    error: TrackingError
    control: jax.Array
    terminated: jax.Array


def run_episodes(env: TrackingEnv, world: World, scenarios, act: Callable, memory=None) -> Episodes:
    """Drives each scenario once, from its beginning, with the car as distilled.

    Args:
      env: the environment.
      world: bank and dynamics parameters.
      scenarios: [N] indices into the bank.
      act: maps observations [N, D] and the policy's memory to actions [N, 2] and new memory.
      memory: the policy's before the first step; any pytree.
    """
    state, observation = env.start_many(world, scenarios)

    def body(carry, _):
        state, observation, memory, active = carry
        control, memory = act(observation, memory)
        step = env.step_many(world, state, control)
        ended = active & step.terminated
        running = active & ~(step.terminated | step.truncated)
        out = (active & ~step.terminated, step.error, control, ended)
        return (step.state, step.observation, memory, running), out

    carry = (state, observation, memory, jnp.ones(scenarios.shape, bool))
    steps = env.config.termination.steps
    _, (active, error, control, ended) = jax.lax.scan(body, carry, length=steps)
    return Episodes(active, error, control, jnp.any(ended, axis=0))


def summarise(episodes: Episodes) -> dict:
    """Returns scalar metrics over all steps driven: RMS errors (SI) and the share of episodes completed."""
    active = episodes.active
    total = jnp.maximum(jnp.sum(active), 1)
    rms = {
        f"{name}_rms": jnp.sqrt(jnp.sum(jnp.where(active, value**2, 0.0)) / total)
        for name, value in episodes.error._asdict().items()
    }
    return rms | {"completed": 1.0 - jnp.mean(episodes.terminated)}
