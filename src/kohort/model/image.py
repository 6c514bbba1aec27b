"""What a coordinator may see of the cluster: its topics, by name and by id."""

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID


class TopicImage(Protocol):
    """One topic as the catalog knows it at this moment."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partition_count(self) -> int: ...


class ClusterImage(Protocol):
    """The topics of the cluster. Looking up costs what a dict costs."""

    def topic(self, name: str) -> TopicImage | None: ...

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None: ...

    def topics(self) -> Iterable[TopicImage]: ...
