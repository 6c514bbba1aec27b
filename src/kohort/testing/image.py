"""A cluster image that consists of what a test puts into it."""

from collections.abc import Collection, Iterable
from uuid import UUID

import msgspec

from kohort.model.image import ImageDelta, TopicImage


class FixedTopic(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    topic_id: UUID
    partition_count: int = 1


class FixedImage:
    """`kohort.model.image.ClusterImage` of a list of topics, which a test may change."""

    has_racks = False

    def __init__(self, topics: Iterable[FixedTopic] = ()) -> None:
        self.by_name: dict[str, FixedTopic] = {topic.name: topic for topic in topics}

    @property
    def version(self) -> int:
        return len(self.by_name)

    def racks(self, _topic_id: UUID, _partition: int, /) -> Collection[str]:
        return ()

    def topic(self, name: str) -> TopicImage | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return next((topic for topic in self.by_name.values() if topic.topic_id == topic_id), None)

    def topics(self) -> Iterable[TopicImage]:
        return self.by_name.values()


def deleted_topics(*topics: str | TopicImage) -> ImageDelta:
    """The image delta of these topics' deletion; a name stands for a topic of which nothing else is known."""
    deleted = [FixedTopic(topic, UUID(int=0)) if isinstance(topic, str) else topic for topic in topics]
    return ImageDelta(deleted=tuple(deleted))
