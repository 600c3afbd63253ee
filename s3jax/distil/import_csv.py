"""Logs of real or foreign vehicles as recordings: a CSV file and a mapping of its columns."""

import csv
import math
from pathlib import Path

import numpy as np
import pydantic

from s3jax.archive import FileError
from s3jax.config import Config
from s3jax.source.base import VehicleReading
from s3jax.source.recording import SUFFIX, RecordingWriter
from s3jax.spatial.frames import wrap_angle
from s3jax.spatial.state import VehicleState

REQUIRED = ("x", "y", "yaw", "vx", "vy", "yaw_rate", "steer_angle", "steer", "throttle", "brake")


class ColumnConfig(Config):
    """Where a quantity comes from: scale * column + offset, taken `ahead` rows later.

    Attributes:
      column: name in the file's header.
      scale: factor to SI units and our signs (x forward, y left, yaw counter-clockwise).
      offset: added after scaling.
      ahead: rows to look ahead; 1 turns a measured position that a command led to into that command.
    """

    column: str
    scale: float = 1.0
    offset: float = 0.0
    ahead: int = pydantic.Field(0, ge=0)


class CsvMapping(Config):
    """How to read a log.

    Attributes:
      columns: quantity -> column. Needed are time (s), those of `REQUIRED` (steer, throttle and brake as
        shares of full, the last two in [0, 1]) and nothing else.
      dt: sampling interval of the log (s).
      friction: multiplier of the road.
      vehicle: data sheet for the recording's header: `name`, `body` (wheelbase, front_share, cg_height) and
        `driveline` (driven).
      minimum: shortest stretch worth keeping (s). A new stretch begins where time jumps.
    """

    columns: dict[str, ColumnConfig]
    dt: float = pydantic.Field(gt=0)
    friction: float = pydantic.Field(1.0, ge=0.01, le=2.0)
    vehicle: dict = pydantic.Field(default_factory=dict)
    minimum: float = pydantic.Field(10.0, gt=0)

    @pydantic.model_validator(mode="after")
    def _complete(self):
        wanted = {"time", *REQUIRED}
        missing, unknown = wanted - self.columns.keys(), self.columns.keys() - wanted
        if missing or unknown:
            raise ValueError(
                f"columns: missing {', '.join(sorted(missing)) or 'none'}; "
                f"unknown {', '.join(sorted(unknown)) or 'none'}"
            )
        return self


def import_csv(path, mapping: CsvMapping, directory) -> list[Path]:
    """Writes a log as recordings, one per stretch without a gap in time.

    Args:
      path: CSV file with a header line, which may begin with `#`.
      mapping: of its columns.
      directory: to write to.

    Returns:
      The files written.

    Raises:
      FileError: for a file that does not fit the mapping, naming the line or column.
    """
    table = _read(path, mapping)
    gaps = np.flatnonzero(np.abs(np.diff(table["time"]) - mapping.dt) > 0.1 * mapping.dt) + 1
    bounds = [0, *gaps.tolist(), len(table["time"])]
    written = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        if (high - low) * mapping.dt < mapping.minimum:
            continue
        target = Path(directory) / f"{Path(path).stem}_{len(written):02d}{SUFFIX}"
        _write(target, {name: column[low:high] for name, column in table.items()}, path, mapping)
        written.append(target)
    if not written:
        raise FileError(
            f"{path}: no stretch of {mapping.minimum} s at {mapping.dt} s per row; is dt right? the median "
            f"interval is {np.median(np.diff(table['time'])):.4g} s"
        )
    return written


def _read(path, mapping: CsvMapping) -> dict:
    """Returns the mapped columns, name -> [T], cut to the rows that all of them have."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a CSV text file ({error})") from None
    if len(lines) < 3:
        raise FileError(f"{path}: has no rows")
    head = [name.strip() for name in lines[0]]
    head[0] = head[0].lstrip("# ")
    ahead = max(entry.ahead for entry in mapping.columns.values())
    table = {}
    for name, entry in mapping.columns.items():
        if entry.column not in head:
            raise FileError(f"{path}: no column {entry.column!r} for {name}; there are {', '.join(head)}")
        at = head.index(entry.column)
        values = np.array([_number(path, i, line, at) for i, line in enumerate(lines[1:], 2)])
        values = entry.scale * values + entry.offset
        table[name] = values[entry.ahead : len(values) - ahead + entry.ahead]
    for name, low in (("steer", -1.0), ("throttle", 0.0), ("brake", 0.0)):
        if table[name].min() < low - 1e-6 or table[name].max() > 1.0 + 1e-6:
            raise FileError(
                f"{path}: {name} is {table[name].min():.3g} to {table[name].max():.3g}, expected shares in "
                f"[{low:g}, 1]; correct its scale in the mapping"
            )
    return table


def _number(path, line_number: int, line: list[str], at: int) -> float:
    try:
        value = float(line[at])
    except (ValueError, IndexError):
        value = math.nan
    if not math.isfinite(value):
        raise FileError(f"{path}: line {line_number}: no number in column {at + 1}")
    return value


def _write(target: Path, table: dict, path, mapping: CsvMapping) -> None:
    """Writes one stretch; what the log does not know is NaN."""
    unknown, wheels = math.nan, np.full(4, math.nan)
    header = {"imported": Path(path).name, "mapping": mapping.dump(), "vehicle": mapping.vehicle}
    table["yaw"] = wrap_angle(table["yaw"])
    with RecordingWriter(target, mapping.dt, header) as writer:
        for k in range(len(table["time"])):
            row = {name: float(column[k]) for name, column in table.items()}
            reading = VehicleReading(
                time=row["time"] - float(table["time"][0]),
                state=VehicleState(**{name: row[name] for name in VehicleState._fields}),
                friction=np.full(4, mapping.friction),
                throttle=unknown,
                brake=unknown,
                gear=0,
                **dict.fromkeys(("ax", "ay", "roll", "pitch", "engine_speed"), unknown),
                **dict.fromkeys(("wheel_speed", "slip_ratio", "slip_angle", "load"), wheels),
            )
            writer.append(reading, (row["steer"], row["throttle"] - row["brake"]))
