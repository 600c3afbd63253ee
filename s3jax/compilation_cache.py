"""Keeping compiled programs between runs, so that only the first start of a size compiles."""

import os
import tempfile
from collections.abc import MutableMapping

import platformdirs

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
    path = environment.get(DIRECTORY) or platformdirs.user_cache_path("s3jax") / "xla"
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return
    for name, value in {DIRECTORY: str(path), **DEFAULTS}.items():
        environment.setdefault(name, value)
