"""Checkpoints of a distillation, from which it goes on to the bit."""

from pathlib import Path

import jax
import orbax.checkpoint as ocp

from s3jax.config import ConfigError


class Checkpoints:
    """The latest training state of one run, which holds the best parameters too, and its metrics."""

    def __init__(self, directory):
        self._manager = ocp.CheckpointManager(
            Path(directory).absolute(),
            options=ocp.CheckpointManagerOptions(max_to_keep=1),
            item_handlers={"state": ocp.StandardCheckpointHandler(), "metrics": ocp.JsonCheckpointHandler()},
        )

    def save(self, state, metrics: list[dict]) -> None:
        """Saves after an update; returns before the files are complete."""
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), metrics=ocp.args.JsonSave({"rows": metrics})
            ),
        )

    def restore(self, state):
        """Returns the latest training state and its metrics; `state` and no metrics if there is none.

        Raises:
          ConfigError: if the checkpoint has other shapes, because the configuration changed.
        """
        latest = self._manager.latest_step()
        if latest is None:
            return state, []
        arguments = ocp.args.Composite(
            state=ocp.args.StandardRestore(jax.tree.map(ocp.utils.to_shape_dtype_struct, state)),
            metrics=ocp.args.JsonRestore(),
        )
        try:
            restored = self._manager.restore(latest, args=arguments)
        except (ValueError, KeyError) as error:
            raise ConfigError(f"the checkpoint does not fit this configuration ({error})") from None
        return restored.state, restored.metrics["rows"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Waits for saves in progress."""
        self._manager.wait_until_finished()
        self._manager.close()
