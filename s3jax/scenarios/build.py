"""Making stores: from dataset files, and from the world generator; all cores, resumable."""

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s3jax.archive import FileError, atomic_path, load_archive, save_archive
from s3jax.errors import UserError
from s3jax.progress import Progress, silent
from s3jax.scenarios.compact import compact
from s3jax.scenarios.read import expand, read_scenarios
from s3jax.scenarios.record import pack, record_type
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.store import INDEX, KIND, VERSION, shard_path
from s3jax.scenarios.worlds import WorldConfig, generate_world
from s3jax.spatial.reference import make_reference

_GROUP_BYTES, _GROUP_FILES = 2**28, 256
_GROUP_WORLDS = 100
_INDEXED = ("id", "features", "length", "patches", "corners")


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


class _Part(NamedTuple):
    """What becomes one shard: units of progress, what it is made of, and its scenarios (given `on_error`)."""

    units: int
    made_of: dict
    scenarios: Callable[[Callable | None], Iterable[Scenario]]


def build(
    patterns,
    directory: str | Path,
    dt: float = 0.05,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress = silent,
) -> BuildSummary:
    """Converts scenario files to a store; an interrupted build goes on where it stopped.

    Args:
      patterns: files, globs or sharded names, as in `s3jax.scenarios.load.load_scenarios`.
      directory: the store; may hold a finished or interrupted build of the same files.
      dt: sample interval of the references (s).
      strict: raise the first error instead of counting it.
      workers: processes; all cores by default, 1 for this one.
      progress: told the files done and in all.

    Raises:
      FileError: if a file is missing, the folder holds a store with another `dt`, or no scenario is usable.
      RecordError: with `strict`, for the first record that cannot be used.
    """
    parts = [
        _Part(len(paths), _facts_of_files(paths, dt), partial(_read, paths, dt))
        for paths in _groups(expand(patterns))
    ]
    return _build(parts, Path(directory), dt, strict, workers, progress)


def build_worlds(
    config: WorldConfig,
    count: int,
    directory: str | Path,
    seed: int = 0,
    dt: float = 0.05,
    workers: int | None = None,
    progress: Progress = silent,
) -> BuildSummary:
    """Generates a store of procedural worlds; scenario i is the world of seed `seed + i`.

    Args:
      config: the generator's configuration.
      count: worlds.
      directory: the store; an interrupted build goes on where it stopped.
      seed: of the first world.
      dt: sample interval of the references (s).
      workers: processes; all cores by default, 1 for this one.
      progress: told the worlds done and in all.

    Raises:
      FileError: if the folder holds a store with another `dt`.
    """
    parts = []
    for first in range(seed, seed + count, _GROUP_WORLDS):
        seeds = range(first, min(first + _GROUP_WORLDS, seed + count))
        made_of = {"version": VERSION, "dt": dt, "worlds": config.dump(), "seeds": [seeds.start, seeds.stop]}
        parts.append(_Part(len(seeds), made_of, partial(_generate, config, seeds, dt)))
    return _build(parts, Path(directory), dt, False, workers, progress)


def _read(paths, dt, on_error) -> Iterator[Scenario]:
    for path in paths:
        yield from read_scenarios(path, dt, on_error)


def _generate(config, seeds, dt, on_error) -> Iterator[Scenario]:
    for seed in seeds:
        world = generate_world(config, seed)
        yield compact(world.scene, dt, source=f"procedural:{world.kind}")


def _groups(paths) -> Iterator[list[str]]:
    """Splits files, in order, into the groups that become one shard each."""
    group, size = [], 0
    for path in paths:
        length = max(_size(path), 0)
        if group and (size + length > _GROUP_BYTES or len(group) == _GROUP_FILES):
            yield group
            group, size = [], 0
        group.append(path)
        size += length
    yield group


def _size(path) -> int:
    return Path(path).stat().st_size if Path(path).is_file() else -1


def _facts_of_files(paths, dt):
    return {"version": VERSION, "dt": dt, "paths": paths, "sizes": [_size(path) for path in paths]}


def _build(parts, directory, dt, strict, workers, progress) -> BuildSummary:
    if (directory / INDEX).exists():
        header, _ = load_archive(directory / INDEX, KIND, VERSION)
        if header["dt"] != dt:
            raise FileError(
                f"{directory}: holds a store with dt = {header['dt']} s, not {dt} s; choose another"
            )
    facts = {number: _finished(directory, number, part, strict) for number, part in enumerate(parts)}
    facts = {number: fact for number, fact in facts.items() if fact is not None}
    reused = len(facts)
    total, done = sum(part.units for part in parts), sum(parts[number].units for number in facts)
    progress(done, total)
    jobs = [
        (number, partial(_convert, directory, number, part, dt, strict))
        for number, part in enumerate(parts)
        if number not in facts
    ]
    for number, fact in _in_turn(jobs) if workers == 1 else _side_by_side(jobs, workers):
        facts[number] = fact
        done += parts[number].units
        progress(done, total)
    return _index(directory, dt, [facts[number] for number in range(len(parts))], reused)


def _in_turn(jobs):
    for number, job in jobs:
        yield number, job()


def _side_by_side(jobs, workers):
    """Runs jobs in processes; these are spawned, not forked, as a caller may hold threads, as JAX does."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _die_when_interrupted)
    try:
        numbers = {pool.submit(job): number for number, job in jobs}
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    except BrokenProcessPool:
        raise UserError(
            "a worker process died, perhaps for want of memory; finished shards are kept, and the same "
            "command goes on from there, with fewer workers or more memory"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _die_when_interrupted():
    """Ctrl-C reaches the workers too; by default each would print a traceback and take the next job."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _finished(directory, number, part, strict):
    """Returns the facts of a shard that was already made of the same things, else None."""
    path = shard_path(directory, number)
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        same = path.exists() and facts["made_of"] == json.loads(json.dumps(part.made_of))
    except (OSError, ValueError, KeyError):
        return None
    return facts if same and not (strict and facts["errors"]) else None


def _convert(directory, number, part, dt, strict) -> dict:
    """Makes one shard; runs in a worker process."""
    errors = []
    records = [pack(scenario) for scenario in part.scenarios(None if strict else errors.append)]
    facts = {"made_of": part.made_of, "count": len(records), "errors": [str(error) for error in errors]}
    with atomic_path(shard_path(directory, number)) as temporary, open(temporary, "wb") as file:
        np.save(file, np.array(records, record_type(dt)), allow_pickle=False)
    with atomic_path(shard_path(directory, number).with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(facts), encoding="utf-8")
    return facts


def _index(directory, dt, facts, reused) -> BuildSummary:
    """Writes the index of finished shards and removes what an earlier build left beside them."""
    errors = [line for fact in facts for line in fact["errors"]]
    counts = [fact["count"] for fact in facts]
    if sum(counts) == 0:
        raise FileError(f"{directory}: no usable scenario; first error: {errors[0] if errors else 'none'}")
    paths = [shard_path(directory, number) for number in range(len(facts))]
    for stale in set(directory.glob("shard-*.npy")) - set(paths):
        stale.unlink()
        stale.with_suffix(".json").unlink(missing_ok=True)
    for unfinished in directory.glob(".shard-*"):  # of workers that were killed
        unfinished.unlink()
    shards = [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
    # Of stored references only the rows that count are kept; a bank adds the extension.
    extension = len(make_reference(*np.zeros((4, 2)), dt).samples) - 2
    columns = {name: np.concatenate([shard[name] for shard in shards]) for name in _INDEXED}
    shapes = np.stack([columns["length"] + extension, columns["patches"], columns["corners"]], axis=1)
    arrays = {"features": columns["features"], "ids": columns["id"], "shapes": shapes}
    save_archive(directory / INDEX, KIND, VERSION, {"dt": dt, "counts": counts, "errors": errors}, arrays)
    return BuildSummary(sum(counts), errors, reused, len(facts))
