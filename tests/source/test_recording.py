import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from s3jax.archive import FileError
from s3jax.source import recording
from s3jax.source.base import VehicleReading
from s3jax.source.recording import COLUMNS, RecordingWriter, read_recording, stack_columns
from s3jax.spatial.state import VehicleState


def reading_of(k):
    four = np.arange(4.0) + k
    state = VehicleState(*(k + np.arange(7) / 10))
    return VehicleReading(
        0.05 * k, state, 1.0, 2.0, 3.0, 4.0, four, four, four, four, four, 0.5, 0.6, 2, 300.0
    )


def write(path, rows=50, complete=True):
    writer = RecordingWriter(path, 0.05, {"driver": "test", "seed": 7})
    for k in range(rows):
        writer.append(reading_of(k), [0.1 * k, -0.5])
    writer.close(complete)


def test_round_trip(tmp_path):
    path = tmp_path / "a.rec"
    write(path)
    header, columns = read_recording(path)
    assert header["complete"] and header["rows"] == 50 and header["dropped_bytes"] == 0
    assert header["driver"] == "test" and header["dt"] == 0.05 and "mujoco-core" in header["versions"]
    assert tuple(columns) == COLUMNS and columns["t"].shape == (50,)
    assert columns["vy"][3] == pytest.approx(3.4) and columns["slip_angle_rr"][3] == 6.0
    state, control, friction = stack_columns(read_recording(path))
    assert state.shape == (50, 7) and control.shape == (50, 2) and friction.shape == (50, 4)
    np.testing.assert_allclose(control[3], [0.3, -0.5])


def test_opens_when_cut_at_any_byte(tmp_path):
    whole, cut = tmp_path / "whole.rec", tmp_path / "cut.rec"
    write(whole)
    data, columns = whole.read_bytes(), read_recording(whole).columns
    start = data.index(b"ROWS")
    for size in [*range(start, len(data), 97), len(data) - 1]:
        cut.write_bytes(data[:size])
        found = read_recording(cut)
        rows = found.header["rows"]
        assert rows % 20 == 0 or rows == 50
        # Nothing but the unfinished chunk is lost, and that is said.
        assert rows >= (size - start) // (len(COLUMNS) * 8) - 21
        assert not found.header["complete"]
        assert np.array_equal(found.columns["x"], columns["x"][:rows])
    for size in range(0, start, 41):
        cut.write_bytes(data[:size])
        with pytest.raises(FileError, match=str(cut)):
            read_recording(cut)


def test_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "a.rec"
    write(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"ROWS") + 500] ^= 1
    path.write_bytes(data)
    header = read_recording(path).header
    assert not header["complete"] and header["rows"] == 0 and header["dropped_bytes"] > 0


def test_an_error_leaves_the_recording_incomplete_but_readable(tmp_path):
    path = tmp_path / "a.rec"
    with pytest.raises(RuntimeError), RecordingWriter(path, 0.05, {}) as writer:
        writer.append(reading_of(0), [0, 0])
        raise RuntimeError
    header = read_recording(path).header
    assert not header["complete"] and header["rows"] == 1
    assert not recording.is_complete(path) and not recording.is_complete(tmp_path / "none.rec")


def test_a_second_is_on_disk_while_recording(tmp_path):
    path = tmp_path / "a.rec"
    writer = RecordingWriter(path, 0.05, {})
    for k in range(25):
        writer.append(reading_of(k), [0, 0])
    assert read_recording(path).header["rows"] >= 20
    writer.close(complete=True)


def test_a_killed_recorder_loses_at_most_a_second(tmp_path):
    path = tmp_path / "a.rec"
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import test_recording as t\n"
        "writer = t.RecordingWriter(sys.argv[2], 0.05, {})\n"
        "for k in range(10**6):\n"
        "    writer.append(t.reading_of(k), [0, 0]); print(k, flush=True)\n"
    )
    folder = str(Path(__file__).parent)
    with subprocess.Popen([sys.executable, "-c", code, folder, path], stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            if int(line) >= 130:
                break
        process.kill()
        written = [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    last = written[-1] if written else 130
    header = read_recording(path).header
    assert not header["complete"] and header["rows"] >= last - 20


def test_refuses_other_files(tmp_path):
    path = tmp_path / "a.rec"
    with pytest.raises(FileError, match="no such file"):
        read_recording(path)
    path.write_bytes(b"PK\x03\x04 something else entirely")
    with pytest.raises(FileError, match="not an s3jax recording"):
        read_recording(path)
    text = json.dumps({"kind": "recording", "version": 99, "columns": []}).encode()
    path.write_bytes(struct.pack("<8sII", b"S3JAXREC", len(text), zlib.crc32(text)) + text)
    with pytest.raises(FileError, match="schema version 99, this s3jax reads 1"):
        read_recording(path)
