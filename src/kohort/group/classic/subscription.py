"""
The topics that a consumer subscribes to, read from the metadata of its JoinGroup.

In Kafka a malformed subscription throws in the middle of a rebalance, which wedges the group, or fails the load of a whole
partition. Here its topics are unknown. Like Kafka, this module reads version 0 whatever version the bytes state.

Source: Kafka ClassicGroup.computeSubscribedTopics, ConsumerProtocolSubscription.json.
"""

from kohort.model.errors import WireError
from kohort.records.consumer_protocol import read_subscription

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None if the bytes are not a subscription."""
    try:
        return frozenset(read_subscription(metadata, version=0).topics)
    except WireError:
        return None
