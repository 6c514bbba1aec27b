"""
Counters of what clients write to topics and read from them. The counters of a deleted topic stay in the total.

Source: Kafka BrokerTopicStats, BrokerTopicMetrics.
"""

from typing import Final

COUNTERS: Final = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "failed_produce_requests",
    "fetch_requests",
    "failed_fetch_requests",
)


class TopicTraffic:
    """
    Attributes:
        messages_in, bytes_in: records and bytes that were appended for producers.
        bytes_out: bytes of records in answers to consumers.
        bytes_rejected: bytes of batches that are too large.
        produce_requests, fetch_requests: partitions in requests; as in Kafka, a request counts once for each partition.
        failed_produce_requests, failed_fetch_requests: those that were answered with an error.
    """

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.failed_fetch_requests = 0

    def add(self, other: "TopicTraffic") -> None:
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """
    The counters of a broker.

    Attributes:
        topics: by topic.
        unknown: requests for partitions that do not exist, and of topics that were deleted.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.unknown = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic that exists."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Drop the counters of a topic that was deleted, and keep their numbers in the total."""
        found = self.topics.pop(topic, None)
        if found is not None:
            self.unknown.add(found)

    def total(self) -> TopicTraffic:
        total = TopicTraffic()
        total.add(self.unknown)
        for each in self.topics.values():
            total.add(each)
        return total
