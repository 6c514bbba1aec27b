"""A socket whose client hears nothing, for tests of clients."""

import asyncio
from typing import Any

from kohort.model.limits import MUTED_BYTES_MAX
from kohort.server.connections.stand_in import StandIn


class Muted(StandIn):
    """Keeps what is written to it."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__(inner)
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
        """Write what was kept; returns the transport behind."""
        if self._kept and not self.inner.is_closing():
            self.inner.write(b"".join(self._kept))
        return self.inner
