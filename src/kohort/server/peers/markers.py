"""
Transaction markers to the partitions of other nodes: WriteTxnMarkers 2, one request a node for the markers of a turn.

What follows from an error, and when a marker is sent again, is decided in `kohort.transaction.markers` alone.

Source: Kafka TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.broker.cluster import NO_NODE_ID
from kohort.machine.ports import Markers
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.limits import MARKERS_REQUEST_MAX
from kohort.runtime.ports import Defer
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Directory, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_VERSION: Final = 2

Written = Callable[[ErrorCode], None]


class RemoteMarkers:
    """
    The `kohort.machine.ports.Markers` of a cluster.

    Args:
        local: writes to the partitions that this node leads.
        defer: calls a function at the end of the turn of the event loop.
    """

    def __init__(self, directory: Directory, local: Markers, peers: Peers, defer: Defer) -> None:
        self._directory = directory
        self._local = local
        self._peers = peers
        self._defer = defer
        self._batches: dict[int, list[_Batch]] = {}
        """By node: the markers of this turn. Those of one batch differ in producer or partition, by which they are answered."""

    def write(self, topic_partition: TopicPartition, end: EndTransaction, done: Written, /) -> None:
        leader = self._directory.leader(*topic_partition)
        if leader in (self._directory.node_id, NO_NODE_ID):
            self._local.write(topic_partition, end, done)
            return
        if not self._batches:
            self._defer(self._send)
        batches = self._batches.setdefault(leader, [])
        if not batches or not batches[-1].has_room(end, topic_partition):
            batches.append(_Batch())
        batches[-1].add(end, topic_partition, done)

    def _send(self) -> None:
        found, self._batches = self._batches, {}
        for node_id, batches in found.items():
            for batch in batches:
                request, on_answer = batch.request(), batch.on_answer
                self._peers.send(node_id, Channel.MARKERS, ApiKey.WRITE_TXN_MARKERS, _VERSION, request, on_answer)


class _Batch:
    """The markers of one request."""

    def __init__(self) -> None:
        self._ends: dict[EndTransaction, dict[str, list[int]]] = {}
        self._waiting: dict[tuple[int, str, int], Written] = {}

    def has_room(self, end: EndTransaction, topic_partition: TopicPartition) -> bool:
        is_known = (end.producer_id, *topic_partition) in self._waiting
        return not is_known and len(self._waiting) < MARKERS_REQUEST_MAX

    def add(self, end: EndTransaction, topic_partition: TopicPartition, done: Written) -> None:
        self._ends.setdefault(end, {}).setdefault(topic_partition.topic, []).append(topic_partition.partition)
        self._waiting[end.producer_id, *topic_partition] = done

    def request(self) -> m.WriteTxnMarkersRequest:
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
                for end, topics in self._ends.items()
            ]
        )

    def on_answer(self, answer: Any) -> None:
        """Tell who waits. A marker without a code may be written or not; to write it again does no harm."""
        waiting = self._waiting
        if isinstance(answer, Lost):
            rest = ErrorCode.REQUEST_TIMED_OUT if answer.was_sent else ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            rest = ErrorCode.UNKNOWN_SERVER_ERROR
            for marker in answer.markers:
                for topic in marker.topics:
                    for partition in topic.partitions:
                        place = marker.producer_id, topic.name, partition.partition_index
                        written = waiting.pop(place, None)
                        if written is not None:
                            written(ErrorCode(partition.error_code))
        for written in waiting.values():
            written(rest)
