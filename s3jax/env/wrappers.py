"""The environment under the interfaces of Gymnasium and brax."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from s3jax.env.tracking import TrackingEnv, World
from s3jax.errors import UserError


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed; the message says how to install it."""


def gym_vector_env(env: TrackingEnv, world: World, num_envs: int):
    """Returns the environment as a `gymnasium.vector.VectorEnv` (`s3jax.env.vector_env.VectorTracking`).

    Args:
      env: the environment.
      world: bank and dynamics parameters.
      num_envs: environments; with several cars per world, a multiple of them.

    Raises:
      MissingPackageError: if Gymnasium is not installed.
    """
    try:
        from s3jax.env.vector_env import VectorTracking
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] != "gymnasium":
            raise
        raise MissingPackageError("Gymnasium is not installed; pip install 's3jax[gym]'") from None
    return VectorTracking(env, world, num_envs)


def step_and_reset(env: TrackingEnv, world: World, states, actions, keys):
    """Steps N environments and resets those whose episode ends.

    Args:
      env: the environment.
      world: bank and dynamics parameters.
      states: of the environments, leaves [N, ...].
      actions: [N, 2].
      keys: [N] PRNG keys of the resets.

    Returns:
      The step, in which no environment is reset; states and observations [N, D], in which those are.
    """
    step = env.step_many(world, states, actions)
    fresh = env.reset_many(world, keys, jnp.zeros(len(keys), jnp.int32), 1)
    done = step.terminated | step.truncated

    def choose(new, old):
        return jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    states, observations = jax.tree.map(choose, fresh, (step.state, step.observation))
    return step, states, observations


@struct.dataclass
class BraxState:
    """State of N environments with the fields of `brax.envs.base.State`.

    Attributes:
      pipeline_state: states of the environments and [N] keys of their next resets.
      obs: [N, P] what the policy sees; where the critic sees more, a dictionary of that as `state` and of all
        [N, D] as `privileged_state`.
      reward: [N].
      done: [N] 1.0 where an episode has just ended; the rest of the state is that of the next one.
      metrics: costs and ways in which episodes end, name -> [N].
      info: what brax's `EpisodeWrapper` adds: `truncation`, `steps`, `episode_done`, `episode_metrics`.
    """

    pipeline_state: Any
    obs: Any
    reward: jax.Array
    done: jax.Array
    metrics: dict
    info: dict


class BraxEnv:
    """The environment as a brax environment that is batched and resets itself.

    Each episode draws its scenario anew, and truncation is told from termination, neither of which brax's own
    wrappers do; so none is to be put around it: `brax.training.agents.ppo.train.train(environment=env,
    wrap_env_fn=lambda env, **_: env, ...)`. `world` becomes a constant of what brax compiles.
    """

    backend = "s3jax"

    def __init__(self, env: TrackingEnv, world: World):
        """Takes an environment and its world."""
        self.env, self.world = env, world

    @property
    def unwrapped(self) -> "BraxEnv":
        """The environment itself."""
        return self

    @property
    def observation_size(self):
        """Length of an observation, or shape of each of its entries."""
        env = self.env
        if env.policy_size == env.observation_size:
            return env.policy_size
        return {"state": (env.policy_size,), "privileged_state": (env.observation_size,)}

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return self.env.action_size

    def reset(self, rng) -> BraxState:
        """Resets environments; rng is [N] PRNG keys, or [N, 2] of the raw kind."""
        keys = rng if jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(rng)
        keys = jax.vmap(jax.random.split)(keys)
        count = len(keys)
        states, observations = self.env.reset_many(self.world, keys[:, 0], jnp.zeros(count, jnp.int32), 1)
        zero = jnp.zeros(count)
        metrics = jax.eval_shape(self.env.step_many, self.world, states, jnp.zeros((count, 2)))
        metrics = {name: zero for name in (*metrics.costs, *_endings(metrics))}
        return BraxState(
            pipeline_state=(states, jax.random.key_data(keys[:, 1])),
            obs=self._view(observations),
            reward=zero,
            done=zero,
            metrics=metrics,
            info={
                "truncation": zero,
                "steps": zero,
                "episode_done": zero,
                "episode_metrics": {"sum_reward": zero, "length": zero} | metrics,
            },
        )

    def step(self, state: BraxState, action) -> BraxState:
        """Steps environments with actions [N, 2]."""
        states, keys = state.pipeline_state
        keys = jax.vmap(jax.random.split)(jax.random.wrap_key_data(keys))
        step, states, observations = step_and_reset(self.env, self.world, states, action, keys[:, 0])
        done = 1.0 * (step.terminated | step.truncated)
        metrics = {name: 1.0 * value for name, value in (step.costs | _endings(step)).items()}
        before = state.info["episode_done"]
        now = {"sum_reward": step.reward, "length": jnp.ones_like(done)} | metrics
        info = state.info | {
            "truncation": 1.0 * step.truncated,
            "steps": state.info["steps"] * (1.0 - before) + 1.0,
            "episode_done": done,
            "episode_metrics": {
                name: value * (1.0 - before) + now[name]
                for name, value in state.info["episode_metrics"].items()
            },
        }
        return state.replace(
            pipeline_state=(states, jax.random.key_data(keys[:, 1])),
            obs=self._view(observations),
            reward=step.reward,
            done=done,
            metrics=state.metrics | metrics,
            info=info,
        )

    def _view(self, observations):
        seen = observations[:, : self.env.policy_size]
        if self.env.policy_size == self.env.observation_size:
            return seen
        return {"state": seen, "privileged_state": observations}


def _endings(step) -> dict:
    return {f"ended_{name}": flag for name, flag in step.ended.items()}
