"""
Producer ids; and InitProducerId (22), versions 0 to 5, for producers without a transactional id: v3 bring id and epoch
along.

Ids are taken from the catalog in blocks of 1000, so an id costs nothing and none is given twice, whatever is lost in between.
A transactional id belongs to the transaction coordinator; without one the client is told that it is not available.

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

Given: TypeAlias = Callable[[ErrorCode, int], None]
"""`given(code, producer_id)`."""


class ProducerIds:
    """Gives out ids; asks for the next block when none is left."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next = 0
        self._end = 0
        self._waiting: deque[Given] = deque()
        self._is_asking = False

    def take(self) -> int | None:
        """An id, if there is one at hand."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def give(self, given: Given) -> None:
        """Call `given` with an id, at once or when the next block is durable; or with the error that kept it from being."""
        producer_id = self.take()
        if producer_id is not None:
            given(ErrorCode.NONE, producer_id)
            return
        self._waiting.append(given)
        if not self._is_asking:
            self._is_asking = True
            self._catalog.reserve_producer_ids(BLOCK_SIZE, self._on_block)

    def _on_block(self, code: ErrorCode, first: int) -> None:
        self._is_asking = False
        waiting, self._waiting = self._waiting, deque()
        if code:
            for given in waiting:
                given(code, NO_PRODUCER_ID)
            return
        self._next, self._end = first, first + BLOCK_SIZE
        for given in waiting:
            self.give(given)


class InitProducerId:
    """Gives every idempotent producer an id of its own, with epoch 0."""

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
        self._producer_ids.give(lambda code, given: reply(_response(code, given)))
        return None


def _response(code: ErrorCode, producer_id: int = NO_PRODUCER_ID) -> m.InitProducerIdResponse:
    epoch = NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else 0
    return m.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
