"""Curves of a run on Weights & Biases, for those who ask for it: `pip install 's3jax[wandb]'`."""

import secrets
from pathlib import Path

from s3jax.config import ConfigError


def start_run(project: str, directory: str | Path, config: dict):
    """Starts a run, or goes on with the one that was begun for the same folder.

    `WANDB_MODE=offline` keeps it in the folder, for `wandb sync` to send later.

    Args:
      project: where the run appears.
      directory: the run folder; its name is the run's, and `wandb/` in it holds identifier and local files.
      config: the stage's configuration, as nested dictionaries.

    Returns:
      An object with `log(row, step=...)` and `finish()`.

    Raises:
      ConfigError: if the package is not installed, or the service refuses or cannot be reached.
    """
    refusal = "or leave the key out"
    try:
        import wandb
    except ImportError:
        raise ConfigError(
            f"wandb={project}: Weights & Biases is not installed; pip install 's3jax[wandb]', {refusal}"
        ) from None
    directory = Path(directory).absolute()
    identifier = directory / "wandb" / "s3jax_run_id"
    if not identifier.exists():
        identifier.parent.mkdir(parents=True, exist_ok=True)
        identifier.write_text(secrets.token_hex(8), encoding="utf-8")
    try:
        return wandb.init(
            project=project,
            name=directory.name,
            id=identifier.read_text(encoding="utf-8"),
            resume="allow",
            dir=directory,
            config=config,
            settings=wandb.Settings(silent=True),
        )
    except wandb.errors.Error as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"wandb={project}: {reason}; log in with `wandb login`, set WANDB_MODE=offline, {refusal}"
        ) from None
