"""
DeleteRecords (21), versions 0 to 2: raises the log start offsets of partitions.

The response is sent when the new log start offsets are durable; with `--flush os`, when they are in effect. An offset below the
log start offset is a success.

Source: KIP-107; Kafka ReplicaManager.deleteRecords, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

from functools import partial

from kohort.broker.partitions.partitions import LocalPartitions, Partition
from kohort.broker.ports import FLUSH_MS_MIN, CallLater, Cancel, Context
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.wire import messages as m

HIGH_WATERMARK = -1
"""As an offset: delete all records below the high watermark."""
NO_LOW_WATERMARK = -1


class DeleteRecords:
    """Handler of DeleteRecords."""

    def __init__(self, partitions: LocalPartitions, call_later: CallLater) -> None:
        self._partitions = partitions
        self._call_later = call_later

    def delete_records(
        self, request: m.DeleteRecordsRequest, _context: Context, reply: Reply[m.DeleteRecordsResponse]
    ) -> m.DeleteRecordsResponse | None:
        deletion = _Deletion(reply)
        for topic in request.topics:
            for requested in topic.partitions:
                self._delete(deletion, topic.name, requested)
        if not deletion.pending:
            return deletion.response()
        deletion.cancel = self._call_later(max(request.timeout_ms, FLUSH_MS_MIN), deletion.on_deadline)
        return None

    def _delete(self, deletion: _Deletion, topic: str, requested: m.DeleteRecordsPartition) -> None:
        place = (topic, requested.partition_index)
        try:
            log = self._find(topic, requested.partition_index).log
            offset = log.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
            if offset < 0:
                raise CoordinatorError(ErrorCode.OFFSET_OUT_OF_RANGE)
            log.delete_before(offset, partial(deletion.on_durable, place))
            deletion.results[place] = ErrorCode.NONE, log.log_start_offset
            deletion.pending.add(place)
        except (CoordinatorError, StorageError) as error:
            deletion.results[place] = error.code, NO_LOW_WATERMARK

    def _find(self, topic: str, index: int) -> Partition:
        if topic in INTERNAL_TOPICS:
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._partitions.find(topic, index)
        if partition is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if "delete" not in partition.log.config.cleanup_policy.split(","):
            raise CoordinatorError(ErrorCode.POLICY_VIOLATION)
        return partition


class _Deletion:
    """
    One request in progress: answered when every partition is durable, at the latest after the request's timeout, or
    `FLUSH_MS_MIN` if that is less. The timeout of Apache Kafka is the time of the followers.
    """

    def __init__(self, reply: Reply[m.DeleteRecordsResponse]) -> None:
        self.results: dict[tuple[str, int], tuple[ErrorCode, int]] = {}
        self.pending: set[tuple[str, int]] = set()
        self.cancel: Cancel | None = None
        self._reply: Reply[m.DeleteRecordsResponse] | None = reply

    def on_durable(self, place: tuple[str, int]) -> None:
        self.pending.discard(place)
        if not self.pending:
            self._complete()

    def on_deadline(self) -> None:
        for place in self.pending:
            self.results[place] = ErrorCode.REQUEST_TIMED_OUT, NO_LOW_WATERMARK
        self._complete()

    def _complete(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        if self.cancel is not None:
            self.cancel()
        reply(self.response())

    def response(self) -> m.DeleteRecordsResponse:
        topics: dict[str, list[m.DeleteRecordsPartitionResult]] = {}
        for (topic, index), (code, low_watermark) in self.results.items():
            result = m.DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
            topics.setdefault(topic, []).append(result)
        return m.DeleteRecordsResponse(
            topics=[m.DeleteRecordsTopicResult(name=name, partitions=results) for name, results in topics.items()]
        )
