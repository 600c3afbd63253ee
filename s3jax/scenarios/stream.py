"""Scenarios for training: which ones, split into train and held-out, and banks of them for the device.

A set that does not fit on the device is trained on bank by bank. Every bank has the same shape, so that
nothing compiles again, and is a function of the seed and its number, so that a run goes on to the bit.
"""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
from pydantic import Field

from s3jax.archive import FileError
from s3jax.config import Config, ConfigError
from s3jax.scenarios.bank import BankShape, ScenarioBank, fill_bank
from s3jax.scenarios.procedural import ProceduralConfig, generate
from s3jax.scenarios.read import expand, read_scenarios
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.store import ScenarioStore, is_store
from s3jax.scenarios.tags import FEATURES, columns, select


class ScenarioConfig(Config):
    """Which scenarios to train and evaluate on."""

    files: tuple[str, ...] = Field(
        (), description="WOMD files, patterns or stores, added to the procedural scenarios"
    )
    procedural: ProceduralConfig = ProceduralConfig()
    only: tuple[str, ...] = Field((), description="keep scenarios with at least one of these tags")
    exclude: tuple[str, ...] = Field((), description="drop scenarios with any of these tags")
    held_out: float = Field(0.1, gt=0, lt=1, description="share kept for evaluation")
    bank: int = Field(0, ge=0, description="most scenarios on the device at once; 0 for no limit")
    resample_every: int = Field(
        50, gt=0, description="updates after which another bank is drawn, where not all scenarios fit"
    )


class _Loaded:
    """Scenarios in memory, with the interface of a `ScenarioStore`; only what a bank needs is kept."""

    def __init__(self, scenarios: Iterable[Scenario]):
        self._tasks, kept = [], []
        for scenario in scenarios:
            self._tasks.append((scenario.reference, scenario.friction))
            kept.append((scenario.id, scenario.features, BankShape.of([self._tasks[-1]])))
        ids, features, shapes = zip(*kept, strict=True) if kept else ((), (), ())
        self.ids, self.numbers = np.array(ids, "S48"), columns(features)
        self.shapes = np.array(shapes, np.int32).reshape(-1, 3)

    def task(self, index: int):
        return self._tasks[index]


class ScenarioSet:
    """The scenarios that a configuration names and does not filter out: procedural, from files, from stores.

    Files are read whole; stores stay on the disk.

    Attributes:
      ids: [S] bytes.
      part: [S] where each comes from: a number per store, one for all other files, one for the procedural.
      shape: that of a bank which can hold any of them.
    """

    def __init__(self, config: ScenarioConfig, seed: int, dt: float):
        """Opens or generates everything.

        Args:
          config: the scenarios.
          seed: of the procedural ones.
          dt: sample interval of the references (s).

        Raises:
          FileError: if a file or store cannot be used.
          ConfigError: for an unknown tag, or if no scenario is left.
        """
        self._parts = list(_parts(config, seed, dt))
        if not self._parts:
            raise ConfigError("no scenarios: scenarios.procedural.count is 0 and scenarios.files is empty")
        numbers = {name: np.concatenate([part.numbers[name] for part in self._parts]) for name in FEATURES}
        kept = np.flatnonzero(select(numbers, config.only, config.exclude))
        sizes = [len(part.ids) for part in self._parts]
        self.part = np.repeat(np.arange(len(sizes)), sizes)[kept]
        self._row = np.concatenate([np.arange(size) for size in sizes])[kept]
        self.ids = np.concatenate([part.ids for part in self._parts])[kept]
        self.shape = BankShape(
            *np.concatenate([part.shapes for part in self._parts])[kept].max(axis=0).tolist()
        )

    def __len__(self) -> int:
        return len(self.ids)

    def bank(self, indices: Iterable[int] | None = None) -> ScenarioBank:
        """Returns a bank, in NumPy, of the scenarios of `indices`, or of all."""
        indices = range(len(self)) if indices is None else indices
        tasks = [self._parts[self.part[i]].task(int(self._row[i])) for i in indices]
        return fill_bank(tasks, self.shape)

    def split(self, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Splits each part into train and held-out scenarios; returns the indices of both, [T] and [H].

        Scenarios of one id, in whatever parts, stay together. Which ones are held out hangs on a hash of id
        and seed alone, not on the order of files.

        Raises:
          ConfigError: if either would be empty.
        """
        unique, first, inverse = np.unique(self.ids, return_index=True, return_inverse=True)
        keys = [hashlib.blake2b(b"%d " % seed + name, digest_size=8).digest() for name in unique]
        held = np.zeros(len(unique), bool)
        for part in np.unique(self.part[first]):
            own = np.flatnonzero(self.part[first] == part)
            held[sorted(own, key=keys.__getitem__)[: round(share * len(own))]] = True
        mask = held[inverse]
        if mask.all() or not mask.any():
            raise ConfigError(
                f"{len(unique)} scenarios cannot be split with scenarios.held_out = {share}; raise "
                "scenarios.procedural.count or name more files"
            )
        return np.flatnonzero(~mask), np.flatnonzero(mask)


def _parts(config, seed, dt) -> Iterator[_Loaded | ScenarioStore]:
    if config.procedural.count:
        yield _Loaded(generate(config.procedural, seed, dt))
    paths = expand(config.files) if config.files else []
    files = [path for path in paths if not is_store(path)]
    if files:
        loaded = _Loaded(chain.from_iterable(read_scenarios(path, dt) for path in files))
        if not len(loaded.ids):
            raise FileError(f"{', '.join(config.files)}: no usable scenario")
        yield loaded
    yield from (ScenarioStore(path, dt) for path in paths if is_store(path))


class ScenarioStream:
    """Banks of train scenarios by number, and the bank of held-out ones.

    Bank k holds the next `count` of an endless series of permutations, so every scenario comes once before
    any comes again; where all scenarios fit there is one bank. To make the number of scenarios a multiple of
    `multiple`, banks are rounded up, and the series just goes on: a few scenarios come twice.

    Each of several processes makes its own share of a bank; their concatenation does not hang on how many
    processes there are. The next bank is made in the background.

    Attributes:
      scenarios: train scenarios of all processes.
      count: scenarios in a global bank.
      held_out: this process's share of the held-out scenarios, in NumPy; at most `config.bank` globally.
    """

    def __init__(
        self,
        scenarios: ScenarioSet,
        config: ScenarioConfig,
        seed: int,
        multiple: int = 1,
        process: int = 0,
        processes: int = 1,
    ):
        """Splits the scenarios.

        Args:
          scenarios: all of them, train and held-out.
          config: the share that is held out and the size of a bank.
          seed: of the split and the banks.
          multiple: the global number of scenarios in a bank is a multiple of this, as is that of the held-out
            ones; itself a multiple of `processes`.
          process: number of this process, from 0.
          processes: number of processes.

        Raises:
          ConfigError: if there are too few scenarios.
        """
        if multiple % processes:
            raise ValueError(f"multiple {multiple} is not a multiple of {processes} processes")
        self._set = scenarios
        train, held_out = scenarios.split(config.held_out, seed)
        self._seed, self._every, self._train = seed, config.resample_every, train

        def size(scenarios):
            """How many of them a global bank takes."""
            wanted = min(len(scenarios), config.bank or len(scenarios))
            return -(-wanted // multiple) * multiple

        self._share = process, processes
        self.scenarios, self.count = len(train), size(train)
        self.held_out = self._draw(held_out, size(held_out), 0)
        self._pool = ThreadPoolExecutor(1, "scenarios")
        self._ahead = {}

    def interval(self, update: int) -> int:
        """Returns the number of the bank that update number `update`, from 0, is trained on."""
        return update // self._every if self.count < self.scenarios else 0

    def bank(self, number: int) -> ScenarioBank:
        """Returns this process's share of bank `number`, in NumPy, and begins to make the next one."""
        ahead = self._ahead.pop(number, None)
        bank = self._draw(self._train, self.count, number) if ahead is None else ahead.result()
        if self.count < self.scenarios:
            draw = self._pool.submit(self._draw, self._train, self.count, number + 1)
            self._ahead = {number + 1: draw}
        return bank

    def _draw(self, scenarios, count, number):
        """Returns this process's share of bank `number` of `count` scenarios."""
        process, processes = self._share
        visited = _visit(scenarios, count, self._seed, number).reshape(processes, -1)
        return self._set.bank(visited[process])


def _visit(indices, count, seed, number):
    """Returns entries `number * count` to `(number + 1) * count` of a series of permutations of `indices`."""
    first, beyond = divmod(number * count, len(indices))
    last = ((number + 1) * count - 1) // len(indices)
    series = [np.random.default_rng([seed, epoch]).permutation(indices) for epoch in range(first, last + 1)]
    return np.concatenate(series)[beyond : beyond + count]
