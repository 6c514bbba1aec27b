"""A scenario of real clients at a broker: members join and leave, commits, transactions; and the broker's own answers."""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.clients.waiting import wait_until

TIMEOUT_S = 300
ORDERS, OUT = "live-orders", "live-out"
PARTITIONS = {ORDERS: 4, OUT: 2}

Key = tuple[str, str, int]


class Story:
    """
    Clients of one broker. A context manager: leaving closes those that are still there.

    Attributes:
        groups: that have committed.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.groups: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        topics = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in PARTITIONS.items()]
        for done in self.admin.create_topics(topics).values():
            done.result(TIMEOUT_S)
        self.produce(per_partition=20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def produce(self, *, per_partition: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for topic, count in PARTITIONS.items():
            for partition in range(count):
                for index in range(per_partition):
                    producer.produce(topic, str(index).encode(), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

    def two_members(self, group: str, **settings: Any) -> None:
        """One member joins, a second one joins and leaves; the first one stays with all partitions, and has commits."""
        first = self._member(group, "first", settings)
        self._until_owned(first, (), PARTITIONS[ORDERS])
        self._commit(first, behind=3)
        second = self._member(group, "second", settings)
        self._until_owned(second, (first,), PARTITIONS[ORDERS] // 2)
        self._commit(second, behind=1)
        second.close()
        self._until_owned(first, (), PARTITIONS[ORDERS])
        self.produce(per_partition=2)
        self._commit(first, behind=5)
        self.groups.append(group)

    def transact(self, name: str, *, outcome: str) -> None:
        """A transaction with data and offsets of a group of its own: `commit`, `abort`, or left `open`."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer(settings)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS[OUT]):
            producer.produce(OUT, name.encode(), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        group = f"{name}-group"
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            metadata = reader.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(ORDERS, 0, 7)], metadata, TIMEOUT_S)
        finally:
            reader.close()
        if outcome == "commit":
            producer.commit_transaction(TIMEOUT_S)
        elif outcome == "abort":
            producer.abort_transaction(TIMEOUT_S)
        else:
            # It must live until the end: a producer that is closed aborts what it has begun.
            self._stack.callback(producer.abort_transaction, TIMEOUT_S)
        self.groups.append(group)

    def offsets(self) -> dict[Key, int]:
        """Return the committed offsets, as the broker reports them."""
        found = {}
        for group in self.groups:
            asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            for one in asked[group].result(TIMEOUT_S).topic_partitions:
                found[group, one.topic, one.partition] = one.offset
        return found

    def ends(self, *, committed: bool = False) -> dict[tuple[str, int], int]:
        """Return the log end offsets, or the last stable offsets."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        places = [TopicPartition(topic, partition) for topic, count in PARTITIONS.items() for partition in range(count)]
        asked = self.admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
        return {(place.topic, place.partition): done.result(TIMEOUT_S).offset for place, done in asked.items()}

    def members(self, groups: Iterable[str]) -> dict[tuple[str, str], set[tuple[str, int]]]:
        """Return the members of groups with their partitions, as the broker reports them."""
        found = {}
        for group, done in self.admin.describe_consumer_groups(list(groups)).items():
            for member in done.result(TIMEOUT_S).members:
                owned = {(one.topic, one.partition) for one in member.assignment.topic_partitions}
                found[group, member.member_id] = owned
        return found

    def _member(self, group: str, client: str, settings: dict[str, Any]) -> Consumer:
        base = {"bootstrap.servers": self.bootstrap, "group.id": group, "client.id": client}
        base |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        consumer = Consumer(base | settings)
        self._stack.callback(consumer.close)
        consumer.subscribe([ORDERS])
        return consumer

    @staticmethod
    def _until_owned(consumer: Consumer, others: Iterable[Consumer], count: int) -> None:
        def owns() -> bool:
            for one in (consumer, *others):
                one.poll(0.05)
            return len(consumer.assignment()) == count

        wait_until(owns, timeout_s=TIMEOUT_S, what=f"{count} partitions")

    @staticmethod
    def _commit(consumer: Consumer, *, behind: int) -> None:
        for place in consumer.assignment():
            _, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
            consumer.commit(offsets=[TopicPartition(place.topic, place.partition, end - behind)], asynchronous=False)
