"""The environment as a Gymnasium vector environment. Needs Gymnasium 1.0 or newer."""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from s3jax.env.tracking import TrackingEnv, World
from s3jax.env.wrappers import step_and_reset


class VectorTracking(VectorEnv):
    """N environments that reset within the step in which their episode ends.

    Observations [N, P] are what the policy sees, actions [N, 2] in [-1, 1]. Where an episode ends,
    `infos["final_obs"]` holds its last observation, `infos["final_info"]["ended"]` the way it ended, and
    `infos["_final_obs"]` and the like say where that is.
    """

    def __init__(self, env: TrackingEnv, world: World, num_envs: int):
        """Takes an environment, its world and the number of environments."""
        self.num_envs = num_envs
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": [],
            "render_fps": round(1 / env.model.dt),
        }
        box = gymnasium.spaces.Box
        self.single_observation_space = box(-np.inf, np.inf, (env.policy_size,), np.float32)
        self.single_action_space = box(-1.0, 1.0, (env.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._reset = jax.jit(partial(_reset, env, num_envs))
        self._step = jax.jit(partial(_step, env, num_envs))
        self._world, self._states, self._key = world, None, None

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Resets all environments; the same seed gives the same episodes. Options are not used.

        Returns:
          Observations [N, P] and an empty dictionary.
        """
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._key, self._states, observations = self._reset(self._world, self._key)
        return np.array(observations), {}

    def step(self, actions):
        """Steps all environments.

        Args:
          actions: [N, 2].

        Returns:
          Observations [N, P], rewards, terminations, truncations [N] and infos.
        """
        actions = jnp.asarray(actions, jnp.float32)
        self._key, self._states, *arrays = self._step(self._world, self._states, self._key, actions)
        observations, reward, terminated, truncated, final, ended = jax.tree.map(np.array, arrays)
        done, infos = terminated | truncated, {}
        if done.any():
            last, ways = np.full((2, self.num_envs), None, object)
            for i in np.flatnonzero(done):
                last[i] = final[i]
                ways[i] = next(name for name, flag in ended.items() if flag[i])
            infos = {
                "final_obs": last,
                "_final_obs": done,
                "final_info": {"ended": ways, "_ended": done},
                "_final_info": done,
            }
        return observations, reward, terminated, truncated, infos


def _reset(env, num_envs, world, key):
    """Returns the next key, states and observations."""
    keys = jax.random.split(key, num_envs + 1)
    states, observations = env.reset_many(world, keys[1:], jnp.zeros(num_envs, jnp.int32), 1)
    return keys[0], states, observations[:, : env.policy_size]


def _step(env, num_envs, world, states, key, actions):
    """Returns the next key, states, and arrays for the outside."""
    keys = jax.random.split(key, num_envs + 1)
    step, states, observations = step_and_reset(env, world, states, actions, keys[1:])
    seen, final = (x[:, : env.policy_size] for x in (observations, step.observation))
    return keys[0], states, seen, step.reward, step.terminated, step.truncated, final, step.ended
