"""
Operations on assignments (`kohort.group.assignors.specs.Assignment`). None changes its arguments.

Partitions are ascending and no topic is without partitions, so equal assignments compare equal.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment

_ZERO_ID: Final = UUID(int=0)

E = TypeVar("E")


class TopicPartitions(Protocol):
    """The partitions of one topic, in a request or in a record."""

    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def partitions(self) -> Sequence[int]: ...


def assignment_of(entries: Iterable[TopicPartitions]) -> Assignment:
    """The assignment that a record or a request lists; entries of one topic are merged."""
    assignment: dict[UUID, tuple[int, ...]] = {}
    for entry in entries:
        topic_id = entry.topic_id or _ZERO_ID
        partitions = assignment.get(topic_id, ()) + tuple(entry.partitions)
        if partitions:
            assignment[topic_id] = tuple(sorted(set(partitions)))
    return assignment or NO_ASSIGNMENT


def entries_of(assignment: Assignment, make_entry: Callable[[UUID, tuple[int, ...]], E]) -> tuple[E, ...]:
    """The entries of a record or a response."""
    return tuple(make_entry(topic_id, partitions) for topic_id, partitions in assignment.items())


def contains_all(assignment: Assignment, entries: Iterable[TopicPartitions]) -> bool:
    """Whether every listed partition is assigned."""
    return all(set(entry.partitions).issubset(assignment.get(entry.topic_id or _ZERO_ID, ())) for entry in entries)


def contains_any(assignment: Assignment, entries: Iterable[TopicPartitions]) -> bool:
    """Whether at least one listed partition is assigned."""
    return any(
        not set(entry.partitions).isdisjoint(assignment.get(entry.topic_id or _ZERO_ID, ())) for entry in entries
    )


def of_topics(assignment: Assignment, topic_ids: Collection[UUID]) -> tuple[Assignment, Assignment]:
    """Split an assignment: the partitions of these topics, and the others."""
    if all(topic_id in topic_ids for topic_id in assignment):
        return assignment, NO_ASSIGNMENT
    kept: dict[UUID, tuple[int, ...]] = {}
    others: dict[UUID, tuple[int, ...]] = {}
    for topic_id, partitions in assignment.items():
        (kept if topic_id in topic_ids else others)[topic_id] = partitions
    return kept or NO_ASSIGNMENT, others or NO_ASSIGNMENT


def union(first: Assignment, second: Assignment) -> Assignment:
    """The partitions that are in one of both."""
    if not first or not second:
        return first or second
    merged = dict(first)
    for topic_id, partitions in second.items():
        mine = merged.get(topic_id)
        merged[topic_id] = partitions if mine is None else tuple(sorted({*mine, *partitions}))
    return merged


def partition_count(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def without(first: Assignment, second: Assignment) -> Assignment:
    """The partitions that are in the first one only."""
    left: dict[UUID, tuple[int, ...]] = {}
    for topic_id, partitions in first.items():
        others = second.get(topic_id)
        kept = partitions if others is None else tuple(sorted(set(partitions).difference(others)))
        if kept:
            left[topic_id] = kept
    return left or NO_ASSIGNMENT


def common(first: Assignment, second: Assignment) -> Assignment:
    """The partitions that are in both."""
    return without(first, without(first, second))
