"""
Producer ids, and InitProducerId (22), versions 0 to 5, for producers without a transactional id: v3 id and epoch of the
producer.

Ids are reserved in the catalog in blocks of 1000, so most requests need no write, and no id is allocated twice after a crash.
InitProducerId with a transactional id needs a transaction coordinator; without one the answer is COORDINATOR_NOT_AVAILABLE.

Source: Kafka RPCProducerIdManager, ProducerIdsBlock, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from kohort.broker.catalog import Catalog
from kohort.broker.ports import Context
from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

BLOCK_SIZE = 1000

Allocated: TypeAlias = Callable[[ErrorCode, int], None]
"""`allocated(code, producer_id)`."""


class ProducerIds:
    """Allocation of producer ids: from the reserved block, and from a new one when it is used up."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next = 0
        self._end = 0
        self._waiting: deque[Allocated] = deque()
        self._is_reserving = False

    def take(self) -> int | None:
        """Take an id of the current block; None if none is left."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def allocate(self, allocated: Allocated) -> None:
        """Call `allocated` with an id: at once, or when the next block is durable. It gets the error if that fails."""
        producer_id = self.take()
        if producer_id is not None:
            allocated(ErrorCode.NONE, producer_id)
            return
        self._waiting.append(allocated)
        if not self._is_reserving:
            self._is_reserving = True
            self._catalog.reserve_producer_ids(BLOCK_SIZE, self._on_block)

    def _on_block(self, code: ErrorCode, first: int) -> None:
        self._is_reserving = False
        waiting, self._waiting = self._waiting, deque()
        if code:
            for allocated in waiting:
                allocated(code, NO_PRODUCER_ID)
            return
        self._next, self._end = first, first + BLOCK_SIZE
        for allocated in waiting:
            self.allocate(allocated)


class InitProducerId:
    """Handler of InitProducerId: each idempotent producer gets a new id with epoch 0."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def init_producer_id(
        self, request: m.InitProducerIdRequest, _context: Context, reply: Reply[m.InitProducerIdResponse]
    ) -> m.InitProducerIdResponse | None:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return _response(ErrorCode.INVALID_REQUEST)
        if request.transactional_id == "":
            return _response(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            return _response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        producer_id = self._producer_ids.take()
        if producer_id is not None:
            return _response(ErrorCode.NONE, producer_id)
        self._producer_ids.allocate(lambda code, allocated: reply(_response(code, allocated)))
        return None


def _response(code: ErrorCode, producer_id: int = NO_PRODUCER_ID) -> m.InitProducerIdResponse:
    epoch = NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else 0
    return m.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
