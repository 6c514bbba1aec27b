"""
The share partitions of a group whose state is being made, is there, or is being deleted: the value of record 15.

A topic is unknown, then its partitions are initializing, then initialized. A topic that is deleting has lost all of them.

Source: Kafka ShareGroupStatePartitionMetadataInfo, GroupMetadataManager.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.group.assignments import assignment_of, union, without
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.model.image import ClusterImage
from kohort.records.values import (
    ShareGroupStatePartitionMetadata,
    ShareGroupStatePartitionMetadataTopicInfo,
    ShareGroupStatePartitionMetadataTopicPartitionsInfo,
)

Names: TypeAlias = Mapping[UUID, str]

_ZERO_ID: Final = UUID(int=0)
UNKNOWN_NAME: Final = "<UNKNOWN>"
"""The name of a topic that is not known. Source: Kafka GroupMetadataManager.attachTopicName."""


class ShareStates(msgspec.Struct, frozen=True):
    """
    Attributes:
        names: of the topics.
        deleting: ids of topics.
    """

    initializing: Assignment = NO_ASSIGNMENT
    initialized: Assignment = NO_ASSIGNMENT
    deleting: frozenset[UUID] = frozenset()
    names: Names = {}

    @property
    def topic_ids(self) -> frozenset[UUID]:
        """Every topic, whatever its state."""
        return self.deleting.union(self.initializing, self.initialized)

    def initializing_too(self, partitions: Assignment, image: ClusterImage) -> "ShareStates":
        """The states when the initialization of these partitions begins."""
        return self._changed(
            image,
            initializing=union(self.initializing, partitions),
            deleting=self.deleting.difference(partitions),
        )

    def initialized_too(self, partitions: Assignment, image: ClusterImage) -> "ShareStates":
        """The states when these partitions are initialized."""
        return self._changed(
            image,
            initializing=without(self.initializing, partitions),
            initialized=union(self.initialized, partitions),
        )

    def not_initializing(self, partitions: Assignment, image: ClusterImage) -> "ShareStates":
        """The states when the initialization of these partitions has failed."""
        return self._changed(image, initializing=without(self.initializing, partitions))

    def without_topics(self, topic_ids: Iterable[UUID], image: ClusterImage) -> "ShareStates":
        """The states without some topics."""
        gone = frozenset(topic_ids)
        return self._changed(
            image,
            initializing=_without_topics(self.initializing, gone),
            initialized=_without_topics(self.initialized, gone),
            deleting=self.deleting - gone,
        )

    def deleting_too(self, topic_ids: Iterable[UUID], image: ClusterImage) -> "ShareStates":
        """The states when the deletion of some topics begins."""
        gone = frozenset(topic_ids)
        return self._changed(
            image,
            initializing=_without_topics(self.initializing, gone),
            initialized=_without_topics(self.initialized, gone),
            deleting=self.deleting | gone,
        )

    def _changed(self, image: ClusterImage, **changes: object) -> "ShareStates":
        changed = msgspec.structs.replace(self, **changes)
        names = {topic_id: self.names.get(topic_id) or _name(topic_id, image) for topic_id in changed.topic_ids}
        return msgspec.structs.replace(changed, names=names)

    def record(self, group_id: str) -> ShareGroupStatePartitionMetadata:
        topic = ShareGroupStatePartitionMetadataTopicPartitionsInfo
        names = self.names
        return ShareGroupStatePartitionMetadata(
            group_id,
            initializing_topics=tuple(topic(id_, names[id_], each) for id_, each in self.initializing.items()),
            initialized_topics=tuple(topic(id_, names[id_], each) for id_, each in self.initialized.items()),
            deleting_topics=tuple(
                ShareGroupStatePartitionMetadataTopicInfo(topic_id, names[topic_id]) for topic_id in self.deleting
            ),
        )


NO_STATES: Final = ShareStates()


def states_of(record: ShareGroupStatePartitionMetadata) -> ShareStates:
    names = {topic.topic_id or _ZERO_ID: topic.topic_name for topic in record.deleting_topics}
    for topic in (*record.initializing_topics, *record.initialized_topics):
        names[topic.topic_id or _ZERO_ID] = topic.topic_name
    return ShareStates(
        assignment_of(record.initializing_topics),
        assignment_of(record.initialized_topics),
        frozenset(topic.topic_id or _ZERO_ID for topic in record.deleting_topics),
        names,
    )


def _name(topic_id: UUID, image: ClusterImage) -> str:
    topic = image.topic_by_id(topic_id)
    return UNKNOWN_NAME if topic is None else topic.name


def _without_topics(assignment: Assignment, topic_ids: frozenset[UUID]) -> Assignment:
    return {topic_id: each for topic_id, each in assignment.items() if topic_id not in topic_ids}
