"""The smallest training run that does everything, for tests that need whole runs."""

import jax
import numpy as np

from s3jax.dynamics.single_track import SingleTrackConfig
from s3jax.dynamics.store import save_dynamics
from s3jax.ppo.checkpoints import Checkpointer
from s3jax.ppo.train import TrainConfig

OVERRIDES = (
    "ppo.num_envs=32",
    "ppo.rollout=8",
    "ppo.minibatches=2",
    "ppo.groups=2",
    "ppo.epochs=1",
    "ppo.actor_hidden=[16]",
    "ppo.critic_hidden=[16]",
    "scenarios.procedural.count=20",
    "log_every=1",
    "evaluate_every=2",
)


def config(*overrides):
    """Returns the run's configuration, with some of it changed."""
    return TrainConfig.load(None, [*OVERRIDES, *overrides])


def write_dynamics(path):
    """Writes an untrained single-track model; returns the path."""
    model = SingleTrackConfig().make()
    save_dynamics(path, model, model.init(jax.random.key(0)))
    return path


def last_state(directory):
    """Returns the update of a run's latest checkpoint and every array in it, as saved."""
    with Checkpointer(directory / "checkpoints") as checkpointer:
        return checkpointer.latest(), jax.tree.map(_raw, checkpointer.restore(None))


def _raw(x):
    return np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
