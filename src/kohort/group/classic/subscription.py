"""
The topics a consumer subscribes to, read from the metadata of its JoinGroup.

Kafka lets bytes that are worse than truncated throw in the middle of a rebalance, which wedges the group, or fails the load
of a whole partition. Here they are topics unknown, no more. Reading version 0 whatever the bytes claim is Kafka's way; it is
also why this is not `kohort.wire.consumer_protocol`.

Source: Kafka ClassicGroup.computeSubscribedTopics, ConsumerProtocolSubscription.json.
"""

from struct import error

from kohort.group.cursor import Cursor
from kohort.model.errors import WireError

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when these bytes do not say. Whatever version they claim, version 0 is read."""
    cursor = Cursor(metadata)
    try:
        cursor.int16()
        return frozenset(cursor.string() for _ in range(cursor.array_length()))
    except (WireError, ValueError, error):
        return None
