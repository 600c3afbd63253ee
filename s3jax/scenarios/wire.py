"""The protobuf wire format: tags, varints and length-delimited blocks, on NumPy.

https://protobuf.dev/programming-guides/encoding
"""

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """Bytes are not a protobuf message."""


def read_varint(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Returns the unsigned varint at `start` and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if start >= end:
            raise WireError("a varint runs past the end of its message")
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
    raise WireError("a varint is longer than ten bytes")


def fields(data: bytes, start: int = 0, end: int | None = None):
    """Yields the fields of the message `data[start:end]`, in file order.

    Yields:
      Field number, wire type, and the value: an unsigned integer for a varint, else the (start, end)
      positions of the payload in `data`.

    Raises:
      WireError: if the bytes are not a message.
    """
    end = len(data) if end is None else end
    while start < end:
        tag, start = read_varint(data, start, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        if wire == VARINT:
            value, start = read_varint(data, start, end)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, start = read_varint(data, start, end)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise WireError(f"wire type {wire}")
        if start + size > end:
            raise WireError("a field runs past the end of its message")
        yield number, wire, (start, start + size)
        start += size


def decode_varints(data: np.ndarray) -> np.ndarray:
    """Decodes packed varints.

    Args:
      data: [B] uint8.

    Returns:
      [n] int64, two's complement.

    Raises:
      WireError: if the last varint is unfinished or one is longer than ten bytes.
    """
    last = data < 0x80
    if last.all():
        return data.astype(np.int64)
    ends = np.flatnonzero(last)
    if not last[-1]:
        raise WireError("the last packed varint is unfinished")
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > 10:
        raise WireError("a packed varint is longer than ten bytes")
    values = (data[starts] & 0x7F).astype(np.uint64)
    for byte in range(1, int(sizes.max())):
        more = np.flatnonzero(sizes > byte)
        values[more] |= (data[starts[more] + byte] & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
    return values.view(np.int64)


def encode_varints(values: np.ndarray) -> bytes:
    """Encodes int64 [n] as packed varints; the inverse of `decode_varints`."""
    rest = np.ascontiguousarray(values, np.int64).view(np.uint64)
    if rest.size == 0:
        return b""
    sizes = np.ones(rest.shape, np.int64)
    for byte in range(1, 10):
        sizes += rest >= np.uint64(1 << (7 * byte))
    starts = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    for byte in range(int(sizes.max())):
        rows = np.flatnonzero(sizes > byte)
        low = (rest[rows] >> np.uint64(7 * byte)).astype(np.uint8) & 0x7F
        data[starts[rows] + byte] = low | ((sizes[rows] > byte + 1) << 7).astype(np.uint8)
    return data.tobytes()


def encode_bytes(number: int, payload: bytes) -> bytes:
    """Encodes a length-delimited field."""
    return (
        encode_varints(np.array([number << 3 | BYTES])) + encode_varints(np.array([len(payload)])) + payload
    )
