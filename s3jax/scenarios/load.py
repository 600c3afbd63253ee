"""Loading scenarios from files: the kind of a file is found from its content, not its name."""

import glob
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from s3jax.archive import FileError
from s3jax.scenarios import wire
from s3jax.scenarios.compact import compact
from s3jax.scenarios.raw import RawScene, SceneError
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tfrecord import Record, RecordError, read_records
from s3jax.scenarios.womd_example import scene_from_example
from s3jax.scenarios.womd_proto import scene_from_proto

_SHARDS = re.compile(r"(.+)@([1-9]\d*)")


def load_scenarios(
    patterns: str | Path | Iterable[str | Path],
    dt: float = 0.05,
    limit: int | None = None,
    on_error: Callable[[FileError], None] | None = None,
) -> list[Scenario]:
    """Loads every scene of the files as scenarios.

    Args:
      patterns: files, globs, or sharded names such as `training.tfrecord@1000`; one or several.
      dt: sample interval of the references (s).
      limit: stop after this many scenarios.
      on_error: called with the error of every record that cannot be used, which is then skipped; without it
        the first such record is raised.

    Returns:
      At least one scenario.

    Raises:
      FileError: if a file is missing, empty or of no known kind, or if no scenario is left.
      RecordError: for the first record that cannot be used, naming file, record and byte offset.
    """
    scenarios = []
    for path in expand(patterns):
        for scenario in read_scenarios(path, dt, on_error):
            scenarios.append(scenario)
            if len(scenarios) == limit:
                return scenarios
    if not scenarios:
        raise FileError(f"{_names(patterns)}: no usable scenario")
    return scenarios


def read_scenarios(path, dt: float, on_error=None) -> Iterator[Scenario]:
    """Streams the scenarios of one file; arguments and errors as in `load_scenarios`."""
    for record in _guard(read_records(path), on_error):
        try:
            yield compact(parse_scene(record), dt, source=f"{path}#{record.index}")
        except RecordError as error:
            _report(error, on_error)
        except SceneError as error:
            _report(record.error(str(error)), on_error)


def _guard(records, on_error):
    """Ends a file at the first record that cannot be framed: what follows it cannot be trusted."""
    try:
        yield from records
    except FileError as error:
        _report(error, on_error)


def _report(error, on_error):
    if on_error is None:
        raise error
    on_error(error)


def parse_scene(record: Record) -> RawScene:
    """Reads a WOMD scene from a record, in whichever of the two public forms it is.

    Raises:
      RecordError: if it is neither, or malformed.
    """
    try:
        parse = _FORMS[_form(record.data)]
        return parse(record.data)
    except (wire.WireError, SceneError) as error:
        raise record.error(str(error)) from None


_FORMS = {"example": scene_from_example, "scenario": scene_from_proto}


def _form(data: bytes) -> str:
    """Tells the forms apart by their fields: an Example has only field 1, a Scenario always 5 (its id)."""
    numbers = set()
    for number, kind, _ in wire.fields(data):
        if number == 1 and kind == wire.BYTES and not numbers:
            return "example"
        numbers.add(number)
        if 5 in numbers and numbers & {2, 6, 8}:
            return "scenario"
    raise SceneError("neither a WOMD tf.Example nor a WOMD Scenario")


def expand(patterns) -> list[str]:
    """Expands files, globs and sharded names (`name@1000`) to paths, in order.

    Raises:
      FileError: if a pattern matches nothing, or some shards are missing.
    """
    paths = []
    for pattern in [patterns] if isinstance(patterns, str | Path) else patterns:
        pattern = str(pattern)
        sharded = _SHARDS.fullmatch(pattern)
        if sharded and not Path(pattern).exists():
            name, count = sharded[1], int(sharded[2])
            shards = [f"{name}-{i:05d}-of-{count:05d}" for i in range(count)]
            missing = [shard for shard in shards if "://" not in shard and not Path(shard).exists()]
            if missing:
                first = Path(missing[0]).name
                raise FileError(f"{pattern}: {len(missing)} of {count} shards are missing, first {first}")
            paths += shards
        elif glob.has_magic(pattern) and not Path(pattern).exists():
            found = _glob(pattern)
            if not found:
                raise FileError(f"{pattern}: no file matches")
            paths += found
        else:
            paths.append(pattern)
    if not paths:
        raise FileError("no scenario file was named")
    return paths


def _glob(pattern):
    if "://" not in pattern:
        return sorted(glob.glob(pattern, recursive=True))
    try:
        import fsspec
    except ImportError:
        raise FileError(f"{pattern}: reading a URL needs fsspec (pip install fsspec gcsfs)") from None
    return sorted(file.full_name for file in fsspec.open_files(pattern))


def _names(patterns) -> str:
    return str(patterns) if isinstance(patterns, str | Path) else ", ".join(map(str, patterns))
