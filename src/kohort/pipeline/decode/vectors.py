"""
Arrow arrays from one buffer of bytes; `kohort.wire.columnar.vectors` reads the numbers.

Every function takes positions as an array and trusts them: the caller keeps them inside the buffer. Buffers are padded (see
`records.PADDING_BYTES`), so a fixed number of bytes can be read at any position.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kohort.wire.columnar.vectors import Bools, Bytes, Ints


def slices(data: Bytes, at: Ints, length_bytes: Ints, valid: Bools | None = None) -> pa.Array:
    """
    Byte strings by position and length, as `strings`.

    The gaps and the slices are made one binary array over `data` without copying, of which Arrow takes every second value.
    """
    count = len(at)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = at
    bounds[2::2] = at + length_bytes
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    odd = np.arange(1, 2 * count, 2, dtype=np.int32)
    return whole.take(pa.array(odd, mask=None if valid is None else ~valid))


def joined(data: Bytes, at: Ints, length_bytes: Ints) -> Bytes:
    """Byte strings by position and length, joined."""
    taken = slices(data, at, length_bytes)
    found: Bytes = np.frombuffer(taken.buffers()[2] or b"", np.uint8)
    return found[: int(length_bytes.sum())]


def strings(data: Bytes, at: Ints, length_bytes: Ints, valid: Bools | None = None) -> pa.Array:
    """
    UTF-8 strings by position and length; null where not `valid`. Positions must rise and strings must not overlap.

    Invalid UTF-8 gets replacement characters, as in Java.
    """
    count = len(at)
    taken = slices(data, at, length_bytes, valid)
    found = pa.Array.from_buffers(pa.string(), count, taken.buffers(), taken.null_count, taken.offset)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode("utf-8", "replace") for value in taken.to_pylist())
        return pa.array(texts, type=pa.string(), size=count)
    return found


def fixed_bytes(data: Bytes, at: Ints, size_bytes: int) -> pa.Array:
    """Values of a fixed size by position."""
    gathered = np.ascontiguousarray(data[at[:, None] + np.arange(size_bytes)])
    return pa.Array.from_buffers(pa.binary(size_bytes), len(at), [None, pa.py_buffer(gathered)])


def integers(values: npt.NDArray[Any], type_: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """An Arrow array of `type_`; null where not `valid`."""
    return pa.array(values, mask=None if valid is None else ~valid).cast(type_, safe=False)
