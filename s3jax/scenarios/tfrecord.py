"""TFRecord files: length-prefixed records, each with a masked CRC-32C of its length and of its data.

A record is `uint64 length | uint32 crc(length) | data | uint32 crc(data)`, little endian. There is no file
header, index or compression. https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from s3jax.archive import FileError, atomic_path

GZIP_MAGIC = b"\x1f\x8b"


class RecordError(FileError):
    """A record cannot be used; the message names the file, the record and its byte offset."""

    def __init__(self, path, index: int, offset: int, reason: str):
        super().__init__(f"{path}: record {index} at byte {offset}: {reason}")
        self.reason = reason

    def __reduce__(self):
        # Worker processes send these back; rebuilding from the message alone keeps it whole.
        return _rebuild, (str(self), self.reason)


def _rebuild(message, reason):
    error = RecordError.__new__(RecordError, message)
    error.args, error.reason = (message,), reason
    return error


class Record(NamedTuple):
    """One record of a file and where it stands, for error messages.

    Attributes:
      path: the file.
      index: number of the record, from 0.
      offset: byte at which it starts.
      data: its bytes.
    """

    path: str
    index: int
    offset: int
    data: bytes

    def error(self, reason: str) -> RecordError:
        """Returns an error about this record."""
        return RecordError(self.path, self.index, self.offset, reason)


def open_file(path):
    """Opens a local file, or a URL such as `gs://...` through fsspec, for reading bytes.

    Raises:
      FileError: if it cannot be opened, or fsspec is needed and absent.
    """
    path = str(path)
    try:
        if "://" not in path:
            return open(path, "rb")
        import fsspec

        return fsspec.open(path, "rb").open()
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FileError(f"{path}: a folder, and not a finished scenario store; name files in it") from None
    except ImportError as error:
        raise FileError(f"{path}: {error}; URLs need pip install 's3jax[cloud]'") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be opened ({error})") from None


def read_records(path) -> Iterator[Record]:
    """Streams the records of a TFRecord file, checking both CRCs of each.

    Raises:
      FileError: if the file is missing, empty or gzip-compressed.
      RecordError: at the first record that is truncated or fails a CRC.
    """
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        if size == 0:
            raise FileError(f"{path}: empty file, no record in it")
        if file.read(2) == GZIP_MAGIC:
            raise FileError(f"{path}: gzip-compressed; decompress it first (gunzip)")
        file.seek(0)
        index = offset = 0
        while offset < size:
            head = file.read(12)
            if len(head) < 12:
                raise RecordError(path, index, offset, f"truncated header ({len(head)} of 12 bytes)")
            length, crc = struct.unpack("<QI", head)
            if masked_crc(head[:8]) != crc:
                raise RecordError(
                    path, index, offset, "wrong length checksum; corrupt, or not a TFRecord file"
                )
            if offset + 16 + length > size:
                there = size - offset - 12
                raise RecordError(path, index, offset, f"truncated ({there} of {length + 4} bytes)")
            data = file.read(length)
            if masked_crc(data) != struct.unpack("<I", file.read(4))[0]:
                raise RecordError(path, index, offset, "wrong data checksum; the record is corrupt")
            yield Record(str(path), index, offset, data)
            index += 1
            offset += 16 + length


def write_records(path, records: Iterable[bytes]) -> None:
    """Writes a TFRecord file atomically."""
    with atomic_path(Path(path)) as temporary, open(temporary, "wb") as file:
        for data in records:
            head = struct.pack("<Q", len(data))
            file.write(head + struct.pack("<I", masked_crc(head)))
            file.write(data + struct.pack("<I", masked_crc(data)))


def masked_crc(data: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of bytes, rotated and offset as TFRecord wants it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
