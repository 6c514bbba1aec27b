"""
Producer ids, allocated in blocks of 1000.

A block is reserved in the catalog before its first id is given out, so no id is given out twice, also after a crash: the ids of
a block that are not used then are lost. The next block is reserved when nine tenths of the present one are used.

Source: Kafka RPCProducerIdManager, ProducerIdsBlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kohort.broker.catalog.catalog import Catalog
from kohort.model.errors import ErrorCode

BLOCK_SIZE: Final = 1000
PREFETCH_AT: Final = BLOCK_SIZE * 9 // 10
"""The index in a block whose use begins the reservation of the next block."""

Ready: TypeAlias = Callable[[ErrorCode], None]


OnBlock: TypeAlias = Callable[[ErrorCode, int], None]
"""Gets the error of a reservation, or NONE and the first id of the block."""


class ProducerIds:
    """
    The `kohort.machine.ports.ProducerIdGenerator` of a node: one for all coordinators and producers.

    Attributes:
        reserve: reserves a block. The nodes of a cluster set another function, which asks the controller.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.reserve: Callable[[OnBlock], None] = self.reserve_here
        self._next = 0
        self._end = 0
        self._reserved: int | None = None
        """The first id of the next block, if it is reserved already."""
        self._is_reserving = False
        self._waiting: list[Ready] = []

    def take(self) -> int | None:
        if self._next == self._end and not self._begin_block():
            return None
        taken = self._next
        self._next += 1
        if taken == self._end - BLOCK_SIZE + PREFETCH_AT:
            self._reserve()
        return taken

    def when_available(self, ready: Ready, /) -> None:
        if self._next < self._end or self._reserved is not None:
            ready(ErrorCode.NONE)
            return
        self._waiting.append(ready)
        self._reserve()

    def _begin_block(self) -> bool:
        if self._reserved is None:
            return False
        self._next, self._end = self._reserved, self._reserved + BLOCK_SIZE
        self._reserved = None
        return True

    def _reserve(self) -> None:
        if not self._is_reserving:
            self._is_reserving = True
            self.reserve(self._on_block)

    def reserve_here(self, done: OnBlock) -> None:
        """Reserve a block in the catalog, which only one node of a cluster may change."""
        self._catalog.reserve_producer_ids(self._catalog.next_producer_id, BLOCK_SIZE, done)

    def _on_block(self, code: ErrorCode, first: int) -> None:
        self._is_reserving = False
        if code is ErrorCode.NONE:
            self._reserved = first
        waiting, self._waiting = self._waiting, []
        while waiting:
            ready = waiting.pop(0)
            if code is ErrorCode.NONE and self._next == self._end and self._reserved is None:
                # The callers before it took the whole block.
                self._waiting = [ready, *waiting, *self._waiting]
                self._reserve()
                return
            ready(code)
