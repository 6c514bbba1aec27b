"""
Frames out of whatever chunks arrive.

A frame is its size in four bytes, then that many bytes. A size is judged before anything is kept for it.

Source: Kafka NetworkReceive, configuration `socket.request.max.bytes`.
"""

from kohort.model.errors import WireError

FRAME_BYTES_MAX = 104_857_600
"""The largest frame taken, Kafka's default."""


class FrameReader:
    """
    Cuts frames out of a stream. What it returns does not depend on how the stream was cut into chunks.

    An empty frame is returned like any other; it is for the reader of headers to refuse it.
    """

    __slots__ = ("_buffer", "_frame_bytes_max", "_wanted")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._wanted = 4

    @property
    def buffered_bytes(self) -> int:
        """How much of an incomplete frame is held."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """
        The frames that are complete with this chunk, without their sizes.

        Raises:
            WireError: a size is negative, or above the largest frame taken. Frames before it in the same chunk are lost: the
                connection is about to be closed.
        """
        if not self._buffer:
            size = len(chunk) - 4
            if size >= 0 and size == int.from_bytes(chunk[:4], "big") and size <= self._frame_bytes_max:
                return [chunk[4:]]
            return self._cut(chunk)
        self._buffer += chunk
        if len(self._buffer) < self._wanted:
            return []
        if 4 < len(self._buffer) == self._wanted:
            # A large frame arrives in many chunks, and usually nothing after it: one copy, not two.
            with memoryview(self._buffer) as view:
                frame = bytes(view[4:])
            self._buffer = bytearray()
            return [frame]
        whole = bytes(self._buffer)
        self._buffer = bytearray()
        return self._cut(whole)

    def _cut(self, data: bytes) -> list[bytes]:
        """Take all whole frames off; the rest goes to the buffer."""
        frames: list[bytes] = []
        position = 0
        available = len(data)
        while available - position >= 4:
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                raise WireError(f"a frame of {size} bytes; at most {self._frame_bytes_max} are taken")
            end = position + 4 + size
            if end > available:
                self._wanted = 4 + size
                break
            frames.append(data[position + 4 : end])
            position = end
        else:
            self._wanted = 4
        self._buffer += data[position:]
        return frames
