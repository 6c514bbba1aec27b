"""The names of all topics, which regular expressions are matched with."""

from kohort.model.image import ClusterImage


class TopicNames:
    """
    Attributes:
        created_version: the version of the last cluster image with new topics, or of the image with which the shard was loaded;
            -1 if neither is known. Deleted topics do not count, as in Kafka
            (GroupMetadataManager.lastMetadataImageWithNewTopics).
    """

    __slots__ = ("_names", "_version", "created_version")

    def __init__(self) -> None:
        self.created_version = -1
        self._version = -1
        self._names: tuple[str, ...] = ()

    def of(self, image: ClusterImage) -> tuple[int, tuple[str, ...]]:
        """The version of an image and its names. They are kept: after a change, all groups of a shard ask for them."""
        version = image.version
        if version != self._version:
            self._version = version
            self._names = tuple(topic.name for topic in image.topics())
        return version, self._names
