"""Members of a group come, go and die; every partition has one reader, and no record is lost."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.clients.conftest import Broker
from tests.clients.crew import MORTAL, Crew
from tests.clients.waiting import PATIENCE_S, wait_until

PARTITIONS = 6
CLIENTS = {
    "librdkafka": ("librdkafka",),
    "librdkafka-cooperative": ("librdkafka", "partition.assignment.strategy=cooperative-sticky"),
    "aiokafka": ("aiokafka",),
    "kafka-python": ("kafka-python",),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_three_members_share_and_one_leaves_one_joins_one_dies(
    broker: Broker, make_topic: Callable[..., str], group: str, client: str
) -> None:
    topic = make_topic(PARTITIONS)
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        first = crew.join(*CLIENTS[client], MORTAL)
        second, _ = (crew.join(*CLIENTS[client]) for _ in range(2))
        crew.settle(2, 2, 2)
        produced = _produce(broker, topic, "with three")

        crew.leave(second)
        crew.settle(3, 3)
        produced += _produce(broker, topic, "with two")

        crew.join(*CLIENTS[client])
        crew.settle(2, 2, 2)

        crew.die(first)
        produced += _produce(broker, topic, "while one is dead")
        crew.settle(3, 3)

        _wait_for_all(crew, produced)


def test_clients_of_all_kinds_share_one_group(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(PARTITIONS)
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        for client in ("librdkafka", "aiokafka", "kafka-python"):
            crew.join(client, *(("partition.assignment.strategy=range",) if client == "librdkafka" else ()))
        crew.settle(2, 2, 2)
        _wait_for_all(crew, _produce(broker, topic, "to all kinds"))

        crew.leave(crew.members[0])
        crew.settle(3, 3)


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    broker: Broker, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(PARTITIONS)
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        stays = crew.join("librdkafka", "group.instance.id=stays")
        restarts = crew.join("librdkafka", "group.instance.id=restarts")
        crew.settle(3, 3)
        before = stays.assignments()
        owned = restarts.assigned()

        crew.die(restarts)
        returned = crew.join("librdkafka", "group.instance.id=restarts")
        crew.settle(3, 3)

        assert returned.assigned() == owned
        assert stays.assignments() == before


def test_a_group_goes_on_where_it_stopped(broker: Broker, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(PARTITIONS)
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        crew.join("aiokafka")
        crew.settle(PARTITIONS)
        before = _produce(broker, topic, "before")
        _wait_for_all(crew, before)
        crew.leave(crew.members[0])

        after = _produce(broker, topic, "after")
        returned = crew.join("kafka-python")
        wait_until(lambda: sorted(returned.values()) == sorted(after), what=lambda: f"{after}; {returned.values()}")


def _produce(broker: Broker, topic: str, what: str) -> list[str]:
    """Ten records to each partition; returns their values."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    values = [f"{what} {partition} {number}" for partition in range(PARTITIONS) for number in range(10)]
    for value in values:
        producer.produce(topic, value, partition=int(value.split()[-2]))
    assert producer.flush(PATIENCE_S) == 0
    return values


def _wait_for_all(crew: Crew, produced: list[str]) -> None:
    wait_until(
        lambda: set(crew.values()) >= set(produced),
        what=lambda: f"{len(set(produced) - set(crew.values()))} records are missing; {crew}",
    )
