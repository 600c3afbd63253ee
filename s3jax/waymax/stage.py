"""The part of the training stage that `env=waymax` replaces."""

import jax
import jax.numpy as jnp
import numpy as np

from s3jax.env import World
from s3jax.waymax.env import WaymaxEnv
from s3jax.waymax.scenes import SceneSet


def build_in_waymax(config, model, dynamics) -> tuple[WaymaxEnv, World, World]:
    """Returns the environment and the worlds of train and of held-out scenes.

    Args:
      config: the `TrainConfig`.
      model: the dynamics model.
      dynamics: its parameters.

    Raises:
      ConfigError: if the model's control step does not fit, or too few scenes are left.
      FileError: if a scenario file cannot be used.
    """
    env = WaymaxEnv(config.env, model)
    scenes = SceneSet(config.scenarios, config.env.waymax, model.dt)
    train, held_out = scenes.split(config.scenarios.held_out, config.seed)
    groups = config.ppo.groups  # each has its own part of the scenes, so some may come twice
    train = np.resize(train, -(-len(train) // groups) * groups)
    banks = scenes.bank(train), scenes.bank(held_out)
    return env, *(World(jax.tree.map(jnp.asarray, bank), dynamics) for bank in banks)
