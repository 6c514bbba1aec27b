"""
Real clients against a real process.

With KOHORT_CLIENTS_BOOTSTRAP set, the tests run on that broker instead. A run on Apache Kafka shows that the tests expect
Kafka's behaviour.
"""

import os
from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kohort import testing
from kohort.testing.served import ServedKohort
from tests.clients.java_tools import JavaTools, UnavailableToolsError, java_tools
from tests.clients.jvm import Jvm
from tests.clients.waiting import PATIENCE_S

ROOM = "tests/clients/"
OTHER_BROKER = os.environ.get("KOHORT_CLIENTS_BOOTSTRAP")
QUICK_REBALANCES = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.session.timeout.ms": "6000",
}


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python reads each schema with these functions at its first use.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ROOM):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(1_800))
            if "java" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.java)
                item.add_marker(pytest.mark.maven)


class Broker(Protocol):
    """The address of a broker."""

    @property
    def bootstrap(self) -> str: ...


class _Other:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each test has topics and groups of its own."""
    if OTHER_BROKER:
        yield _Other(OTHER_BROKER)
        return
    with ServedKohort(tmp_path_factory.mktemp("broker"), QUICK_REBALANCES) as served:
        yield served


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], ServedKohort]]:
    """A function that starts a broker, which the test may stop, kill and restart."""
    if OTHER_BROKER:
        pytest.skip("needs a broker that can be stopped")
    made: list[ServedKohort] = []

    def make() -> ServedKohort:
        made.append(ServedKohort(tmp_path_factory.mktemp("own-broker"), QUICK_REBALANCES).start())
        return made[-1]

    yield make
    for process in made:
        process.kill()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    """Apache Kafka's tools; skips without Java or Maven."""
    try:
        tools = java_tools()
    except UnavailableToolsError as exc:
        pytest.skip(str(exc))
    yield tools
    tools.close()


@pytest.fixture(scope="session")
def jvm(java: JavaTools) -> Jvm:
    """The virtual machine of the tools, with Apache Kafka's clients; skips without Java or Maven."""
    return java.jvm


@pytest.fixture(scope="session")
def make_topic(broker: Broker) -> Callable[..., str]:
    """A function that creates a topic with a new name."""

    def make(partitions: int = 1, **config: str) -> str:
        return new_topic(broker.bootstrap, partitions, config)

    return make


@pytest.fixture(scope="session")
def kit() -> Iterator[testing.Broker]:
    """A broker with a control port, for all tests of faults."""
    with testing.Broker() as broker:
        yield broker


@pytest.fixture
def topic(kit: testing.Broker) -> str:
    """A new topic of one partition at `kit`."""
    name = f"topic-{uuid4().hex[:8]}"
    kit.control_client.post("topics", body={"name": name, "partitions": 1})
    return name


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"group-{uuid4().hex[:8]}"


def new_topic(bootstrap: str, partitions: int, config: dict[str, str]) -> str:
    name = f"topic-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(PATIENCE_S)
    return name
