"""From a training run's Flax parameters to a NumPy policy bundle. JAX."""

from pathlib import Path

import jax
import numpy as np

from beamng_bridge.bundle import PolicySpec, load_bundle, save_bundle
from s3jax import __version__
from s3jax.archive import load_archive
from s3jax.config import ConfigError
from s3jax.env.layout import policy_parts
from s3jax.ppo.checkpoints import load_policy
from s3jax.ppo.normaliser import CLIP, MIN_STD
from s3jax.ppo.policy import initial_memory, mean_action
from s3jax.ppo.train import TrainConfig

PROBES = 8
"""Number of recorded observations and actions in a bundle, one after the other in one episode."""


def export_run(directory: str | Path, path: str | Path, which: str = "best") -> int:
    """Writes the policy of a training run as a bundle, and loads it once to check it.

    Args:
      directory: the run folder.
      path: the bundle.
      which: "best" or "latest" checkpoint.

    Returns:
      The update after which the policy was saved.

    Raises:
      FileError: if there is no checkpoint.
      ConfigError: if the policy sees what only the training environment knows.
    """
    directory = Path(directory)
    policy, update = load_policy(directory / "checkpoints", which)
    config = TrainConfig.load(directory / "config.yaml")
    if hidden := policy_parts(config.env).keys() - config.env.observation.parts().keys():
        raise ConfigError(
            f"{directory}: its policy sees {', '.join(sorted(hidden))}, which no driver knows; train one "
            "with env.oracle=critic or none and env.cars=1"
        )
    dynamics, _ = load_archive(directory / "dynamics.npz", "dynamics", 1)
    std = np.maximum(np.sqrt(policy["variance"]), MIN_STD)
    draws = np.random.default_rng(0).normal(size=(PROBES, len(std)))
    observations = (policy["mean"] + 2.0 * std * draws).astype(np.float32)
    save_bundle(
        path,
        PolicySpec(
            observation=config.env.observation,
            control_rate=config.env.control_rate,
            dt=dynamics["dt"],
            activation="silu",
            clip=CLIP,
        ),
        weights={name: policy[name] for name in ("actor", "gru") if name in policy},
        mean=policy["mean"],
        std=std,
        probes=(observations, _act_in_order(policy, observations)),
        provenance={
            "s3jax": __version__,
            "update": update,
            "training": config.dump(),
            "dynamics": {"config": dynamics["config"], "provenance": dynamics["provenance"]},
        },
    )
    load_bundle(path)
    return update


def _act_in_order(policy: dict, observations) -> np.ndarray:
    """Returns the actions [T, 2] for observations [T, P] of one episode."""

    def act(memory, observation):
        action, memory = mean_action(policy, observation, memory)
        return memory, action

    return np.asarray(jax.jit(lambda x: jax.lax.scan(act, initial_memory(policy), x)[1])(observations))
