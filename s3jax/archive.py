"""Files of named arrays with a JSON header: one `.npz`, no pickle, written atomically."""

import contextlib
import json
import os
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from s3jax.errors import UserError

_HEADER = "__header__"
# What zipfile, zlib, json and NumPy raise on a damaged file.
_DAMAGE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, SyntaxError, MemoryError)
_DAMAGE += (RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)


class FileError(UserError):
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
        with open(path, "rb") as raw:
            if not zipfile.is_zipfile(raw):
                raise FileError(f"{path}: not an s3jax {kind} file (not a zip archive, or cut short)")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                if _HEADER not in file.files:
                    raise FileError(f"{path}: not an s3jax {kind} file (no header inside)")
                header = json.loads(file[_HEADER].tobytes())
                arrays = {name: file[name] for name in file.files if name != _HEADER}
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except _DAMAGE as error:
        raise FileError(f"{path}: not a readable s3jax {kind} file ({error})") from None
    if not isinstance(header, dict):
        raise FileError(f"{path}: not a readable s3jax {kind} file (its header is not a mapping)")
    if header.get("kind") != kind:
        raise FileError(f"{path}: is a {header.get('kind')} file, expected a {kind} file")
    if header.get("version") != version:
        raise FileError(
            f"{path}: {kind} schema version {header.get('version')}, this s3jax reads version {version}"
        )
    return header, arrays
