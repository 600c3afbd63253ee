"""Recordings: one episode per file, written row by row, readable after a crash at any byte.

Layout, little-endian: magic, length and CRC-32 of a JSON header, the header; then chunks of mark `ROWS`,
row count and CRC-32 of the rows, and the rows as float64; and, if the episode was finished, mark `DONE` and
the total count. Row k holds the reading at t_k and the control applied from t_k to t_k + dt.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax import __version__
from s3jax.archive import FileError
from s3jax.source.base import WHEELS, VehicleReading
from s3jax.spatial.state import CONTROL_DEFINITION, STATE_DEFINITION, VehicleState

SCHEMA_VERSION = 1
SUFFIX = ".rec"
"""Conventional ending of a recording's name."""

_PER_WHEEL = ("wheel_speed", "friction", "slip_ratio", "slip_angle", "load")
COLUMNS = (
    "t",
    *VehicleState._fields,
    "ax",
    "ay",
    "roll",
    "pitch",
    "throttle",
    "brake",
    "gear",
    "engine_speed",
    *(f"{name}_{wheel}" for name in _PER_WHEEL for wheel in WHEELS),
    "steer",
    "pedal",
)
"""What a row holds: `VehicleReading` with wheels spelt out (SI units, rad), then the control."""

_MAGIC = b"S3JAXREC"
_HEAD = struct.Struct("<8sII")
_CHUNK = struct.Struct("<4sII")
_MAX_HEADER = 1 << 24


class Recording(NamedTuple):
    """A recorded episode.

    Attributes:
      header: what the writer was given, and `complete`, `rows` and `dropped_bytes` as found when reading.
      columns: name -> [T].
    """

    header: dict
    columns: dict


def versions() -> dict:
    """Returns the versions of everything that shapes a recording."""
    found = {"s3jax": __version__, "python": platform.python_version()}
    for name in ("mujoco-core", "numba", "numpy", "beamngpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def row_of(reading: VehicleReading, control) -> list[float]:
    """Returns the row of a reading and the control that follows it, in the order of `COLUMNS`."""
    r = reading
    row = [r.time, *r.state, r.ax, r.ay, r.roll, r.pitch, r.throttle, r.brake, r.gear, r.engine_speed]
    for name in _PER_WHEEL:
        row.extend(getattr(r, name))
    row.extend(control)
    return row


class RecordingWriter:
    """Writes one episode; a context manager that marks the file complete if the block ends without error.

    Whole chunks go to the operating system once per simulated second, so a killed writer loses at most that.

    Args:
      path: the file; what was there is replaced.
      dt: control step (s).
      header: further JSON-able facts: vehicle, track, surface, driver, seed.
    """

    def __init__(self, path, dt: float, header: dict):
        facts = {
            "kind": "recording",
            "version": SCHEMA_VERSION,
            "dt": float(dt),
            "state_definition": STATE_DEFINITION,
            "control_definition": CONTROL_DEFINITION,
            "columns": list(COLUMNS),
            "versions": versions(),
        }
        taken = sorted(set(facts) & set(header))
        if taken:
            raise ValueError(f"recording header: {', '.join(taken)} cannot be given")
        text = json.dumps(facts | header).encode()
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "wb")  # noqa: SIM115 (closed by close)
        self._file.write(_HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text)
        self._file.flush()
        self._rows, self._total = [], 0
        self._rows_per_chunk = max(1, int(1.0 / dt))

    def append(self, reading: VehicleReading, control) -> None:
        """Adds the reading at t_k and the control [2] applied from then to t_k + dt."""
        row = row_of(reading, control)
        if len(row) != len(COLUMNS):
            raise ValueError(f"recording: a row of {len(row)} values, expected {len(COLUMNS)}")
        self._rows.append(row)
        self._total += 1
        if len(self._rows) >= self._rows_per_chunk:
            self.flush()

    def flush(self) -> None:
        """Hands what has been added to the operating system."""
        if self._rows:
            data = np.array(self._rows, "<f8").tobytes()
            self._file.write(_CHUNK.pack(b"ROWS", len(self._rows), zlib.crc32(data)) + data)
            self._file.flush()
            self._rows = []

    def close(self, complete: bool) -> None:
        """Closes the file, marking it complete or leaving it as a recording that was cut short."""
        if self._file.closed:
            return
        self.flush()
        if complete:
            total = struct.pack("<I", self._total)
            self._file.write(_CHUNK.pack(b"DONE", self._total, zlib.crc32(total)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close(complete=kind is None)


def read_recording(path) -> Recording:
    """Reads a recording; of one that was cut short, all chunks that arrived whole.

    Raises:
      FileError: if the file is missing, is no recording, is of another schema version or has no whole header.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    header, at = _read_header(path, data)
    width = len(header["columns"])
    chunks, rows, complete = [], 0, False
    while len(data) - at >= _CHUNK.size:
        mark, count, crc = _CHUNK.unpack_from(data, at)
        if mark == b"DONE":
            complete = count == rows and zlib.crc32(struct.pack("<I", count)) == crc
            at += _CHUNK.size if complete else 0
            break
        end = at + _CHUNK.size + count * width * 8
        if mark != b"ROWS" or end > len(data) or zlib.crc32(data[at + _CHUNK.size : end]) != crc:
            break
        chunks.append(np.frombuffer(data, "<f8", count * width, at + _CHUNK.size).reshape(count, width))
        rows, at = rows + count, end
    table = np.concatenate(chunks) if chunks else np.zeros((0, width))
    facts = {"complete": complete and at == len(data), "rows": rows, "dropped_bytes": len(data) - at}
    columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(header["columns"])}
    return Recording(header | facts, columns)


def _read_header(path, data: bytes) -> tuple[dict, int]:
    if len(data) < _HEAD.size or data[:8] != _MAGIC:
        raise FileError(f"{path}: not an s3jax recording (it does not begin like one)")
    _, length, crc = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    if length > _MAX_HEADER or len(text) < length or zlib.crc32(text) != crc:
        raise FileError(f"{path}: its header is damaged or cut short; nothing can be recovered, delete it")
    header = json.loads(text)
    if header.get("version") != SCHEMA_VERSION:
        raise FileError(
            f"{path}: recording schema version {header.get('version')}, this s3jax reads {SCHEMA_VERSION}; "
            "record again"
        )
    return header, _HEAD.size + length


def is_complete(path) -> bool:
    """Returns whether a finished recording of this schema version is there."""
    try:
        return read_recording(path).header["complete"]
    except FileError:
        return False


def stack_columns(recording: Recording) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the state [T, 7] (fields of `VehicleState`), control [T, 2] and friction per wheel [T, 4]."""
    columns = recording.columns
    names = (VehicleState._fields, ("steer", "pedal"), [f"friction_{wheel}" for wheel in WHEELS])
    return tuple(np.stack([columns[name] for name in group], axis=1) for group in names)
