"""Queries of the demo: offsets, records and groups, as clients see them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from demo_application import GROUP as APPLICATION_GROUP
from demo_parts import GROUP, TOPICS, WAIT_SECONDS_MAX, Broker, ClaimError, Position

AUDIT: Final = "audit"
PARTITIONS: Final = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]


@contextmanager
def consumer(broker: Broker, group: str, isolation: str = "read_uncommitted") -> Iterator[Any]:
    """Open a confluent-kafka consumer that does not join its group."""
    opened = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def committed_offsets(broker: Broker, group: str) -> dict[Position, int]:
    with consumer(broker, group) as client:
        found = client.committed([TopicPartition(*position) for position in PARTITIONS], timeout=WAIT_SECONDS_MAX)
    return {(it.topic, it.partition): it.offset for it in found if it.offset >= 0}


def end_offsets(broker: Broker) -> dict[Position, int]:
    with consumer(broker, AUDIT) as client:
        return {it: client.get_watermark_offsets(TopicPartition(*it), WAIT_SECONDS_MAX)[1] for it in PARTITIONS}


def lag_over_the_wire(broker: Broker) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return committed offset and lag by group, topic and partition."""
    ends = end_offsets(broker)
    return {
        (group, *position): (offset, ends[position] - offset)
        for group in (GROUP, AUDIT, APPLICATION_GROUP)
        for position, offset in committed_offsets(broker, group).items()
    }


def read_everything(broker: Broker) -> dict[tuple[str, int, int], bytes]:
    """Read the values of all records of `TOPICS`, by topic, partition and offset."""
    return read_records(broker, PARTITIONS, "read_uncommitted")


def read_records(broker: Broker, partitions: list[Position], isolation: str) -> dict[tuple[str, int, int], bytes]:
    """Read all record values that a consumer with this isolation level gets, by topic, partition and offset."""
    unread = set(partitions)
    found: dict[tuple[str, int, int], bytes] = {}
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with consumer(broker, AUDIT, isolation) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
        while unread and time.monotonic() < deadline:
            for record in reader.consume(1_000, timeout=0.2):
                if record.error() is None:
                    found[record.topic(), record.partition(), record.offset()] = record.value()
                elif record.error().code() == KafkaError._PARTITION_EOF:
                    unread.discard((record.topic(), record.partition()))
    if unread:
        raise ClaimError(f"{isolation} consumers do not reach the end of {sorted(unread)}")
    return found


class Group:
    """The group as the coordinator describes it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})

    def shares(self) -> dict[str, int] | None:
        """Return partition counts by client; None unless the group is stable and each partition has one owner."""
        try:
            described = self._admin.describe_consumer_groups([GROUP], request_timeout=5)[GROUP].result()
        except KafkaException:
            # librdkafka drops its brokers while all of them are down, and may then wait for a broker forever.
            self._admin = self._new_admin()
            return None
        owned = {
            member.client_id: [(it.topic, it.partition) for it in member.assignment.topic_partitions]
            for member in described.members
        }
        is_whole = sorted(it for partitions in owned.values() for it in partitions) == PARTITIONS
        if described.state != ConsumerGroupState.STABLE or not is_whole:
            return None
        return {client: len(partitions) for client, partitions in sorted(owned.items())}

    def consists_of(self, *clients: str) -> bool:
        return sorted(self.shares() or ()) == sorted(clients)

    def shares_text(self) -> str:
        return ", ".join(f"{client} {count}" for client, count in (self.shares() or {}).items())
