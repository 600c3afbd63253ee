"""Whole episodes of a deterministic policy, for evaluation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from s3jax.env.tracking import TrackingEnv, World
from s3jax.spatial.metrics import tracking_metrics
from s3jax.spatial.reference import TrackingError


class Episodes(NamedTuple):
    """One episode of each of N scenarios, over a fixed number of steps T.

    Attributes:
      active: [T, N] whether the episode was still running.
      error: tracking errors, each [T, N].
      control: [T, N, 2] steer and pedal.
      ended: name -> [N] whether the episode ended in this way (`s3jax.env.tracking.Step`).
      terminated: [N] whether it failed.
    """

    active: jax.Array
    error: TrackingError
    control: jax.Array
    ended: dict
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
        action, memory = act(observation, memory)
        step = env.step_many(world, state, action)
        ended, failed = jax.tree.map(lambda flag: active & flag, (step.ended, step.terminated))
        running = active & ~(step.terminated | step.truncated)
        control = step.observation[:, last - 2 : last]
        out = (active & ~step.terminated, step.error, control, ended, failed)
        return (step.state, step.observation, memory, running), out

    carry = (state, observation, memory, jnp.ones(scenarios.shape, bool))
    last = env.config.observation.size  # the history ends with the control
    _, out = jax.lax.scan(body, carry, length=env.config.termination.steps)
    active, error, control, ended, failed = out
    ended, failed = jax.tree.map(lambda flag: jnp.any(flag, axis=0), (ended, failed))
    return Episodes(active, error, control, ended, failed)


def summarise(episodes: Episodes, dt: float) -> dict:
    """Returns scalar metrics by name, for a control step of `dt` (s).

    They are `tracking_metrics` over all steps driven; `completed`, the share of episodes that did not
    fail; and `ended_<way>`, the share that ended in each way.
    """
    by_episode = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1), (*episodes.error, episodes.control, episodes.active)
    )
    ended = {f"ended_{name}": jnp.mean(flag) for name, flag in episodes.ended.items()}
    completed = {"completed": 1.0 - jnp.mean(episodes.terminated)}
    return tracking_metrics(*by_episode, dt, pooled=True) | completed | ended
