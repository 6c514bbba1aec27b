"""Transports that send nothing without a lease."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kohort.server.connections.stand_in import StandIn


class LeasedTransport(StandIn):
    """
    Without the lease another node may answer for the partitions of this one, so the connection is cut off instead: its client
    asks again. What the lease does not cover is a pause of the process between the check and the send.

    Args:
        is_held: whether this node has its lease.
    """

    def __init__(self, inner: asyncio.Transport, is_held: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._is_held: Final = is_held

    def write(self, data: Any) -> None:
        if self._is_held():
            self.inner.write(data)
        else:
            self.inner.abort()
