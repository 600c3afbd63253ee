"""Keeping compiled programs between runs, so that only the first start of a size compiles."""

import contextlib
import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

DIRECTORY = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own variable: another folder. `JAX_ENABLE_COMPILATION_CACHE=false` keeps nothing."""

DEFAULTS = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(2**30),  # bytes; the least recently used programs go first
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
}


def use_compilation_cache(environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes JAX, which must not be imported yet, keep compiled programs in the user's cache folder.

    What the user has set himself stays. Does nothing where the folder cannot be written.

    Args:
      environment: the variables to set.
    """
    path = Path(environment.get(DIRECTORY) or platformdirs.user_cache_path("s3jax") / "xla")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        _remove_torn(path)
    except OSError:
        return
    for name, value in {DIRECTORY: str(path), **DEFAULTS}.items():
        environment.setdefault(name, value)


def _remove_torn(path: Path) -> None:
    """Removes what a kill or a full disk cut short, which JAX would warn of at every start.

    JAX writes a program, then its time of use; both while it holds the lock.
    """
    with contextlib.suppress(Timeout), FileLock(path / ".lockfile", blocking=False):
        for program in path.glob("*-cache"):
            if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
                program.unlink()
