"""Checkpoints of a training run: the whole training state, and the policy alone for export."""

import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as keep

from s3jax.archive import FileError
from s3jax.config import ConfigError

METRIC = "cross_track_rms"
"""Held-out metric that decides which checkpoint is the best; lower is better."""

_OLD = "old"
# Where Orbax moves a checkpoint, in one step, for us to remove: half of one in its place would count as one.


class Checkpointer:
    """Saves asynchronously and atomically; keeps the two latest checkpoints and the best one."""

    def __init__(self, directory: str | Path):
        policies = [
            keep.LatestN(2),
            keep.BestN(get_metric_fn=lambda metrics: metrics[METRIC], reverse=True, n=1),
        ]
        options = ocp.CheckpointManagerOptions(
            best_fn=lambda metrics: metrics[METRIC],
            best_mode="min",
            preservation_policy=keep.AnyPreservationPolicy(policies),
            todelete_subdir=_OLD,
        )
        directory = Path(directory).absolute()
        self._old = directory / _OLD
        self._manager = ocp.CheckpointManager(
            directory,
            options=options,
            item_handlers={name: ocp.StandardCheckpointHandler() for name in ("state", "policy")},
        )
        self._remove_old()

    def save(self, update: int, state, policy: dict, metric: float) -> None:
        """Saves training state and policy after an update; returns before the files are complete."""
        self._manager.save(
            update,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), policy=ocp.args.StandardSave(policy)),
            metrics={METRIC: metric},
        )
        self._remove_old()

    def latest(self) -> int | None:
        """Returns the update of the latest complete checkpoint, or None."""
        return self._manager.latest_step()

    def restore(self, abstract_state):
        """Returns the latest training state, with the types and shardings of `abstract_state`.

        Raises:
          ConfigError: if the checkpoint has other shapes or types, because the configuration changed.
        """
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state))
        try:
            state = self._manager.restore(self.latest(), args=arguments).state
        except (ValueError, KeyError) as error:
            raise ConfigError(f"the checkpoint does not fit this configuration ({error})") from None
        return state

    def policy(self, which: str) -> tuple[dict, int]:
        """Returns the policy of the "best" or "latest" checkpoint as NumPy arrays, and its update."""
        update = self._manager.best_step() if which == "best" else self.latest()
        if update is None:
            raise FileError(f"{self._manager.directory}: holds no complete checkpoint; train first")
        device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device),
            self._manager.item_metadata(update).policy.tree,
        )
        arguments = ocp.args.Composite(policy=ocp.args.StandardRestore(abstract))
        return jax.tree.map(np.asarray, self._manager.restore(update, args=arguments).policy), update

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Waits for saves in progress."""
        self._manager.wait_until_finished()
        self._manager.close()
        self._remove_old()

    def _remove_old(self):
        if self._old.is_dir():
            for path in self._old.iterdir():
                shutil.rmtree(path, ignore_errors=True)


def load_policy(directory: str | Path, which: str = "best") -> tuple[dict, int]:
    """Reads a policy from a run's checkpoints, without its environment.

    Args:
      directory: the folder of checkpoints.
      which: "best" or "latest".

    Returns:
      The policy as NumPy arrays, as from `policy_of`, and the update it was saved after.

    Raises:
      FileError: if there is no checkpoint.
    """
    directory = Path(directory).absolute()
    if not directory.is_dir():
        raise FileError(f"{directory}: no checkpoints there; train first")
    with Checkpointer(directory) as checkpointer:
        return checkpointer.policy(which)
