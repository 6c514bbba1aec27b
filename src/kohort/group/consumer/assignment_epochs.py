"""
Assignment epochs: for each partition of a member, the epoch of the target assignment with which the member got it.

A partition keeps its epoch as long as the member keeps it, also while the member has to revoke it. Commits of a member with an
older epoch are judged by them (KIP-1251).

Source: Kafka ConsumerGroupMember.assignmentEpoch, Utils.assignmentFromTopicPartitions.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import lt
from typing import Final, TypeAlias
from uuid import UUID

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.records.values import ConsumerGroupCurrentMemberAssignmentTopicPartitions

Epochs: TypeAlias = int | Mapping[UUID, tuple[int, ...]]
"""
The epochs of an assignment: one for all partitions, or by topic one for each partition, in their order. Epochs that are all
equal are always one number, and 0 without partitions, so equal epochs compare equal and most members need no further memory.
"""

Held: TypeAlias = tuple[Assignment, Epochs]
"""Partitions with their epochs."""

_ZERO_ID: Final = UUID(int=0)


def epochs_of(epochs: Epochs, topic_id: UUID, partitions: tuple[int, ...]) -> tuple[int, ...]:
    """The epochs of these partitions, which are all that the assignment has of the topic."""
    return (epochs,) * len(partitions) if isinstance(epochs, int) else epochs[topic_id]


def epoch_of(held: Held, topic_id: UUID, partition: int) -> int | None:
    """The epoch of one partition; None if the assignment does not have it."""
    assignment, epochs = held
    partitions = assignment.get(topic_id, ())
    place = bisect_left(partitions, partition)
    if place == len(partitions) or partitions[place] != partition:
        return None
    return epochs if isinstance(epochs, int) else epochs[topic_id][place]


def carried(assignment: Assignment, sources: Iterable[Held], epoch: int) -> Epochs:
    """The epochs of an assignment: partitions keep those of the sources, of the last that has them; others get `epoch`."""
    sources = tuple(sources)
    by_topic: dict[UUID, tuple[int, ...]] = {}
    for topic_id, partitions in assignment.items():
        known: dict[int, int] = {}
        for held, epochs in sources:
            before = held.get(topic_id, ())
            if before:
                known.update(zip(before, epochs_of(epochs, topic_id, before), strict=True))
        by_topic[topic_id] = (
            tuple([known.get(partition, epoch) for partition in partitions]) if known else (epoch,) * len(partitions)
        )
    return _compact(by_topic)


def read_held(entries: Iterable[ConsumerGroupCurrentMemberAssignmentTopicPartitions], member_epoch: int) -> Held:
    """
    The partitions of a record with their epochs; entries of one topic are merged.

    Partitions without epochs, or with another number of them, have the epoch of the member: Kafka before 4.4 wrote none.
    """
    assignment: dict[UUID, tuple[int, ...]] = {}
    by_topic: dict[UUID, tuple[int, ...]] = {}
    for entry in entries:
        partitions, epochs = tuple(entry.partitions), entry.assignment_epochs
        if not partitions:
            continue
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(member_epoch, 0),) * len(partitions)
        topic_id = entry.topic_id or _ZERO_ID
        before = assignment.get(topic_id, ())
        # Usually this is the only entry, and in order: a member may have ten thousand partitions.
        if before or not all(map(lt, partitions, partitions[1:])):
            known = dict(zip(before + partitions, by_topic.get(topic_id, ()) + epochs, strict=True))
            partitions = tuple(sorted(known))
            epochs = tuple([known[partition] for partition in partitions])
        assignment[topic_id], by_topic[topic_id] = partitions, epochs
    return assignment or NO_ASSIGNMENT, _compact(by_topic)


def _compact(by_topic: Mapping[UUID, tuple[int, ...]]) -> Epochs:
    distinct: set[int] = set().union(*by_topic.values())
    if len(distinct) > 1:
        return by_topic
    return distinct.pop() if distinct else 0
