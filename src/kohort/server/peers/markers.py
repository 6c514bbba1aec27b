"""
Transaction markers to the partitions of other nodes: WriteTxnMarkers 2, one request a node for the markers of a turn.

What follows from an error, and when a marker is sent again, is decided in `kohort.transaction.markers` alone.

Source: Kafka TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kohort.broker.cluster import NO_NODE_ID
from kohort.machine.ports import Markers
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Defer
from kohort.server.peers.gathering import Form, Gathering
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Directory, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

Item = tuple[EndTransaction, TopicPartition]


class RemoteMarkers:
    """
    The `kohort.machine.ports.Markers` of a cluster.

    Args:
        local: writes to the partitions that this node leads.
    """

    def __init__(self, directory: Directory, local: Markers, peers: Peers, defer: Defer) -> None:
        self._directory = directory
        self._local = local
        self._gathering = Gathering(_FORM, peers, defer)

    def write(self, topic_partition: TopicPartition, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        leader = self._directory.leader(*topic_partition)
        if leader in (self._directory.node_id, NO_NODE_ID):
            self._local.write(topic_partition, end, done)
        else:
            place = (end.producer_id, *topic_partition)
            self._gathering.ask(leader, place, (end, topic_partition), done)


def _request(items: Sequence[Item]) -> m.WriteTxnMarkersRequest:
    by_end: dict[EndTransaction, dict[str, list[int]]] = {}
    for end, (topic, index) in items:
        by_end.setdefault(end, {}).setdefault(topic, []).append(index)
    return m.WriteTxnMarkersRequest(
        markers=[
            m.WriteTxnMarkersRequestWritableTxnMarker(
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                transaction_result=end.committed,
                coordinator_epoch=end.coordinator_epoch,
                transaction_version=end.transaction_version,
                topics=[
                    m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
            )
            for end, topics in by_end.items()
        ]
    )


def _answers(response: Any) -> Iterator[tuple[tuple[int, str, int], ErrorCode]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                place = marker.producer_id, topic.name, partition.partition_index
                yield place, ErrorCode(partition.error_code)


def _lost(lost: Lost | None) -> ErrorCode:
    """A marker without an answer may be written or not. To write it again does no harm."""
    if lost is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.REQUEST_TIMED_OUT if lost.was_sent else ErrorCode.NOT_LEADER_OR_FOLLOWER


_FORM: Final = Form(Channel.MARKERS, ApiKey.WRITE_TXN_MARKERS, 2, _request, _answers, _lost)
