"""
The answers to OffsetCommit and TxnOffsetCommit, and the entries that their group is asked for.

Topics and partitions are checked against the cluster, and metadata against its limit, before the group is asked. The group
decides about a commit as a whole, so its answer is one code. The work is done in steps: a request may have many partitions.

Source: Kafka KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from kohort.group.records import utf16_length
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage, TopicImage
from kohort.wire import messages as m

A = TypeVar("A")
"""The answer to one partition."""
T = TypeVar("T")
"""The answer to one topic."""

TOPIC_IDS_SINCE: Final = 10
"""OffsetCommit and OffsetFetch name topics by id."""
TXN_TOPIC_IDS_SINCE: Final = 6
"""TxnOffsetCommit names topics by id."""

Entry: TypeAlias = tuple[str, UUID | None, Any]
"""
Name and id of a topic, and a partition of the request: one offset that the group may take.

The id is the object in the cluster image, also if the request has it: committed offsets share it.
"""

_NONE: Final = ErrorCode.NONE
_TOO_LARGE: Final = ErrorCode.OFFSET_METADATA_TOO_LARGE
_UNKNOWN_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID
_UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


_Topic: TypeAlias = tuple[str, UUID | None, list[A]]
"""Name and id of a topic, and the answers to its partitions."""


class CommitAnswers(Generic[A, T]):
    """
    The answers to one commit.

    Args:
        answer: makes the answer to a partition of its index and error code.
        answer_topic: makes the answer to a topic of its name, its id and the answers to its partitions.
        is_merged: whether a topic that is listed twice is answered once, even if none of its partitions is refused.

    Attributes:
        entries: the partitions that exist and whose metadata is short enough.
        refused: by topic, the partitions that do not exist.
        asked: by topic, the partitions that the group is asked for.
    """

    def __init__(
        self,
        answer: Callable[[int, ErrorCode], A],
        answer_topic: Callable[[str, UUID | None, list[A]], T],
        *,
        is_merged: bool,
    ) -> None:
        self._answer = answer
        self._answer_topic = answer_topic
        self._is_merged = is_merged
        self.entries: list[Entry] = []
        self.refused: list[_Topic[A]] = []
        self.asked: list[_Topic[A]] = []

    def check(
        self, topics: Iterable[Any], image: ClusterImage, metadata_max: int, *, by_id: bool
    ) -> Generator[None, None, None]:
        """
        Answer each partition as if the group allowed the commit.

        Args:
            topics: those of the request.
            metadata_max: `offset.metadata.max.bytes`, which counts UTF-16 units in spite of its name.
            by_id: whether the request names topics by their ids.
        """
        answer, entries, seen = self._answer, self.entries, 0
        for topic in topics:
            found = topic_by_id(image, topic.topic_id) if by_id else image.topic(topic.name)
            name, topic_id = topic.name if found is None else found.name, topic.topic_id if by_id else None
            count, present_id = (0, None) if found is None else (found.partition_count, found.topic_id)
            unknown = _UNKNOWN_ID if by_id and found is None else _UNKNOWN_PARTITION
            refused: list[A] = []
            asked: list[A] = []
            for entry in topic.partitions:
                seen += 1
                if seen % HANDLER_STEP == 0:
                    yield
                index = entry.partition_index
                if not 0 <= index < count:
                    refused.append(answer(index, unknown))
                    continue
                metadata = entry.committed_metadata
                if metadata and len(metadata) * 2 > metadata_max and utf16_length(metadata) > metadata_max:
                    asked.append(answer(index, _TOO_LARGE))
                else:
                    asked.append(answer(index, _NONE))
                    entries.append((name, present_id, entry))
            if refused or found is None:
                self.refused.append((name, topic_id, refused))
            if asked:
                self.asked.append((name, topic_id, asked))
            seen += 1
            if seen % HANDLER_STEP == 0:
                yield

    def refuse(self, code: ErrorCode) -> Generator[None, None, None]:
        """Answer a code for each partition that the group was asked for."""
        seen = 0
        for _, _, asked in self.asked:
            answers: list[Any] = asked
            for place, answer in enumerate(answers):
                answers[place] = self._answer(answer.partition_index, code)
                seen += 1
                if seen % HANDLER_STEP == 0:
                    yield

    def topics(self) -> Generator[None, None, list[T]]:
        """The answers by topic: one entry for each, refused partitions before the others."""
        topics: Sequence[_Topic[A]] = self.asked
        if self.refused or self._is_merged:
            merged: dict[Hashable, _Topic[A]] = {}
            for number, (name, topic_id, answers) in enumerate((*self.refused, *self.asked), 1):
                key = name or topic_id
                if key in merged:
                    merged[key][2].extend(answers)
                else:
                    merged[key] = name, topic_id, answers
                if number % HANDLER_STEP == 0:
                    yield
            topics = list(merged.values())
        answered: list[T] = []
        for topic in topics:
            answered.append(self._answer_topic(*topic))
            if len(answered) % HANDLER_STEP == 0:
                yield
        return answered


def topic_by_id(image: ClusterImage, topic_id: UUID | None) -> TopicImage | None:
    return None if topic_id is None else image.topic_by_id(topic_id)


# OffsetCommit

OffsetCommitAnswers: TypeAlias = CommitAnswers[m.OffsetCommitResponsePartition, m.OffsetCommitResponseTopic]


def offset_commit_answers() -> OffsetCommitAnswers:
    return CommitAnswers(_commit_answer, _commit_topic, is_merged=True)


@lru_cache(maxsize=4_096)
def _commit_answer(partition: int, code: ErrorCode) -> m.OffsetCommitResponsePartition:
    """Cached: most commits name the same partitions and succeed."""
    return m.OffsetCommitResponsePartition(partition_index=partition, error_code=int(code))


def _commit_topic(
    name: str, topic_id: UUID | None, answers: list[m.OffsetCommitResponsePartition]
) -> m.OffsetCommitResponseTopic:
    return m.OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=answers)


# TxnOffsetCommit

TxnOffsetCommitAnswers: TypeAlias = CommitAnswers[m.TxnOffsetCommitResponsePartition, m.TxnOffsetCommitResponseTopic]


def txn_offset_commit_answers() -> TxnOffsetCommitAnswers:
    return CommitAnswers(_txn_answer, _txn_topic, is_merged=False)


def _txn_answer(partition: int, code: ErrorCode) -> m.TxnOffsetCommitResponsePartition:
    return m.TxnOffsetCommitResponsePartition(partition_index=partition, error_code=int(code))


def _txn_topic(
    name: str, topic_id: UUID | None, answers: list[m.TxnOffsetCommitResponsePartition]
) -> m.TxnOffsetCommitResponseTopic:
    return m.TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=answers)
