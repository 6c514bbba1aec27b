"""Transports that send nothing without a lease."""

import asyncio
from collections.abc import Callable
from typing import Any, Final


class LeasedTransport(asyncio.Transport):
    """
    Stands in for the transport of a connection. Without the lease another node may answer for the partitions of this one, so
    the connection is cut off instead: its client asks again. What the lease does not cover is a pause of the process between
    the check and the send.

    Args:
        is_held: whether this node has its lease.
    """

    def __init__(self, inner: asyncio.Transport, is_held: Callable[[], bool]) -> None:
        super().__init__()
        self._inner: Final = inner
        self._is_held: Final = is_held

    def write(self, data: Any) -> None:
        if self._is_held():
            self._inner.write(data)
        else:
            self._inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def close(self) -> None:
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()
