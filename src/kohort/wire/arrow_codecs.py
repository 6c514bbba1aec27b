"""
Decompression by Arrow, with the names of cramjam, which executors of a Spark cluster lack. Nothing is compressed with it.

As with cramjam, an output buffer bounds what comes out, whatever the data state.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa

from kohort.model.errors import WireError
from kohort.wire.primitives import read_uvarint

_FULL = "failed to write whole buffer"
"""Cramjam's message."""


class DecompressionError(Exception):
    """The data are damaged, or the buffer is too small."""


def _decompress_into(codec: str) -> Callable[[bytes, bytearray], int]:
    def decompress_into(packed: bytes, room: bytearray) -> int:
        """Decompress all frames into a buffer, and return the size."""
        try:
            stream: Any = pa.CompressedInputStream(pa.BufferReader(packed), codec)
            left, size = memoryview(room), 0
            while taken := stream.readinto(left[size:]) if size < len(room) else 0:
                size += taken
            is_full = size == len(room) and bool(stream.read(1))
        except (pa.ArrowException, OSError) as exc:
            raise DecompressionError(str(exc)) from exc
        if is_full:
            raise DecompressionError(_FULL)
        return size

    return decompress_into


def _decompress_raw_len(block: bytes) -> int:
    """Return the size with which a block of snappy begins."""
    try:
        return read_uvarint(block, 0)[0]
    except WireError as exc:
        raise DecompressionError(f"a snappy block without its size: {exc}") from exc


def _decompress_raw(block: bytes) -> bytes:
    try:
        return bytes(pa.decompress(block, decompressed_size=_decompress_raw_len(block), codec="snappy", asbytes=True))
    except (pa.ArrowException, OSError) as exc:
        raise DecompressionError(str(exc)) from exc


lz4: Final = SimpleNamespace(decompress_into=_decompress_into("lz4"))
zstd: Final = SimpleNamespace(decompress_into=_decompress_into("zstd"))
snappy: Final = SimpleNamespace(decompress_raw=_decompress_raw, decompress_raw_len=_decompress_raw_len)
