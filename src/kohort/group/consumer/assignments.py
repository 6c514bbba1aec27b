"""
Assignments in the classic protocol, by names of topics.

Source: Kafka ConsumerProtocol, GroupMetadataManager.prepareAssignment.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.model.errors import WireError
from kohort.model.image import ClusterImage
from kohort.records.consumer_protocol import NEWEST_VERSION, read_version, write_assignment
from kohort.records.values import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition


class NamedPartitions(Protocol):
    """The partitions of one topic, in a subscription or an assignment."""

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> Sequence[int]: ...


class OwnedPartitions(NamedTuple):
    """Implements `TopicPartitions`."""

    topic_id: UUID | None
    partitions: Sequence[int]


def with_topic_ids(entries: Iterable[NamedPartitions], image: ClusterImage) -> list[OwnedPartitions]:
    """The entries under the ids of their topics; topics that do not exist are left out."""
    found = ((image.topic(entry.topic), entry.partitions) for entry in entries)
    return [OwnedPartitions(topic.topic_id, partitions) for topic, partitions in found if topic is not None]


def assignment_bytes(assignment: Assignment | None, metadata: bytes, image: ClusterImage) -> bytes:
    """
    The assignment for a member of the classic protocol; topics that do not exist are left out.

    Args:
        metadata: of the member; the assignment has their version.
    """
    try:
        version = read_version(metadata)
    except WireError:
        version = 0
    entries = []
    for topic_id, partitions in (assignment or NO_ASSIGNMENT).items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            entries.append(ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=partitions))
    value = ConsumerProtocolAssignment(assigned_partitions=tuple(entries), user_data=None)
    return write_assignment(value, min(version, NEWEST_VERSION))
