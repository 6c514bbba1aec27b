"""
WriteTxnMarkers (27), versions 1 and 2: v2 transaction version, whose markers carry a higher epoch than the data.

Ends transactions in partitions, for a transaction coordinator or for an admin who aborts a hanging transaction. The response
is sent when every marker is durable. A marker for a producer that the partition does not know is written, and makes it known.

Source: KIP-98, KIP-664, KIP-890; Kafka KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from kohort.broker.ports import CallLater, Cancel, Context
from kohort.machine.gradual import CHUNK
from kohort.machine.ports import Markers
from kohort.machine.shard import EndTransaction, Reply
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages as m

TIMEOUT_MS = 30_000
"""Source: request.timeout.ms."""

_Place = tuple[int, TopicPartition]
"""Producer id and partition."""


class WriteTxnMarkers:
    """Handler of WriteTxnMarkers."""

    def __init__(self, markers: Markers, call_later: CallLater) -> None:
        self._markers = markers
        self._call_later = call_later

    def write_txn_markers(
        self, request: m.WriteTxnMarkersRequest, context: Context, reply: Reply[m.WriteTxnMarkersResponse]
    ) -> m.WriteTxnMarkersResponse | None:
        write = _Write()
        steps = self._write_all(write, request, reply)
        try:
            next(steps)
        except StopIteration as end:
            response: m.WriteTxnMarkersResponse | None = end.value
            return response
        context.go_on(steps, reply)
        return None

    def _write_all(
        self, write: _Write, request: m.WriteTxnMarkersRequest, reply: Reply[m.WriteTxnMarkersResponse]
    ) -> Generator[None, None, m.WriteTxnMarkersResponse | None]:
        """Write the markers, in steps; the first step is all of a usual request."""
        count = 0
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    count += 1
                    if count % CHUNK == 0:
                        yield
                    self._write(write, marker, TopicPartition(topic.name, index))
        if not write.pending:
            return write.response()
        write.wait(reply, self._call_later)
        return None

    def _write(
        self, write: _Write, marker: m.WriteTxnMarkersRequestWritableTxnMarker, topic_partition: TopicPartition
    ) -> None:
        place = (marker.producer_id, topic_partition)
        end = EndTransaction(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        write.codes[place] = ErrorCode.NONE
        write.pending.add(place)
        self._markers.write(topic_partition, end, partial(write.on_done, place))


class _Write:
    """One request in progress."""

    def __init__(self) -> None:
        self.codes: dict[_Place, ErrorCode] = {}
        self.pending: set[_Place] = set()
        self._reply: Reply[m.WriteTxnMarkersResponse] | None = None
        self._cancel: Cancel | None = None

    def wait(self, reply: Reply[m.WriteTxnMarkersResponse], call_later: CallLater) -> None:
        self._reply = reply
        self._cancel = call_later(TIMEOUT_MS, self._on_deadline)

    def on_done(self, place: _Place, code: ErrorCode) -> None:
        self.pending.discard(place)
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
        """Group the codes by producer and topic, in the order of the request."""
        markers: dict[int, dict[str, list[m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult]]] = {}
        for (producer_id, (topic, index)), code in self.codes.items():
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
