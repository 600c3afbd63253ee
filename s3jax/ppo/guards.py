"""What can go wrong with a run on a machine, in one sentence with the remedy."""

import contextlib
import errno
import math
from pathlib import Path

import jax

from s3jax.archive import FileError
from s3jax.errors import DivergedError, UserError

COUNTS = ("loss/skipped", "env/not_finite")
"""Metrics that are not zero when something went wrong in an update."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class OutOfMemoryError(UserError):
    """The device or the machine has too little memory for the configured sizes."""


@contextlib.contextmanager
def explained(directory: Path):
    """Turns errors of the machine inside the block into sentences for the user.

    Args:
      directory: the run folder.

    Raises:
      OutOfMemoryError: for a device or a machine that is out of memory.
      FileError: for a full disk, or a folder that cannot be written.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        known = _known(error, directory)
        if known is None:
            raise
        raise known from error


def _known(error: BaseException | None, directory: Path) -> UserError | None:
    """Returns the sentence for an error or for one that led to it, if there is one."""
    while error is not None:
        # Orbax and TensorStore pass the system's words on in errors of other types.
        text = " ".join(str(error).split())
        number = error.errno if isinstance(error, OSError) else None
        if number in _FULL or "No space left on device" in text or "Disk quota exceeded" in text:
            return FileError(
                f"{directory}: the disk is full; free some space and start the same command, it goes on "
                "from the last checkpoint"
            )
        if number in _REFUSED or "Permission denied" in text or "Read-only file system" in text:
            return FileError(f"{directory}: cannot be written ({text}); choose another folder")
        exhausted = "RESOURCE_EXHAUSTED" in text or "Out of memory" in text  # as XLA says it: on a GPU, a CPU
        if isinstance(error, MemoryError) or (exhausted and isinstance(error, jax.errors.JaxRuntimeError)):
            return OutOfMemoryError(
                f"out of memory ({text[:160]}); lower ppo.num_envs or ppo.rollout, or raise ppo.minibatches; "
                "where other programs use the GPU too, set XLA_PYTHON_CLIENT_PREALLOCATE=false"
            )
        error = error.__cause__ or error.__context__
    return None


def check_finite(row: dict, directory: Path, checkpoint: int) -> None:
    """Refuses numbers that are not finite.

    Args:
      row: metrics by name, with `update`, and the `COUNTS` summed since the row before.
      directory: the run folder.
      checkpoint: the update of the last checkpoint in it.

    Raises:
      DivergedError: naming what is not finite, when, and what to go back to.
    """
    remedy = "lower ppo.learning_rate and start another run folder"
    names = [name for name, value in row.items() if not math.isfinite(value)]
    if row["env/not_finite"]:
        problem = f"the dynamics model's state was not finite in {100 * row['env/not_finite']:.2g} % of steps"
        remedy = "see `s3jax bench stability`, or distil a model from more recordings"
    elif row["loss/skipped"]:
        problem = f"{row['loss/skipped']:.0f} gradient steps were not finite"
    elif names:
        problem = f"not finite: {', '.join(names)}"
    else:
        return
    raise DivergedError(
        f"update {row['update']}: {problem}. The last good checkpoint in {directory} is that of update "
        f"{checkpoint}; {remedy}"
    )
