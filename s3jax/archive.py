"""Files of named arrays with a JSON header: one `.npz`, no pickle, written atomically."""

import contextlib
import json
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

_HEADER = "__header__"


class FileError(ValueError):
    """A file cannot be used; the message names it and says why."""


@contextlib.contextmanager
def atomic_path(path):
    """Yields a temporary path beside `path`; renames it to `path` when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def save_archive(path, kind: str, version: int, header: dict, arrays: dict) -> None:
    """Writes arrays and a JSON header.

    Args:
      path: the file, conventionally `.npz`.
      kind: what the file is, such as `"policy"`.
      version: schema version of this kind.
      header: JSON-able facts.
      arrays: name -> NumPy array (no objects).
    """
    text = json.dumps({"kind": kind, "version": version, **header})
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **{_HEADER: np.frombuffer(text.encode(), np.uint8)}, **arrays)


def load_archive(path, kind: str, version: int) -> tuple[dict, dict]:
    """Reads what `save_archive` wrote.

    Args:
      path: the file.
      kind: the kind expected.
      version: the schema version expected.

    Returns:
      The header and the arrays by name.

    Raises:
      FileError: if the file is missing, damaged, of another kind or of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if _HEADER not in file.files:
                raise FileError(f"{path}: not an s3jax {kind} file (no header inside)")
            header = json.loads(file[_HEADER].tobytes())
            arrays = {name: file[name] for name in file.files if name != _HEADER}
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: not a readable s3jax {kind} file ({error})") from None
    if header.get("kind") != kind:
        raise FileError(f"{path}: is a {header.get('kind')} file, expected a {kind} file")
    if header.get("version") != version:
        raise FileError(
            f"{path}: {kind} schema version {header.get('version')}, this s3jax reads version {version}"
        )
    return header, arrays
