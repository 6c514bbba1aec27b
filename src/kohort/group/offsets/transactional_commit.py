"""
TxnOffsetCommit (28), versions 0 to 6: offsets that are committed together with the records of a producer's transaction.

2 adds the leader epoch, 3 the member that consumed the records (KIP-447), 4 the error TRANSACTION_ABORTABLE. From 5 on the
transaction coordinator adds the partition of the group to the transaction; before, the producer has added it with
AddOffsetsToTxn (KIP-890). 6 has topic ids in place of names, and codes of its own for a group that is not there and for the
epoch of a member (KIP-1319). The service has answered each partition (`commit_answers`), and the runtime has verified the
transaction.

The offsets are pending until the transaction ends (`Offsets.pending`).

Source: Kafka OffsetMetadataManager.commitTransactionalOffset, validateTransactionalOffsetCommit.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from kohort.group.context import GroupContext, HasContext
from kohort.group.errors import append_error
from kohort.group.offsets.commit import accepted, check_partitions
from kohort.group.offsets.commit import partitions_of as named_partitions
from kohort.group.offsets.commit_answers import Entry
from kohort.group.offsets.offsets import GroupPartition
from kohort.group.records import GroupRecord
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Producer, Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import PENDING_OFFSETS_MAX
from kohort.records.offset_commits import NO_TIMESTAMP_MS
from kohort.wire import messages as m

LOAD_IN_PROGRESS_SINCE: Final = 2
ABORTABLE_SINCE: Final = 4
ADDS_PARTITION_SINCE: Final = 5
OWN_CODES_SINCE: Final = 6
_OWN_CODES: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH)
"""ILLEGAL_GENERATION in earlier versions."""


def producer_of(request: m.TxnOffsetCommitRequest, api_version: int) -> Producer:
    """The producer in whose transaction the offsets are written."""
    return Producer(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        adds_partition=api_version >= ADDS_PARTITION_SINCE,
    )


def partitions_of(group_id: str, entries: Sequence[Entry]) -> Generator[None, None, set[GroupPartition]]:
    """Make, in steps, the keys of the offsets that become pending."""
    found: set[GroupPartition] = set()
    for number, (topic, _, partition) in enumerate(entries, 1):
        found.add((group_id, (topic, partition.partition_index)))
        if number % HANDLER_STEP == 0:
            yield
    return found


def txn_offset_commit(
    shard: HasContext,
    now_ms: int,
    request: m.TxnOffsetCommitRequest,
    entries: Sequence[Entry],
    partitions: set[GroupPartition],
    api_version: int,
) -> Result[GroupRecord, ErrorCode]:
    """
    Log the offset of each entry, all in one batch. The response is the code of all partitions asked for.

    If the transaction had too many pending offsets afterwards, the commit is refused as a whole.

    Args:
        partitions: those of `entries`.
    """
    context = shard.context
    try:
        validate(context, request, entries, api_version)
    except CoordinatorError as exc:
        return Result(response=exc.code)
    pending: Mapping[GroupPartition, object] = context.offsets.pending.get(request.producer_id, {})
    if len(pending) + len(partitions - pending.keys()) > PENDING_OFFSETS_MAX:
        return Result(response=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return accepted(context, request.group_id, entries, now_ms, NO_TIMESTAMP_MS)


def validate(
    context: GroupContext, request: m.TxnOffsetCommitRequest, entries: Sequence[Entry], api_version: int
) -> None:
    """
    Ask the group whether its member may commit. A commit in a transaction does not prolong the session of the member.

    Raises:
        CoordinatorError: as `Group.validate_offset_commit`; GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION before version 6) if there
            is no group and the request names a generation. A stale epoch is ILLEGAL_GENERATION before version 6.
    """
    group = context.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    try:
        if group is not None:
            check = group.validate_offset_commit(
                request.member_id, request.group_instance_id, generation, api_version, is_transactional=True
            )
            if check is not None:
                check_partitions(context, named_partitions(entries), check)
        elif generation >= 0:  # without a generation, replay creates the group
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)
    except CoordinatorError as error:
        if api_version < OWN_CODES_SINCE and error.code in _OWN_CODES:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION) from None
        raise


def transactional_error(api_version: int, error: Exception) -> ErrorCode:
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
