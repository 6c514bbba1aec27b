"""
Frames from a stream of chunks.

A frame is its size in four bytes and its content. A size is checked before memory is reserved for it.

Source: Kafka NetworkReceive, configuration `socket.request.max.bytes`.
"""

from io import BytesIO
from typing import Final

from kohort.model.errors import WireError

FRAME_BYTES_MAX: Final = 104_857_600
"""The largest frame that is accepted, Kafka's default."""


def read_uint32(data: bytes, offset: int) -> int:
    """Four bytes, the highest first. In compiled code this takes a tenth of the time of `Struct` and `int.from_bytes`."""
    return data[offset] << 24 | data[offset + 1] << 16 | data[offset + 2] << 8 | data[offset + 3]


def read_int32(data: bytes, offset: int) -> int:
    """As `read_uint32`, with a sign."""
    value = read_uint32(data, offset)
    return value if value < 1 << 31 else value - (1 << 32)


class FrameReader:
    """
    Cuts a stream into frames. The result does not depend on the chunks in which the stream arrives.

    An empty frame is returned like any other; the reader of headers refuses it.
    """

    __slots__ = ("_frame_bytes_max", "_kept", "_size", "buffered_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._kept: BytesIO | None = None
        """The incomplete frame without its size; or the incomplete size. A large frame grows here chunk by chunk and is taken
        without a copy: to join 100 MiB at the end would hold the event loop for 50 ms."""
        self.buffered_bytes = 0
        """The size of what is kept."""
        self._size = -1
        """The size of the incomplete frame; -1 while it is unknown."""

    @property
    def missing_bytes(self) -> int:
        """How many bytes of the incomplete frame have not arrived; 0 if there is none, or its size is not known."""
        return max(self._size - self.buffered_bytes, 0)

    @property
    def is_between(self) -> bool:
        """Whether the next chunk begins with a frame."""
        return self._size < 0 and self._kept is None

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        The frames that are complete with this chunk, without their sizes.

        Raises:
            WireError: a size is negative or above the limit. Frames before it in the same chunk are lost; the caller closes
                the connection.
        """
        if self._size < 0:
            if self._kept is not None:
                chunk = self._take() + chunk
            size = len(chunk) - 4
            if size >= 0 and size == read_uint32(chunk, 0) and size <= self._frame_bytes_max:
                return [chunk[4:]]
            return self._cut(chunk)
        missing = self._size - self.buffered_bytes
        if len(chunk) < missing:
            self._keep(chunk)
            return []
        self._size = -1
        if len(chunk) == missing:
            self._keep(chunk)
            return [self._take()]
        self._keep(chunk[:missing])
        return [self._take(), *self._cut(chunk[missing:])]

    def _cut(self, data: bytes) -> list[bytes]:
        """Cut all whole frames off and keep the rest."""
        frames: list[bytes] = []
        position = 0
        available = len(data)
        while available - position >= 4:
            size = read_int32(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise WireError(f"a frame of {size} bytes; at most {self._frame_bytes_max} are accepted")
            position += 4
            if size > available - position:
                self._size = size
                break
            frames.append(data[position : position + size])
            position += size
        if position < available:
            self._keep(data[position:])
        return frames

    def _keep(self, chunk: bytes) -> None:
        if self._kept is None:
            self._kept = BytesIO()
        self._kept.write(chunk)
        self.buffered_bytes += len(chunk)

    def _take(self) -> bytes:
        """All that is kept."""
        kept, self._kept = self._kept, None
        self.buffered_bytes = 0
        return b"" if kept is None else kept.getvalue()
