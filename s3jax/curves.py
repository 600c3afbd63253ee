"""The curves of a run while it runs: a CSV file complete at any moment, TensorBoard, Weights & Biases."""

import csv
import math
import os
import time
from pathlib import Path

from s3jax.archive import FileError, atomic_path


class Curves:
    """Rows of scalars by update; an empty field is a scalar that was not measured there.

    A run that goes on from a checkpoint drops the rows after it from the CSV file, and, by a mark in a new
    event file, from TensorBoard. No row is there twice.
    """

    def __init__(self, path: str | Path, until: int, events: str | Path, step: str = "update", run=None):
        """Reads the rows up to an update, the one that training goes on from; drops later ones.

        Args:
          path: the CSV file.
          until: the update.
          events: folder of TensorBoard's event files.
          step: the column along which TensorBoard and Weights & Biases draw.
          run: of Weights & Biases, from `s3jax.weights_and_biases.start_run`; none without it.

        Raises:
          FileError: if the CSV file is there but was damaged.
        """
        self._path, self._step, self._run = Path(path), step, run
        rows = read_rows(path) if self._path.exists() else []
        self._rows = [row for row in rows if row["update"] <= until]
        first = self._rows[-1][step] + 1 if self._rows else 0
        self._events = EventFile(events, int(first))

    def append(self, row: dict) -> None:
        """Adds a row, numbers by name with `update` among them; it is in every file when this returns."""
        self._rows.append(row)
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        with atomic_path(self._path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, restval="")
            writer.writeheader()
            writer.writerows(self._rows)
        step = int(row[self._step])
        self._events.append(step, row)
        if self._run is not None:
            self._run.log(row, step=step)

    def last(self, prefix: str) -> dict:
        """Returns the scalars of a prefix, without it, from the last row that has any."""
        for row in reversed(self._rows):
            found = {k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix)}
            if found:
                return found
        return {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._events.close()
        if self._run is not None:
            self._run.finish()


class EventFile:
    """One of TensorBoard's event files, written through at every row so that a kill loses nothing."""

    def __init__(self, directory: str | Path, first: int):
        """Opens a new file in a folder; TensorBoard drops what earlier files there say from step `first`."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        # Not SummaryWriter: its rows pass through a queue that a flush does not empty.
        self._writer = EventsWriter(str(directory / "events"), f".{os.getpid()}.{first}")
        self._write(step=first, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def append(self, step: int, row: dict) -> None:
        """Writes a row of scalars."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._write(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _write(self, **fields):
        self._writer.write_event(self._event(wall_time=time.time(), **fields))
        self._writer.flush()


def read_rows(path: str | Path) -> list[dict]:
    """Reads a CSV file of curves.

    Args:
      path: the file.

    Returns:
      The rows in order of `update`, each without the scalars that were not measured there.

    Raises:
      FileError: if the file is missing or was damaged; the message names the line.
    """
    rows = []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            for fields in reader:
                problem = _problem(fields, rows)
                if problem:
                    raise FileError(
                        f"{path}: line {reader.line_num}: {problem}; mend it, or move the file away to go on "
                        "without the earlier curves"
                    )
                rows.append({name: float(text) for name, text in fields.items() if text})
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a readable file of curves ({error})") from None
    return rows


def _problem(fields: dict, rows: list[dict]) -> str | None:
    """Says what is wrong with a line of a CSV file of curves, given the rows before it."""
    if None in fields or None in fields.values():
        return "not as many fields as names in the first line"
    for name, text in fields.items():
        try:
            float(text or "nan")
        except ValueError:
            return f"{name} is {text!r}, not a number"
    update = float(fields.get("update") or "nan")
    if not math.isfinite(update) or (rows and update <= rows[-1]["update"]):
        return "its update is missing or not after that of the line before"
    return None
