"""
WriteTxnMarkers (27), versions 1 and 2: v2 transaction version, whose markers carry a higher epoch than the data.

Ends transactions in partitions, for a transaction coordinator or for an admin who aborts one that hangs. An answer is given
when every marker is durable. A marker for a producer that the partition does not know is written and makes it known.

The partitions of `__consumer_offsets` are written by the group coordinator alone, so it is told to end the transaction there.

Source: KIP-98, KIP-664, KIP-890; Kafka KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kohort.broker.partitions import Partition, Partitions
from kohort.broker.ports import CallLater, Cancel, Context
from kohort.machine.shard import EndTransaction, Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.runtime.ports import Clock
from kohort.wire import messages as m

TIMEOUT_MS = 30_000
"""Source: request.timeout.ms."""


class MarkerWriter(Protocol):
    """Who writes the markers of a topic that has an owner: ends a transaction in one of its partitions, `ended` says how."""

    def __call__(self, partition: int, end: EndTransaction, ended: Callable[[ErrorCode], None], /) -> None: ...


def _refuse(_partition: int, _end: EndTransaction, ended: Callable[[ErrorCode], None], /) -> None:
    ended(ErrorCode.NOT_LEADER_OR_FOLLOWER)


_NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

_Place = tuple[int, str, int]
"""Producer id, topic and partition."""


class WriteTxnMarkers:
    """Writes the markers of transactions to the partitions of topics."""

    def __init__(self, partitions: Partitions, clock: Clock, call_later: CallLater) -> None:
        self._partitions = partitions
        self._clock = clock
        self._call_later = call_later
        self.end_offsets: MarkerWriter = _refuse
        """The owner of `__consumer_offsets`, once there is one."""

    def write_txn_markers(
        self, request: m.WriteTxnMarkersRequest, _context: Context, reply: Reply[m.WriteTxnMarkersResponse]
    ) -> m.WriteTxnMarkersResponse | None:
        write = _Write()
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._answer(write, marker, topic.name, index)
        if not write.pending:
            return write.response()
        write.wait(reply, self._call_later)
        return None

    def _answer(self, write: _Write, marker: m.WriteTxnMarkersRequestWritableTxnMarker, topic: str, index: int) -> None:
        place = (marker.producer_id, topic, index)
        write.codes[place] = ErrorCode.NONE
        try:
            partition = self._find(topic, index)
            end = _end_transaction(marker)
            if topic == CONSUMER_OFFSETS:
                write.pending[place] = None
                self.end_offsets(index, end, partial(write.on_ended, place))
            else:
                write.pending[place] = partition, partition.append_marker(end, self._clock.now_ms())
        except (CoordinatorError, StorageError) as error:
            write.codes[place] = error.code

    def _find(self, topic: str, index: int) -> Partition:
        """One whose disk failed is as good as none. Source: a 4.2.1 of which one log directory failed."""
        try:
            partition = self._partitions.find(topic, index)
        except StorageError as error:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
        if partition is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition


def _end_transaction(marker: m.WriteTxnMarkersRequestWritableTxnMarker) -> EndTransaction:
    """
    Raises:
        CoordinatorError: the producer id or epoch is negative.
    """
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return EndTransaction(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )


class _Write:
    """One request under way."""

    def __init__(self) -> None:
        self.codes: dict[_Place, ErrorCode] = {}
        self.pending: dict[_Place, tuple[Partition, int] | None] = {}
        """What to wait for: an offset of a partition, or (None) another owner's word."""
        self._reply: Reply[m.WriteTxnMarkersResponse] | None = None
        self._cancel: Cancel | None = None

    def wait(self, reply: Reply[m.WriteTxnMarkersResponse], call_later: CallLater) -> None:
        self._reply = reply
        self._cancel = call_later(TIMEOUT_MS, self._on_deadline)
        for place, wanted in tuple(self.pending.items()):
            if wanted is not None:
                partition, end_offset = wanted
                partition.when_replicated(end_offset, partial(self.on_written, place))

    def on_ended(self, place: _Place, code: ErrorCode) -> None:
        """By the owner of the partition; who asks looks for a leader, not for a coordinator."""
        self.on_written(place, ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NO_COORDINATOR else code)

    def on_written(self, place: _Place, code: ErrorCode) -> None:
        self.pending.pop(place, None)
        self.codes[place] = code
        if not self.pending and self._reply is not None:
            self._complete(self._reply)

    def _on_deadline(self) -> None:
        if self._reply is not None:
            self.codes.update(dict.fromkeys(self.pending, ErrorCode.REQUEST_TIMED_OUT))
            self._complete(self._reply)

    def _complete(self, reply: Reply[m.WriteTxnMarkersResponse]) -> None:
        self._reply = None
        if self._cancel is not None:
            self._cancel()
        reply(self.response())

    def response(self) -> m.WriteTxnMarkersResponse:
        """By producer and topic, in the request's order."""
        markers: dict[int, dict[str, list[m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult]]] = {}
        for (producer_id, topic, index), code in self.codes.items():
            result = m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
            markers.setdefault(producer_id, {}).setdefault(topic, []).append(result)
        return m.WriteTxnMarkersResponse(
            markers=[
                m.WriteTxnMarkersResponseWritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        m.WriteTxnMarkersResponseWritableTxnMarkerTopicResult(name=name, partitions=results)
                        for name, results in topics.items()
                    ],
                )
                for producer_id, topics in markers.items()
            ]
        )
