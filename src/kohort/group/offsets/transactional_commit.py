"""
TxnOffsetCommit (28), versions 0 to 5: offsets that are committed together with the records of a producer's transaction.

2 adds the leader epoch, 3 the member that consumed the records (KIP-447), 4 the error TRANSACTION_ABORTABLE. From 5 on the
transaction coordinator adds the partition of the group to the transaction; before, the producer has added it with
AddOffsetsToTxn (KIP-890). The service has checked that topics and partitions exist (`validation`), and the runtime has verified
the transaction.

The offsets are pending until the transaction ends (`Offsets.pending`).

Source: Kafka OffsetMetadataManager.commitTransactionalOffset, validateTransactionalOffsetCommit.
"""

from collections.abc import Collection
from typing import Final

from kohort.group.context import GroupContext
from kohort.group.errors import append_error
from kohort.group.offsets.commit import is_metadata_too_large
from kohort.group.offsets.offsets import GroupPartition, Partition
from kohort.group.records import GroupRecord
from kohort.machine.shard import Producer, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import PENDING_OFFSETS_MAX
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m

LOAD_IN_PROGRESS_SINCE: Final = 2
ABORTABLE_SINCE: Final = 4
ADDS_PARTITION_SINCE: Final = 5


def producer_of(request: m.TxnOffsetCommitRequest, api_version: int) -> Producer:
    """The producer in whose transaction the offsets are written."""
    return Producer(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        adds_partition=api_version >= ADDS_PARTITION_SINCE,
    )


def txn_offset_commit(
    context: GroupContext, request: m.TxnOffsetCommitRequest, now_ms: int
) -> Result[GroupRecord, m.TxnOffsetCommitResponse]:
    """
    Log the offset of each partition. A partition is refused if its metadata is too long or the transaction has too many pending
    offsets; the others are not.
    """
    try:
        validate(context, request)
    except CoordinatorError as exc:
        return Result(response=txn_commit_refused(request, exc.code))
    group_id, metadata_max = request.group_id, context.config.offset_metadata_max_bytes
    pending: Collection[GroupPartition] = context.offsets.pending.get(request.producer_id, ())
    room = PENDING_OFFSETS_MAX - len(pending)
    new: set[Partition] = set()
    records: list[GroupRecord] = []
    topics: list[m.TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        answers: list[m.TxnOffsetCommitResponsePartition] = []
        for entry in topic.partitions:
            metadata = entry.committed_metadata or ""
            partition = topic.name, entry.partition_index
            is_new = (group_id, partition) not in pending and partition not in new
            code = ErrorCode.NONE
            if is_metadata_too_large(metadata, metadata_max):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif is_new and len(new) >= room:
                code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            else:
                if is_new:
                    new.add(partition)
                records.append(
                    OffsetCommit(
                        group_id, *partition, entry.committed_offset, entry.committed_leader_epoch, metadata, now_ms
                    )
                )
            answers.append(answer(entry.partition_index, code))
        topics.append(m.TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    context.counters.offset_commits += len(records)
    return Result(records, m.TxnOffsetCommitResponse(topics=topics))


def validate(context: GroupContext, request: m.TxnOffsetCommitRequest) -> None:
    """
    Ask the group whether its member may commit. A commit in a transaction does not prolong the session of the member.

    Raises:
        CoordinatorError: as `Group.validate_offset_commit`; ILLEGAL_GENERATION if there is no group and the request names a
            generation.
    """
    group = context.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        # Without a generation, replay creates the group.
        if generation >= 0:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        return
    group.validate_offset_commit(
        request.member_id, request.group_instance_id, generation, ADDS_PARTITION_SINCE, is_transactional=True
    )


def txn_commit_refused(request: m.TxnOffsetCommitRequest, code: ErrorCode) -> m.TxnOffsetCommitResponse:
    """Refuse every partition of a request."""
    return m.TxnOffsetCommitResponse(
        topics=[
            m.TxnOffsetCommitResponseTopic(
                name=topic.name, partitions=[answer(entry.partition_index, code) for entry in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def transactional_error(error: Exception, api_version: int) -> ErrorCode:
    """
    The code of a request whose transaction could not be verified, or whose records could not be written.

    A producer before version 2 crashes on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296), and one before version 4 does not know
    TRANSACTION_ABORTABLE.

    Source: Kafka KafkaApis.handleTxnOffsetCommitRequest, AddPartitionsToTxnManager.
    """
    code = append_error(error)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOAD_IN_PROGRESS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def answer(partition: int, code: int) -> m.TxnOffsetCommitResponsePartition:
    return m.TxnOffsetCommitResponsePartition(partition_index=partition, error_code=int(code))
