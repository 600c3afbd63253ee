"""The curves of a run as a CSV file that is complete at any moment."""

import csv
from pathlib import Path

from s3jax.archive import atomic_path


class Curves:
    """Rows of scalars by update; an empty field is a scalar that was not measured there."""

    def __init__(self, path: str | Path, until: int):
        """Reads the rows up to an update, the one that training goes on from; drops later ones."""
        self._path = Path(path)
        self._rows = []
        if self._path.exists():
            with open(self._path, newline="", encoding="utf-8") as file:
                rows = [
                    {name: float(text) for name, text in row.items() if text} for row in csv.DictReader(file)
                ]
            self._rows = [row for row in rows if row["update"] <= until]

    def append(self, row: dict) -> None:
        """Adds a row and rewrites the file."""
        self._rows.append(row)
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        with atomic_path(self._path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, restval="")
            writer.writeheader()
            writer.writerows(self._rows)

    def last(self, prefix: str) -> dict:
        """Returns the scalars of a prefix, without it, from the last row that has any."""
        for row in reversed(self._rows):
            found = {k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix)}
            if found:
                return found
        return {}
