"""A socket whose client hears nothing, for tests of clients."""

import asyncio
from typing import Any, Final

from kohort.model.limits import MUTED_BYTES_MAX


class Muted(asyncio.Transport):
    """
    Stands in for the transport of a connection, and keeps what is written to it.

    Attributes:
        inner: the transport.
    """

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self.inner: Final = inner
        self._kept: list[bytes] = []
        self._size_bytes = 0

    def write(self, data: Any) -> None:
        """Keep an answer; a client with more of them than there is room for is cut off."""
        self._size_bytes += len(data)
        if self._size_bytes > MUTED_BYTES_MAX:
            self._kept.clear()
            self.inner.abort()
        else:
            self._kept.append(bytes(data))

    def release(self) -> asyncio.Transport:
        """Write what was kept; returns the transport."""
        if self._kept and not self.inner.is_closing():
            self.inner.write(b"".join(self._kept))
        return self.inner

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._size_bytes + self.inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self.inner.is_closing()

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()
