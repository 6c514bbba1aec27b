"""
Verification of transactions at the node of their coordinator: AddPartitionsToTxn 5, one request a node for those of a turn.

Source: KIP-890; Kafka AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kohort.broker.cluster import NO_NODE_ID
from kohort.machine.ports import Verification
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TRANSACTION_STATE, TopicPartition, coordinator_partition
from kohort.runtime.ports import Defer
from kohort.server.peers.gathering import Form, Gathering
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Directory, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

Item = tuple[Producer, TopicPartition]
Verified = Callable[[CoordinatorError | None], None]

_CODES: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # The partition exists, because this node leads it: the coordinator's view of the catalog is older.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The codes of an answer that the port knows by others."""


class RemoteVerification:
    """
    The transaction coordinators of a cluster: a `kohort.machine.ports.Verification`.

    Args:
        local: asks the coordinator of this node.
        partition_count: returns the number of partitions of `__transaction_state`.
    """

    def __init__(
        self,
        directory: Directory,
        local: Verification,
        partition_count: Callable[[], int],
        peers: Peers,
        defer: Defer,
    ) -> None:
        self._directory = directory
        self._local = local
        self._partition_count = partition_count
        self._gathering = Gathering(_FORM, peers, defer)

    def verify(self, topic_partition: TopicPartition, producer: Producer, verified: Verified, /) -> None:
        transactional_id = producer.transactional_id
        index = coordinator_partition(transactional_id, self._partition_count())
        node_id = self._directory.leader(TRANSACTION_STATE, index)
        if node_id in (self._directory.node_id, NO_NODE_ID):
            self._local.verify(topic_partition, producer, verified)
            return
        place = (transactional_id, *topic_partition)
        done = partial(_tell, verified)
        self._gathering.ask(node_id, place, (producer, topic_partition), done)


def _tell(verified: Verified, code: ErrorCode) -> None:
    verified(CoordinatorError(_CODES.get(code, code)) if code else None)


def _transaction(producer: Producer) -> tuple[str, int, int, bool]:
    return producer.transactional_id, producer.producer_id, producer.producer_epoch, producer.adds_partition


def _request(items: Sequence[Item]) -> m.AddPartitionsToTxnRequest:
    found: dict[tuple[str, int, int, bool], dict[str, list[int]]] = {}
    for producer, (topic, index) in items:
        found.setdefault(_transaction(producer), {}).setdefault(topic, []).append(index)
    return m.AddPartitionsToTxnRequest(
        transactions=[
            m.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds_partition,
                topics=[m.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
            for (transactional_id, producer_id, producer_epoch, adds_partition), topics in found.items()
        ]
    )


def _answers(response: Any) -> Iterator[tuple[tuple[str, str, int], ErrorCode]]:
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            for partition in topic.results_by_partition:
                place = transaction.transactional_id, topic.name, partition.partition_index
                yield place, ErrorCode(partition.partition_error_code)


def _lost(lost: Lost | None) -> ErrorCode:
    """A request that is refused as a whole has no results: this node may not ask, which is no error of the client's."""
    return ErrorCode.INVALID_TXN_STATE if lost is None else ErrorCode.NETWORK_EXCEPTION


_FORM: Final = Form(Channel.VERIFICATION, ApiKey.ADD_PARTITIONS_TO_TXN, 5, _request, _answers, _lost)
