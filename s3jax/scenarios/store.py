"""Scenarios on disk, memory-mapped.

A store is a folder of `shard-*.npy` files of fixed-size records (`s3jax.scenarios.record`), each with a
`.json` that says what it was made of, and `index.npz`, written last, with the numbers that tags are made of.
`s3jax.scenarios.build` makes it.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from s3jax.archive import FileError, load_archive
from s3jax.scenarios.record import record_type, unpack, unpack_task
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tags import FEATURES, select
from s3jax.spatial.friction import FrictionMap
from s3jax.spatial.reference import Reference

KIND, VERSION = "scenario store", 2
INDEX = "index.npz"


def shard_path(directory, number: int) -> Path:
    """Returns the path of a shard."""
    return Path(directory) / f"shard-{number:05d}.npy"


def is_store(path) -> bool:
    """Returns whether a path is the folder of a finished store."""
    return (Path(path) / INDEX).is_file()


class ScenarioStore:
    """A finished store, opened for reading.

    Attributes:
      dt: sample interval of the references (s).
      ids: [S] bytes.
      numbers: name -> [S] float32, what tags are made of (`s3jax.scenarios.tags`).
      shapes: [S, 3] the `s3jax.scenarios.bank.BankShape` that each needs.
      errors: one line for each record that could not be used when the store was built.
    """

    def __init__(self, directory: str | Path, dt: float | None = None):
        """Opens the store.

        Raises:
          FileError: if the folder is no store of this version, a shard is damaged, or `dt` differs.
        """
        header, arrays = load_archive(Path(directory) / INDEX, KIND, VERSION)
        self.dt, self.errors = header["dt"], header["errors"]
        if dt is not None and dt != self.dt:
            raise FileError(f"{directory}: built with dt = {self.dt} s, {dt} s is needed; build it again")
        self.ids, self.shapes = arrays["ids"], arrays["shapes"]
        self.numbers = dict(zip(FEATURES, arrays["features"].T, strict=True))
        self._shards = [
            self._open(shard_path(directory, i), count) for i, count in enumerate(header["counts"])
        ]
        self._ends = np.cumsum(header["counts"])

    def _open(self, path, count):
        try:
            shard = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FileError(f"{path}: not a readable shard ({error})") from None
        if shard.dtype != record_type(self.dt) or shard.shape != (count,):
            raise FileError(f"{path}: not the shard that the index describes; build the store again")
        return shard

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Scenario:
        """Returns one scenario."""
        return unpack(self._record(index), self.dt)

    def task(self, index: int) -> tuple[Reference, FrictionMap]:
        """Returns one scenario's reference and friction, all that a bank needs."""
        return unpack_task(self._record(index), self.dt)

    def _record(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"scenario {index} of {len(self)}")
        shard = int(np.searchsorted(self._ends, index, side="right"))
        first = self._ends[shard - 1] if shard else 0
        return self._shards[shard][index - first]

    def select(self, only: Iterable[str] = (), exclude: Iterable[str] = ()) -> np.ndarray:
        """Returns the indices of scenarios with a tag of `only` and none of `exclude`."""
        return np.flatnonzero(select(self.numbers, only, exclude))
