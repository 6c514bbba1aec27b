"""
Transactions of real clients.

With KOHORT_CLIENTS_BROKER=kafka, the tests run on nodes of Apache Kafka. Such a run shows that the tests expect Kafka's
behaviour.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from kohort.testing.kafka import KafkaNode
from kohort.testing.served import ServedKohort
from tests.clients.conftest import new_topic
from tests.clients.jvm import Jvm
from tests.clients.transactions.consumers import PYTHON_READERS, Read, with_java
from tests.clients.transactions.producers import PYTHON_CLIENTS, Factory, Java

IS_KAFKA = os.environ.get("KOHORT_CLIENTS_BROKER") == "kafka"
MakeTopic = Callable[..., str]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""The interval in which the coordinator looks for transactions that have timed out is 10 seconds by default."""


class Broker(Protocol):
    """A broker that may be killed and started again."""

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def make_broker(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Broker:
    """A broker that is not yet started."""
    return KafkaNode(directory, settings) if IS_KAFKA else ServedKohort(directory, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of this directory; each test has topics, groups and transactional ids of its own."""
    made = make_broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def make_topic(broker: Broker) -> MakeTopic:
    """A function that creates a topic with a new name, given its number of partitions."""
    return lambda partitions=1, **config: new_topic(broker.bootstrap, partitions, config)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A started broker that the test may kill and start again."""
    made = make_broker(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def producers(jvm: Jvm) -> Mapping[str, Factory]:
    """The transactional producers, by client."""
    return {**PYTHON_CLIENTS, "java": partial(Java, jvm)}


@pytest.fixture(scope="session")
def readers(jvm: Jvm) -> Mapping[str, Read]:
    """The consumers, by client."""
    return {**PYTHON_READERS, "java": with_java(jvm)}


@pytest.fixture
def transactional_id() -> str:
    """A new transactional id."""
    return f"id-{uuid4().hex[:8]}"
