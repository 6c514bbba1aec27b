"""
The topics that a consumer subscribes to, read from its metadata in JoinGroup.

In Kafka, malformed metadata that are not merely truncated raise in the middle of a rebalance, which blocks the group, or fail
the load of a whole partition. Here the topics are unknown in both cases. Like Kafka, this reads version 0 whatever version the
bytes name; therefore `kohort.wire.consumer_protocol` is not used.

Source: Kafka ClassicGroup.computeSubscribedTopics, ConsumerProtocolSubscription.json.
"""

from struct import error

from kohort.group.cursor import Cursor
from kohort.model.errors import WireError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None if the metadata are malformed."""
    cursor = Cursor(metadata)
    try:
        cursor.int16()
        return frozenset(cursor.string() for _ in range(cursor.array_length()))
    except (WireError, ValueError, error):
        return None
