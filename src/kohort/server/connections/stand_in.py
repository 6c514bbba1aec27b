"""Transports that stand in for the transport of a connection."""

import asyncio
from typing import Final


class StandIn(asyncio.Transport):
    """
    A transport in front of another one. A subclass says what becomes of the replies (`write`). The rest of what a connection
    asks of it is forwarded; sizes and addresses a connection asks of the socket itself.

    Attributes:
        inner: the transport behind.
    """

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self.inner: Final = inner

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
