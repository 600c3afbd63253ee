"""Loading scenarios from whatever holds them: dataset files of every known kind, and stores."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from s3jax.archive import FileError
from s3jax.scenarios.read import expand, read_scenarios
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.store import ScenarioStore, is_store
from s3jax.scenarios.tags import select, table


def load_scenarios(
    patterns: str | Path | Iterable[str | Path],
    dt: float = 0.05,
    limit: int | None = None,
    only: Iterable[str] = (),
    exclude: Iterable[str] = (),
    on_error: Callable[[FileError], None] | None = None,
) -> list[Scenario]:
    """Loads the scenarios of files and stores.

    Args:
      patterns: files, globs, sharded names such as `training.tfrecord@1000`, or folders that
        `s3jax scenarios build` made; one or several.
      dt: sample interval of the references (s).
      limit: keep only the first so many.
      only: keep scenarios with at least one of these tags (`s3jax.scenarios.tags.TAGS`).
      exclude: drop scenarios with any of these tags.
      on_error: called with the error of every record that cannot be used, which is then skipped; without it
        the first such record is raised.

    Returns:
      At least one scenario.

    Raises:
      ConfigError: for an unknown tag, or if no scenario has the tags.
      FileError: if a file is missing, empty or of no known kind, or holds no usable scenario.
      RecordError: for the first record that cannot be used, naming file, record and byte offset.
    """
    only, exclude = tuple(only), tuple(exclude)
    filtered = bool(only or exclude)
    scenarios = []
    for scenario in _stream(patterns, dt, on_error):
        scenarios.append(scenario)
        if not filtered and len(scenarios) == limit:
            break
    if filtered and scenarios:
        kept = select(table(scenarios), only, exclude)
        scenarios = [scenarios[i] for i in np.flatnonzero(kept)[:limit]]
    if not scenarios:
        raise FileError(f"{_names(patterns)}: no usable scenario")
    return scenarios


def _stream(patterns, dt, on_error):
    for path in expand(patterns):
        if is_store(path):
            store = ScenarioStore(path, dt)
            yield from (store[index] for index in range(len(store)))
        else:
            yield from read_scenarios(path, dt, on_error)


def _names(patterns) -> str:
    return str(patterns) if isinstance(patterns, str | Path) else ", ".join(map(str, patterns))
