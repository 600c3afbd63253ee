"""Reading scenario files, record by record; the kind of a file is found from its content, not its name."""

import glob
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from s3jax.archive import FileError
from s3jax.scenarios import wire
from s3jax.scenarios.compact import compact
from s3jax.scenarios.raw import RawScene, SceneError
from s3jax.scenarios.scenario import Scenario
from s3jax.scenarios.tfrecord import Record, RecordError, open_file, read_records
from s3jax.scenarios.womd_example import scene_from_example
from s3jax.scenarios.womd_json import scene_from_json
from s3jax.scenarios.womd_proto import scene_from_proto

_SHARDS = re.compile(r"(.+)@([1-9]\d*)")


def read_scenarios(
    path: str | Path, dt: float, on_error: Callable[[FileError], None] | None = None
) -> Iterator[Scenario]:
    """Streams the scenarios of one file.

    Args:
      path: a WOMD TFRecord of tf.Example or Scenario messages, or a GPUDrive or Nocturne JSON file.
      dt: sample interval of the references (s).
      on_error: called with the error of every record that cannot be used, which is then skipped; without it
        the first one is raised.

    Raises:
      FileError: if the file is missing, empty or compressed.
      RecordError: for the first record that cannot be used, naming file, record and byte offset.
    """
    for record in _guard(_records(path), on_error):
        try:
            yield compact(parse_scene(record), dt, source=f"{path}#{record.index}")
        except RecordError as error:
            _report(error, on_error)
        except SceneError as error:
            _report(record.error(str(error)), on_error)


def read_scenes(path: str | Path) -> Iterator[tuple[Record, RawScene]]:
    """Streams the records of one file and the scenes in them as logged; errors as in `read_scenarios`."""
    for record in _records(path):
        yield record, parse_scene(record)


def _records(path) -> Iterator[Record]:
    """A JSON file is one record."""
    with open_file(path) as file:
        head = file.read(8)
        if _is_json(head):
            yield Record(str(path), 0, 0, head + file.read())
            return
    yield from read_records(path)


def _is_json(data: bytes) -> bool:
    """Text never holds a zero byte; the length that begins a TFRecord always does."""
    return data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{") and b"\0" not in data[:8]


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
    """Reads a scene from a record, whichever of the public forms it has.

    Raises:
      RecordError: if it has none of them, or is malformed.
    """
    try:
        return _parser(record.data)(record.data)
    except (wire.WireError, SceneError) as error:
        raise record.error(str(error)) from None


def _parser(data: bytes):
    """Tells the forms apart: an Example has only field 1, a Scenario always has field 5 (its id)."""
    if _is_json(data):
        return scene_from_json
    numbers = set()
    for number, kind, _ in wire.fields(data):
        if number == 1 and kind == wire.BYTES and not numbers:
            return scene_from_example
        numbers.add(number)
        if 5 in numbers and numbers & {2, 6, 8}:
            return scene_from_proto
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

        return sorted(file.full_name for file in fsspec.open_files(pattern))
    except ImportError as error:
        raise FileError(f"{pattern}: {error}; URLs need pip install 's3jax[cloud]'") from None
    except OSError as error:
        raise FileError(f"{pattern}: cannot be listed ({error})") from None
