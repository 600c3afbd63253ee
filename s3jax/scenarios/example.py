"""`tf.train.Example` messages to NumPy and back, without TensorFlow.

`Example {Features features = 1}`, `Features {map<string, Feature> feature = 1}`, `Feature` is one of
`BytesList = 1`, `FloatList = 2`, `Int64List = 3`, each with a repeated `value = 1`.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto
"""

import numpy as np

from s3jax.scenarios.wire import (
    BYTES,
    FIXED32,
    VARINT,
    WireError,
    decode_varints,
    encode_bytes,
    encode_varints,
    fields,
)

_BYTES, _FLOAT, _INT64 = 1, 2, 3


def parse_example(data: bytes) -> dict[str, np.ndarray | list[bytes]]:
    """Parses a serialised `tf.train.Example`.

    Returns:
      Feature name -> flat array (float32 or int64; the shape is not stored), or a list for a bytes feature.
      An empty feature is an empty float32 array.

    Raises:
      WireError: if the bytes are not an Example.
    """
    octets = np.frombuffer(data, np.uint8)
    features = {}
    for span in _messages(data, 0, len(data)):
        for entry in _messages(data, *span):
            name, feature = None, None
            for number, wire, value in fields(data, *entry):
                if wire != BYTES or number not in (1, 2):
                    raise WireError(f"field {number} in a feature map entry")
                if number == 1:
                    name = data[slice(*value)].decode("utf-8", "replace")
                else:
                    feature = value
            if name is None:
                raise WireError("a feature without a name")
            features[name] = _feature(data, octets, *(feature or (0, 0)))
    return features


def _messages(data, start, end):
    """Yields the spans of a message that holds nothing but sub-messages in field 1."""
    for number, wire, value in fields(data, start, end):
        if number != 1 or wire != BYTES:
            raise WireError(f"field {number} where only features are expected")
        yield value


def _feature(data, octets, start, end):
    values = np.zeros(0, np.float32)
    for kind, wire, span in fields(data, start, end):
        if wire != BYTES or kind not in (_BYTES, _FLOAT, _INT64):
            raise WireError(f"feature kind {kind}")
        parts = [
            _values(data, octets, kind, wire, value)
            for number, wire, value in fields(data, *span)
            if number == 1
        ]
        if kind == _BYTES:
            values = parts
        elif parts:
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        else:
            values = np.zeros(0, np.float32 if kind == _FLOAT else np.int64)
    return values


def _values(data, octets, kind, wire, value):
    if kind == _BYTES and wire == BYTES:
        return data[slice(*value)]
    if kind == _FLOAT and wire in (BYTES, FIXED32):
        count, rest = divmod(value[1] - value[0], 4)
        if rest:
            raise WireError("a float list is not a multiple of four bytes")
        return np.frombuffer(data, "<f4", count, value[0])
    if kind == _INT64 and wire == BYTES:
        return decode_varints(octets[slice(*value)])
    if kind == _INT64 and wire == VARINT:
        return np.array([value & (1 << 64) - 1], np.uint64).view(np.int64)
    raise WireError(f"wire type {wire} in a feature of kind {kind}")


def encode_example(features: dict) -> bytes:
    """Serialises features; the inverse of `parse_example`.

    Args:
      features: name -> array (floats become float32, integers and booleans int64) or list of bytes.
    """
    entries = []
    for name, value in sorted(features.items()):
        if isinstance(value, list):
            feature = encode_bytes(_BYTES, b"".join(encode_bytes(1, item) for item in value))
        else:
            array = np.asarray(value).reshape(-1)
            if array.dtype.kind == "f":
                feature = encode_bytes(_FLOAT, encode_bytes(1, array.astype("<f4").tobytes()))
            else:
                feature = encode_bytes(_INT64, encode_bytes(1, encode_varints(array.astype(np.int64))))
        entries.append(encode_bytes(1, encode_bytes(1, name.encode()) + encode_bytes(2, feature)))
    return encode_bytes(1, b"".join(entries))
