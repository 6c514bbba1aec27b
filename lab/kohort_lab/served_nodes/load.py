"""Clients of the nodes: each is a thread with a client of librdkafka, and a new one after an error that ends it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.client.addresses import Address
from kohort.client.connection import Connection, Versions
from kohort.model.errors import KohortError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.served_nodes.ledger import Ledger, Place

QUIET: Final[dict[str, Any]] = {
    "error_cb": lambda _: None,
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
WAIT_S: Final = 60.0
POLL_S: Final = 0.05
READ_S: Final = 1.0
ANSWER_S: Final = 20.0
"""Longer than a pause: the answer to a request to a paused node is taken."""
_BY_NAME: Final = Versions(8, 9)


class Client(ABC):
    """A thread that uses clients until it is stopped."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.problems: list[str] = []
        """Errors after which a new client was made."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            self.ledger.on_mistake(f"{type(self).__name__} does not end")

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def _run(self) -> None:
        while not self.is_ended:
            try:
                self.use()
            except KafkaException as error:
                self.problems.append(str(error))
                self._ended.wait(POLL_S)
            except Exception as error:  # noqa: BLE001 -- a thread that dies must be seen
                self.ledger.on_mistake(f"{type(self).__name__}: {error!r}")
                return

    @abstractmethod
    def use(self) -> None:
        """Make a client, and use it until the end, or until an error ends it."""


class Writer(Client):
    """Writes numbered records into all partitions of a topic with an idempotent producer."""

    def __init__(
        self, bootstrap: str, ledger: Ledger, name: str, topic: str, partitions: int, pause_s: float = 0.005
    ) -> None:
        super().__init__(bootstrap, ledger)
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._next = [0] * partitions
        self._lives = 0

    def use(self) -> None:
        self._lives += 1
        # Records of a producer that has failed may be there or not: the next one has a name of its own.
        name, numbers = f"{self._name}.{self._lives}", [0] * self._partitions
        producer = Producer(
            QUIET
            | {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
            }
        )
        fatal: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self.ledger.on_record(message.topic(), message.partition(), message.offset(), message.value())
            else:
                fatal.append(error)

        turn = 0
        while not self.is_ended and not fatal:
            partition = turn % self._partitions
            value = f"{name}.{partition}:{numbers[partition]}".encode()
            with suppress(BufferError):
                producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)
                numbers[partition] += 1
                turn += 1
            producer.poll(self._pause_s)
        producer.flush(WAIT_S)
        if fatal and not self.is_ended:
            raise KafkaException(fatal[0])


class TransactionalWriter(Client):
    """Writes records in transactions, of which it aborts some."""

    def __init__(
        self, bootstrap: str, ledger: Ledger, name: str, topic: str, partitions: int, pause_s: float = 0.05
    ) -> None:
        super().__init__(bootstrap, ledger)
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._count = 0
        self.committed = 0
        self.aborted = 0

    def use(self) -> None:
        producer = Producer(
            QUIET
            | {"bootstrap.servers": self.bootstrap, "transactional.id": self._name, "transaction.timeout.ms": 30_000}
        )
        producer.init_transactions(WAIT_S)
        while not self.is_ended:
            self._transact(producer)
            self._ended.wait(self._pause_s)

    def _transact(self, producer: Producer) -> None:
        self._count += 1
        # One record a partition, each under the name of its transaction.
        values = [f"{self._name}.{self._count}.{partition}:0".encode() for partition in range(self._partitions)]
        delivered: list[tuple[str, int, int, bytes]] = []

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is None:
                delivered.append((message.topic(), message.partition(), message.offset(), message.value()))

        producer.begin_transaction()
        for partition, value in enumerate(values):
            producer.produce(self._topic, value, partition=partition, on_delivery=on_delivery)
        is_to_abort = self._count % 4 == 0
        if not is_to_abort:
            self.ledger.whole.append(frozenset(values))
        try:
            while True:
                try:
                    if is_to_abort:
                        producer.abort_transaction(WAIT_S)
                    else:
                        producer.commit_transaction(WAIT_S)
                    break
                except KafkaException as error:
                    if error.args[0].txn_requires_abort() and not is_to_abort:
                        is_to_abort = True
                    elif not error.args[0].retriable():
                        raise
        finally:
            producer.poll(0)
        if is_to_abort:
            self.aborted += 1
            self.ledger.unwanted.update(values)
        else:
            self.committed += 1
            for record in delivered:
                self.ledger.on_record(*record)


class Member(Client):
    """
    A member of a group that reads and commits.

    A commit that a coordinator refuses because it loads is made with the next one. After another error of a commit it makes
    a new client, since the commit may still arrive: the coordinator refuses it from a member that has left, or whose generation
    is over.
    """

    def __init__(
        self,
        bootstrap: str,
        ledger: Ledger,
        group: str,
        topic: str,
        protocol: str = "classic",
        on_commit: Callable[[float], None] = lambda _: None,
    ) -> None:
        super().__init__(bootstrap, ledger)
        self._group = group
        self._topic = topic
        self._protocol = protocol
        self._on_commit = on_commit

    def use(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self._group,
            "group.protocol": self._protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        if self._protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        consumer = Consumer(QUIET | settings)
        last: dict[Place, int] = {}

        def on_assign(_consumer: Consumer, assigned: list[TopicPartition]) -> None:
            for each in assigned:
                last.pop((each.topic, each.partition), None)

        consumer.subscribe([self._topic], on_assign=on_assign)
        try:
            while not self.is_ended:
                messages = [it for it in consumer.consume(200, POLL_S) if not it.error()]
                for message in messages:
                    place, offset = (message.topic(), message.partition()), message.offset()
                    if offset <= last.get(place, -1):
                        self.ledger.on_mistake(f"{self._group} read {place} at {offset} after {last[place]}")
                    last[place] = offset
                    self.ledger.on_read(message.value())
                if messages:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            committed = consumer.commit(asynchronous=False) or []
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return
        for done in committed:
            if done.error is None and done.offset >= 0:
                self.ledger.on_commit(self._group, done.topic, done.partition, done.offset)
        self._on_commit(time.monotonic())


class Auditor(Client):
    """
    Asks one node for committed offsets, whether it coordinates the groups or not, also while it is paused. If it answers, no
    offset is below a commit that was acknowledged before the request.
    """

    def __init__(self, address: Address, ledger: Ledger, groups: Sequence[str], topic: str, partitions: int) -> None:
        super().__init__(str(address), ledger)
        self._address = address
        self._groups = groups
        self._asked = [m.OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))]
        self.answers = 0

    def use(self) -> None:
        try:
            with Connection(self._address, ANSWER_S) as connection:
                while not self.is_ended:
                    for group in self._groups:
                        self._ask(connection, group)
                    self._ended.wait(POLL_S)
        except KohortError:
            self._ended.wait(POLL_S)

    def _ask(self, connection: Connection, group: str) -> None:
        floor = self.ledger.commits(group)
        request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=group, topics=self._asked)])
        (answer,) = connection.send(ApiKey.OFFSET_FETCH, request, within=_BY_NAME).groups
        if answer.error_code:
            return
        self.answers += 1
        for topic in answer.topics:
            for each in topic.partitions:
                acknowledged = floor.get((topic.name, each.partition_index), -1)
                if not each.error_code and each.committed_offset < acknowledged:
                    self.ledger.on_mistake(
                        f"the node at {self._address} says that {group} has committed {each.committed_offset} of "
                        f"{topic.name}-{each.partition_index}, after {acknowledged} was acknowledged"
                    )


def create_topic(bootstrap: str, topic: str, partitions: int, replicas: int = -1) -> None:
    admin = AdminClient(QUIET | {"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(WAIT_S)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """The leader of each partition, as a node says."""
    described = AdminClient(QUIET | {"bootstrap.servers": bootstrap}).list_topics(topic, timeout=10).topics[topic]
    return {partition: each.leader for partition, each in sorted(described.partitions.items())}


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[Place, list[tuple[int, bytes]]]:
    """Every committed record of a topic, in the order of its partitions."""
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "reads all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: dict[Place, list[tuple[int, bytes]]] = {(topic, partition): [] for partition in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        left = set(range(partitions))
        deadline = time.monotonic() + WAIT_S
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(left)} of {topic} cannot be read to their ends")
            for message in consumer.consume(500, READ_S):
                error = message.error()
                if error is None:
                    found[topic, message.partition()].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found
