"""The answers of Fetch for one partition, and which of them end a wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.partitions.partitions import Partition
from kohort.model.errors import ErrorCode
from kohort.storage.log import NO_EPOCH, Log
from kohort.storage.producer_states import AbortedTxn
from kohort.wire import messages as m

if TYPE_CHECKING:
    Requested = m.FetchRequestFetchPartition
    Data = m.FetchResponsePartitionData

TOPIC_IDS_SINCE: Final = 13
LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors that come with the current leader, and from `LEADER_SINCE` on with its address."""
LEADER_SINCE: Final = 16
NO_REPLICA: Final = -1

NOT_READ = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Errors of partitions whose log was not read."""

NO_FAILURES = frozenset(
    {
        *NOT_READ,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that do not count as failed Fetch requests."""


def size(answer: Data) -> int:
    return len(answer.records or b"")


def is_urgent(answer: Data) -> bool:
    """Whether a request is answered at once, however few bytes there are: an error, a truncated log, another replica."""
    return (
        answer.error_code != 0
        or answer.diverging_epoch.epoch != NO_EPOCH
        or answer.preferred_read_replica != NO_REPLICA
    )


def other_replica(requested: Requested, log: Log, preferred: int) -> Data:
    """The answer that sends a client to another replica."""
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


def aborted(found: Sequence[AbortedTxn]) -> list[m.FetchResponseAbortedTransaction]:
    return [
        m.FetchResponseAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found
    ]


def refusal(
    requested: Requested,
    code: ErrorCode,
    *,
    aborted_transactions: tuple[()] | None = None,
) -> Data:
    """An answer with an error. Aborted transactions are null if the log refused the read, empty if it was not read."""
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=aborted_transactions,
        records=b"",
    )


def diverging(requested: Requested, partition: Partition) -> Data | None:
    """
    The answer to a client whose last batch is of a leader epoch that ended at a lower offset here; None if it did not.

    Source: Kafka Partition.readRecords.
    """
    log = partition.log
    epoch, end_offset = partition.end_offset_for_epoch(requested.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset < 0:
        return refusal(requested, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == requested.last_fetched_epoch and end_offset >= requested.fetch_offset:
        return None
    return m.FetchResponsePartitionData(
        partition_index=requested.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=m.FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=b"",
    )


def failed(request: m.FetchRequest, api_version: int) -> m.FetchResponse:
    """The answer to an unknown isolation level. Source: FetchRequest.getErrorResponse."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    has_partitions = api_version < TOPIC_IDS_SINCE
    responses = [
        m.FetchableTopicResponse(
            topic=topic.topic,
            partitions=[refusal(requested, code, aborted_transactions=()) for requested in topic.partitions],
        )
        for topic in (request.topics if has_partitions else ())
    ]
    return m.FetchResponse(error_code=code, session_id=request.session_id, responses=responses)
