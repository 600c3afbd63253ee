"""Scenarios on disk: read once from their files, then memory-mapped.

A store is a folder of `shard-*.npy` files of fixed-size records (`s3jax.scenarios.record`), each with a
`.json` that says what it was made of, and `index.npz`, written last, with the numbers that tags are made of.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.archive import FileError, atomic_path, load_archive, save_archive
from s3jax.progress import Progress, silent
from s3jax.scenarios.bank import ScenarioBank, make_bank
from s3jax.scenarios.read import expand, read_scenarios
from s3jax.scenarios.record import pack, record_type, unpack
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tags import FEATURES, select

_KIND, _VERSION = "scenario store", 1
_INDEX = "index.npz"
_GROUP_BYTES, _GROUP_FILES = 2**28, 256


class BuildSummary(NamedTuple):
    """What a build did.

    Attributes:
      scenarios: number stored.
      errors: one line for each record that could not be used.
      reused: shards found finished from before.
      shards: shards in all.
    """

    scenarios: int
    errors: list[str]
    reused: int
    shards: int


def build(
    patterns, directory: str | Path, dt: float = 0.05, strict: bool = False, workers: int | None = None,
    progress: Progress = silent,
) -> BuildSummary:  # fmt: skip
    """Converts scenario files to a store; an interrupted build goes on where it stopped.

    Args:
      patterns: as in `s3jax.scenarios.load.load_scenarios`.
      directory: the store; may hold a finished or interrupted build of the same files.
      dt: sample interval of the references (s).
      strict: raise the first error instead of counting it.
      workers: processes; all cores by default.
      progress: told the files done and in all.

    Raises:
      FileError: if a file is missing, or the folder holds a store with another `dt`, or no scenario is
        usable.
      RecordError: with `strict`, for the first record that cannot be used.
    """
    directory = Path(directory)
    _check_same(directory, dt)
    groups = list(enumerate(_groups(expand(patterns))))
    total = sum(len(paths) for _, paths in groups)
    facts, pending, done = {}, [], 0
    for number, paths in groups:
        finished = _finished(directory, number, paths, dt)
        if finished is None or (strict and finished["errors"]):
            pending.append((number, paths))
        else:
            facts[number] = finished
            done += len(paths)
    reused = len(facts)
    progress(done, total)
    # Processes are spawned, not forked: a caller may hold threads, as JAX does.
    with ProcessPoolExecutor(max_workers=workers, mp_context=get_context("spawn")) as pool:
        jobs = {
            pool.submit(_convert, directory, number, paths, dt, strict): number for number, paths in pending
        }
        try:
            for job in as_completed(jobs):
                facts[jobs[job]] = job.result()
                done += len(groups[jobs[job]][1])
                progress(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    errors = [line for number in sorted(facts) for line in facts[number]["errors"]]
    counts = [facts[number]["count"] for number, _ in groups]
    if sum(counts) == 0:
        raise FileError(f"{directory}: no usable scenario; first error: {errors[0] if errors else 'none'}")
    for stale in set(directory.glob("shard-*.npy")) - {_shard(directory, number) for number, _ in groups}:
        stale.unlink()
        stale.with_suffix(".json").unlink(missing_ok=True)
    shards = [np.load(_shard(directory, number), mmap_mode="r", allow_pickle=False) for number, _ in groups]
    features = np.concatenate([shard["features"] for shard in shards])
    header = {"dt": dt, "counts": counts, "errors": errors}
    save_archive(directory / _INDEX, _KIND, _VERSION, header, {"features": features})
    return BuildSummary(sum(counts), errors, reused, len(groups))


def _groups(paths) -> Iterator[list[str]]:
    """Splits files, in order, into the groups that become one shard each."""
    group, size = [], 0
    for path in paths:
        bytes_ = Path(path).stat().st_size if Path(path).is_file() else 0
        if group and (size + bytes_ > _GROUP_BYTES or len(group) == _GROUP_FILES):
            yield group
            group, size = [], 0
        group.append(path)
        size += bytes_
    yield group


def _check_same(directory, dt):
    if (directory / _INDEX).exists():
        header, _ = load_archive(directory / _INDEX, _KIND, _VERSION)
        if header["dt"] != dt:
            raise FileError(
                f"{directory}: holds a store with dt = {header['dt']} s, not {dt} s; choose another"
            )


def _shard(directory, number) -> Path:
    return Path(directory) / f"shard-{number:05d}.npy"


def _made_of(paths, dt):
    sizes = [Path(path).stat().st_size if Path(path).is_file() else -1 for path in paths]
    return {"version": _VERSION, "dt": dt, "paths": list(paths), "sizes": sizes}


def _finished(directory, number, paths, dt):
    """Returns the facts of a shard that is already made of the same files, else None."""
    path = _shard(directory, number)
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return facts if path.exists() and facts["made_of"] == _made_of(paths, dt) else None
    except (OSError, ValueError, KeyError):
        return None


def _convert(directory, number, paths, dt, strict) -> dict:
    """Converts one group of files to one shard; runs in a worker process."""
    errors, records = [], []

    def count(error):
        errors.append(str(error))

    for path in paths:
        records += [pack(scenario) for scenario in read_scenarios(path, dt, None if strict else count)]
    facts = {"made_of": _made_of(paths, dt), "count": len(records), "errors": errors}
    stacked = np.array(records, record_type(dt)) if records else np.zeros(0, record_type(dt))
    with atomic_path(_shard(directory, number)) as temporary, open(temporary, "wb") as file:
        np.save(file, stacked, allow_pickle=False)
    with atomic_path(_shard(directory, number).with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(facts), encoding="utf-8")
    return facts


def is_store(path) -> bool:
    """Returns whether a path is the folder of a finished store."""
    return (Path(path) / _INDEX).is_file()


class ScenarioStore:
    """A finished store, opened for reading.

    Attributes:
      dt: sample interval of the references (s).
      numbers: name -> [S] float32, what tags are made of (`s3jax.scenarios.tags`).
      errors: one line for each record that could not be used when the store was built.
    """

    def __init__(self, directory: str | Path, dt: float | None = None):
        """Opens the store.

        Raises:
          FileError: if the folder is no store of this version, a shard is damaged, or `dt` differs.
        """
        header, arrays = load_archive(Path(directory) / _INDEX, _KIND, _VERSION)
        self.dt, self.errors = header["dt"], header["errors"]
        if dt is not None and dt != self.dt:
            raise FileError(f"{directory}: built with dt = {self.dt} s, {dt} s is needed; build it again")
        self.numbers = dict(zip(FEATURES, arrays["features"].T, strict=True))
        self._shards = [self._open(_shard(directory, i), count) for i, count in enumerate(header["counts"])]
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
        if not 0 <= index < len(self):
            raise IndexError(f"scenario {index} of {len(self)}")
        shard = int(np.searchsorted(self._ends, index, side="right"))
        first = self._ends[shard - 1] if shard else 0
        return unpack(self._shards[shard][index - first], self.dt)

    def select(self, only=(), exclude=()) -> np.ndarray:
        """Returns the indices of scenarios with a tag of `only` and none of `exclude`."""
        return np.flatnonzero(select(self.numbers, only, exclude))

    def banks(self, count: int, seed: int, indices: np.ndarray | None = None) -> Iterator[ScenarioBank]:
        """Streams banks of `count` scenarios for ever, for sets that do not fit on the device.

        Every scenario comes once before any comes again; the same seed gives the same order. All banks have
        the same shapes where the scenarios have the same duration, so the training step does not compile
        again.

        Raises:
          ValueError: if there are fewer than `count` scenarios.
        """
        indices = np.arange(len(self)) if indices is None else np.asarray(indices)
        if not 0 < count <= len(indices):
            raise ValueError(f"a bank of {count} scenarios from {len(indices)}")
        rng = np.random.default_rng(seed)
        order = np.zeros(0, int)
        while True:
            if len(order) < count:
                order = np.concatenate([order, rng.permutation(indices)])
            yield make_bank([self[int(i)] for i in order[:count]])
            order = order[count:]
