"""TFRecord framing and the protobuf wire format."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3jax.archive import FileError
from s3jax.scenarios.example import encode_example, parse_example
from s3jax.scenarios.tfrecord import RecordError, masked_crc, read_records, write_records
from s3jax.scenarios.wire import WireError, decode_varints, encode_varints

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_records_survive_a_round_trip_with_their_places(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"", b"one", b"x" * 1000])
    records = list(read_records(path))
    assert [record.data for record in records] == [b"", b"one", b"x" * 1000]
    assert [(record.index, record.offset) for record in records] == [(0, 0), (1, 16), (2, 35)]


def test_the_checksum_is_the_one_that_tfrecord_publishes():
    # CRC-32C of 32 zero bytes is 0x8a9136aa (RFC 3720, B.4).
    assert masked_crc(bytes(32)) == ((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:5], "record 0 at byte 0: truncated header"),
        (lambda data: data[:-1], "record 1 at byte 19: truncated"),
        (lambda data: data[:25], "record 1 at byte 19: truncated header"),
        (lambda data: b"\x04" + data[1:], "record 0 at byte 0: wrong length checksum"),
        (lambda data: data[:13] + b"?" + data[14:], "record 0 at byte 0: wrong data checksum"),
        (lambda data: b"just some text, long enough", "record 0 at byte 0: wrong length checksum"),
    ],
)
def test_damage_is_reported_with_file_record_and_offset(tmp_path, damage, reason):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"one", b"three"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match=reason) as caught:
        list(read_records(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_record_longer_than_its_file_is_not_allocated(tmp_path):
    head = struct.pack("<Q", 2**62)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(head + struct.pack("<I", masked_crc(head)) + b"tail")
    with pytest.raises(RecordError, match="truncated"):
        list(read_records(path))


def test_empty_missing_and_compressed_files_are_named(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "zipped").write_bytes(gzip.compress(b"data"))
    for name, reason in (
        ("empty", "empty file"),
        ("zipped", "gzip"),
        ("absent", "no such file"),
        (".", "a folder, and not a finished scenario store"),
    ):
        with pytest.raises(FileError, match=reason):
            list(read_records(tmp_path / name))


@given(st.lists(INT64, max_size=50))
def test_varints_survive_a_round_trip(values):
    data = encode_varints(np.array(values, np.int64))
    assert decode_varints(np.frombuffer(data, np.uint8)).tolist() == values


def test_varint_sizes_are_those_of_protobuf():
    assert [len(encode_varints(np.array([v]))) for v in (0, 127, 128, 2**63 - 1, -1)] == [1, 1, 2, 9, 10]


def test_unfinished_and_overlong_varints_are_refused():
    for data in (b"\x80", b"\x01\x80", b"\x80" * 11 + b"\x01"):
        with pytest.raises(WireError):
            decode_varints(np.frombuffer(data, np.uint8))


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(
            st.lists(INT64, min_size=1, max_size=9).map(lambda v: np.array(v, np.int64)),
            st.lists(st.floats(width=32), min_size=1, max_size=9).map(lambda v: np.array(v, np.float32)),
            st.lists(st.binary(max_size=9), min_size=1, max_size=3),
        ),
        max_size=4,
    )
)
def test_examples_survive_a_round_trip(features):
    parsed = parse_example(encode_example(features))
    assert parsed.keys() == features.keys()
    for name, value in features.items():
        if isinstance(value, list):
            assert parsed[name] == value
        else:
            assert parsed[name].dtype == value.dtype
            np.testing.assert_array_equal(parsed[name], value)


def test_unpacked_lists_are_read_too():
    floats = (
        b"\x0a\x0e"
        + b"\x0a\x01f"
        + b"\x12\x09"
        + b"\x12\x07"
        + b"\x0d"
        + struct.pack("<f", 1.5)
        + b"\x08\x01"
    )
    integers = b"\x0a\x0b" + b"\x0a\x01i" + b"\x12\x06" + b"\x1a\x04" + b"\x08\x05\x08\x07"
    assert parse_example(b"\x0a\x0d" + integers)["i"].tolist() == [5, 7]
    with pytest.raises(WireError):
        parse_example(b"\x0a\x10" + floats)  # a varint inside a float list


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_parse_or_are_refused(data):
    try:
        parse_example(data)
    except WireError as error:
        assert "\n" not in str(error)
