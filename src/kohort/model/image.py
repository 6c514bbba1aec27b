"""The cluster metadata that a coordinator sees: topics, and what changed between two images."""

from collections.abc import Collection, Iterable
from typing import Final, Protocol
from uuid import UUID

import msgspec


class TopicImage(Protocol):
    """One topic in the catalog."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_count(self) -> int: ...


class ClusterImage(Protocol):
    """The topics of the cluster. A lookup costs as much as a dict lookup."""

    @property
    def version(self) -> int:
        """A number that rises with every change, also across restarts."""

    @property
    def has_racks(self) -> bool:
        """Whether any broker has a rack; if not, no partition has one."""

    def racks(self, topic_id: UUID, partition: int, /) -> Collection[str]:
        """The racks of the replicas of a partition that exists; brokers without a rack do not count."""

    def topic(self, name: str, /) -> TopicImage | None: ...

    def topic_by_id(self, topic_id: UUID, /) -> TopicImage | None: ...

    def topics(self) -> Iterable[TopicImage]: ...


class ImageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """
    The difference between two successive cluster images.

    Attributes:
        created: topics that are new; a topic that was deleted and created again is in `deleted` and in `created`.
        changed: topics with more partitions or another configuration, as they are now.
        deleted: topics that no longer exist, as they were.
        changed_group_configs: ids of the groups whose dynamic configuration changed.

    Source: Kafka MetadataDelta, TopicsDelta, ConfigurationsDelta.
    """

    created: tuple[TopicImage, ...] = ()
    changed: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed_group_configs: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.created or self.changed or self.deleted or self.changed_group_configs)


class NoTopics:
    """A `ClusterImage` without topics."""

    version = 0
    has_racks = False

    def racks(self, _topic_id: UUID, _partition: int, /) -> Collection[str]:
        return ()

    def topic(self, _name: str) -> TopicImage | None:
        return None

    def topic_by_id(self, _topic_id: UUID) -> TopicImage | None:
        return None

    def topics(self) -> Iterable[TopicImage]:
        return ()


NO_TOPICS: Final[ClusterImage] = NoTopics()
