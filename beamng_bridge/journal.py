"""A journal: what the game said, as it said it, one JSON object per line, written as it comes.

It keeps the game's own signs and units, so that a recording can be made from it again when a setting turns
out to be wrong. Each line goes to the operating system at once and to the disk every second: a killed program
loses nothing, a power cut at most that.
"""

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from s3jax.archive import FileError

SUFFIX = ".jsonl"
KIND, VERSION = "bridge_journal", 1


class Journal(NamedTuple):
    """What was written.

    Attributes:
      header: the writer's facts.
      samples: in order, each with `state` and `electrics`.
      ended: why the recording ended, or None if it was cut off.
    """

    header: dict
    samples: list[dict]
    ended: str | None


class JournalWriter:
    """Writes a journal; a context manager that notes why it ended.

    Args:
      path: the file; must not exist.
      header: JSON-able facts.

    Raises:
      FileError: if the file exists or cannot be written.
    """

    def __init__(self, path: str | Path, header: dict):
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "x", encoding="utf-8", newline="\n")  # noqa: SIM115 (closed by close)
        except FileExistsError:
            raise FileError(f"{path}: exists already; choose another name") from None
        except OSError as error:
            raise FileError(f"{path}: cannot be written ({error.strerror})") from None
        self._synced = 0.0
        self._write({"kind": KIND, "version": VERSION} | header)

    def append(self, state: dict, electrics: dict) -> None:
        """Adds what the sensors said."""
        self._write({"wall": time.time(), "state": state, "electrics": electrics})

    def _write(self, line: dict) -> None:
        self._file.write(json.dumps(line, default=str) + "\n")
        self._file.flush()
        if time.monotonic() - self._synced > 1.0:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self, reason: str) -> None:
        """Notes why the recording ended, and closes the file."""
        self._synced = 0.0
        self._write({"ended": reason})
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close("finished" if kind is None else f"{kind.__name__}: {error}")


def read_journal(path: str | Path) -> Journal:
    """Reads a journal; of one that was cut off, all lines that arrived whole.

    Raises:
      FileError: if the file is missing or no journal.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    header = _object(lines[0])
    if header.get("kind") != KIND:
        raise FileError(f"{path}: not a journal of the bridge (it does not begin like one)")
    if header.get("version") != VERSION:
        raise FileError(f"{path}: journal version {header.get('version')}, this bridge reads {VERSION}")
    samples = []
    for line in lines[1:]:
        content = _object(line)
        if "ended" in content:
            return Journal(header, samples, str(content["ended"]))
        if not ("state" in content and "electrics" in content):
            break  # torn: nothing behind it can be trusted
        samples.append(content)
    return Journal(header, samples, None)


def _object(line: bytes) -> dict:
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
