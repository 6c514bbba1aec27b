"""
Blocks of producer ids from the controller: AllocateProducerIds (67), version 0, and its handler.

The epoch of the asking broker is not checked. A node that is not in the cluster any more gets a block that nobody else gets,
and its appends are fenced.

Source: KIP-730; Kafka RPCProducerIdManager, ProducerIdControlManager.generateNextProducerId.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from kohort.broker.ports import Context, NoResponse
from kohort.broker.transactions.producer_ids import BLOCK_SIZE, OnBlock, ProducerIds
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.server.peers.controller import ControllerChannel
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Directory
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_log: Final = logging.getLogger("kohort.server")


class ProducerIdBlocks:
    """
    Reservations of blocks, by this node and for others.

    Args:
        local: reserves in the catalog, if this node is the controller.
        listener: at which nodes ask each other.
    """

    def __init__(self, directory: Directory, channel: ControllerChannel, local: ProducerIds, listener: str) -> None:
        self._directory = directory
        self._channel = channel
        self._local = local
        self._listener = listener

    def reserve(self, done: OnBlock) -> None:
        """Reserve a block for this node. One whose answer is lost stays unused."""
        if self._directory.controller == self._directory.node_id:
            self._local.reserve_here(done)
            return
        request = m.AllocateProducerIdsRequest(broker_id=self._directory.node_id)
        self._channel.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, request, partial(_on_answer, done))

    def allocate_producer_ids(
        self,
        _request: m.AllocateProducerIdsRequest,
        context: Context,
        reply: Reply[m.AllocateProducerIdsResponse],
    ) -> m.AllocateProducerIdsResponse | NoResponse | None:
        """Handle AllocateProducerIds."""
        if context.listener != self._listener:
            return NoResponse.CLOSE_CONNECTION
        if self._directory.controller != self._directory.node_id:
            return m.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        self._local.reserve_here(lambda code, first: reply(_response(code, first)))
        return None


def _response(code: ErrorCode, first: int) -> m.AllocateProducerIdsResponse:
    if code:
        return m.AllocateProducerIdsResponse(error_code=code)
    return m.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)


def _on_answer(done: OnBlock, answer: Any) -> None:
    if isinstance(answer, Lost):
        _log.warning("producer_ids.not_reserved error=%r", answer.reason)
        done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
    elif not answer.error_code and answer.producer_id_len != BLOCK_SIZE:
        _log.error("producer_ids.not_reserved length=%d", answer.producer_id_len)
        done(ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    else:
        done(ErrorCode(answer.error_code), answer.producer_id_start)
