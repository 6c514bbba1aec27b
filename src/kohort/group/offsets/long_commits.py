"""
Commits of more than a thousand partitions, by OffsetCommit or TxnOffsetCommit, in steps.

The answers are made before the group is asked, and the records while they are replayed (`kohort.machine.bulk.LongRecords`). The
group takes the offsets in one operation and in one batch, as those of a short commit.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from kohort.group.context import GroupContext
from kohort.group.offsets import commit, transactional_commit
from kohort.group.offsets.offsets import GroupPartition
from kohort.group.records import GroupRecord
from kohort.machine.bulk import LongRecords
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import PENDING_OFFSETS_MAX
from kohort.records.offset_commits import NO_TIMESTAMP_MS
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m

A = TypeVar("A")
"""The answer to one partition."""
T = TypeVar("T")
"""The answer to one topic."""

Entry: TypeAlias = tuple[Any, Any]
"""A topic and a partition of a request."""

OffsetCommitOf: TypeAlias = "LongCommit[m.OffsetCommitResponsePartition, m.OffsetCommitResponseTopic]"
TxnOffsetCommitOf: TypeAlias = "LongCommit[m.TxnOffsetCommitResponsePartition, m.TxnOffsetCommitResponseTopic]"

_TOO_LARGE: Final = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


class LongCommit(Generic[A, T]):
    """
    A commit of existing partitions.

    Args:
        topics: those of the request.
        answer: makes the answer to a partition: index and error code.
        answer_topic: makes the answer to a topic of those of its partitions.

    Attributes:
        entries: the partitions whose metadata is short enough.
        answers: to the topics of the request.
    """

    def __init__(
        self, topics: Sequence[Any], answer: Callable[[int, int], A], answer_topic: Callable[[Any, list[A]], T]
    ) -> None:
        self._topics = topics
        self._answer = answer
        self._answer_topic = answer_topic
        self.entries: list[Entry] = []
        self.answers: list[T] = []

    def accept(self, metadata_max: int) -> Generator[None, None, None]:
        """Check the metadata of each partition, in steps, and make the answers of a commit that the group allows."""
        is_too_large, entries = commit.is_metadata_too_large, self.entries

        def code_of(topic: Any, entry: Any) -> int:
            if is_too_large(entry.committed_metadata or "", metadata_max):
                return _TOO_LARGE
            entries.append((topic, entry))
            return 0

        yield from self._answer_each(code_of)

    def refuse(self, code: ErrorCode) -> Generator[None, None, None]:
        """Answer a code for each partition, in steps."""
        yield from self._answer_each(lambda _topic, _entry: int(code))

    def _answer_each(self, code_of: Callable[[Any, Any], int]) -> Generator[None, None, None]:
        self.answers = []
        seen = 0
        for topic in self._topics:
            answers: list[A] = []
            for entry in topic.partitions:
                answers.append(self._answer(entry.partition_index, code_of(topic, entry)))
                seen += 1
                if seen % HANDLER_STEP == 0:
                    yield
            self.answers.append(self._answer_topic(topic, answers))


def offset_commit_of(request: m.OffsetCommitRequest) -> OffsetCommitOf:
    return LongCommit(
        request.topics,
        commit.answer,
        lambda topic, answers: m.OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        ),
    )


def txn_offset_commit_of(request: m.TxnOffsetCommitRequest) -> TxnOffsetCommitOf:
    return LongCommit(
        request.topics,
        transactional_commit.answer,
        lambda topic, answers: m.TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers),
    )


def long_offset_commit(
    context: GroupContext, request: m.OffsetCommitRequest, entries: Sequence[Entry], api_version: int, now_ms: int
) -> Result[GroupRecord, ErrorCode]:
    """As `kohort.group.offsets.commit.offset_commit`; the response is the error code of all partitions."""
    try:
        commit.validate(context, request, api_version)
    except CoordinatorError as exc:
        return Result(response=exc.code)
    expire_ms = commit.expire_timestamp_ms(request, now_ms)
    return _accepted(context, request.group_id, entries, now_ms, expire_ms, lambda topic: topic.topic_id)


def long_txn_offset_commit(
    context: GroupContext,
    request: m.TxnOffsetCommitRequest,
    entries: Sequence[Entry],
    partitions: set[GroupPartition],
    now_ms: int,
) -> Result[GroupRecord, ErrorCode]:
    """
    As `kohort.group.offsets.transactional_commit.txn_offset_commit`; the response is the error code of all partitions.

    If the transaction had too many pending offsets afterwards, the commit is refused as a whole.

    Args:
        partitions: those of `entries`.
    """
    try:
        transactional_commit.validate(context, request)
    except CoordinatorError as exc:
        return Result(response=exc.code)
    pending: Mapping[GroupPartition, object] = context.offsets.pending.get(request.producer_id, {})
    if len(pending) + len(partitions - pending.keys()) > PENDING_OFFSETS_MAX:
        return Result(response=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return _accepted(context, request.group_id, entries, now_ms, NO_TIMESTAMP_MS, lambda _topic: None)


def _accepted(
    context: GroupContext,
    group_id: str,
    entries: Sequence[Entry],
    now_ms: int,
    expire_ms: int,
    topic_id_of: Callable[[Any], UUID | None],
) -> Result[GroupRecord, ErrorCode]:
    def record(entry: Entry) -> OffsetCommit:
        topic, partition = entry
        return OffsetCommit(
            group_id,
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms,
            expire_ms,
            topic_id_of(topic),
        )

    context.counters.offset_commits += len(entries)
    return Result(LongRecords(entries, record), ErrorCode.NONE)


def partitions_of(group_id: str, entries: Sequence[Entry]) -> Generator[None, None, set[GroupPartition]]:
    """Make, in steps, the keys of pending offsets."""
    found: set[GroupPartition] = set()
    for number, (topic, partition) in enumerate(entries, 1):
        found.add((group_id, (topic.name, partition.partition_index)))
        if number % HANDLER_STEP == 0:
            yield
    return found
