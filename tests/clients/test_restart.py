"""What was acknowledged is there when the broker comes back, whether it was stopped or killed."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import new_topic
from tests.clients.crew import Crew
from tests.clients.kohort_command import kohort_json
from tests.clients.waiting import wait_until

PARTITIONS = 3


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"])
def test_members_records_and_offsets_outlive_the_broker(
    own_broker: Callable[[], BrokerProcess], group: str, end: Callable[[BrokerProcess], None]
) -> None:
    broker = own_broker()
    topic = new_topic(broker.bootstrap, PARTITIONS, {"retention.ms": "3600000"})
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        for client in ("librdkafka", "aiokafka", "kafka-python"):
            crew.join(client, *(("partition.assignment.strategy=range",) if client == "librdkafka" else ()))
        crew.settle(1, 1, 1)
        before = _produce(broker, topic, "before")
        wait_until(lambda: crew.values() == before, timeout_s=30, what="the first records are read")
        wait_until(lambda: _committed(broker, group) == 10 * PARTITIONS, timeout_s=30, what="and committed")

        end(broker)
        broker.start()

        after = _produce(broker, topic, "after")
        wait_until(lambda: set(crew.values()) == {*before, *after}, timeout_s=60, what="the members go on")
        wait_until(lambda: _committed(broker, group) == 20 * PARTITIONS, timeout_s=30, what="and commit")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    ends = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    listed = admin.list_offsets({each: OffsetSpec.latest() for each in ends})
    assert [listed[each].result(30).offset for each in ends] == [20] * PARTITIONS
    (described,) = kohort_json("topics", "describe", topic, bootstrap=broker.bootstrap)
    assert described["configs"] == {"retention.ms": "3600000"}
    broker.stop()


def _produce(broker: BrokerProcess, topic: str, what: str) -> list[str]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    values = sorted(f"{what} {partition} {number}" for partition in range(PARTITIONS) for number in range(10))
    for value in values:
        producer.produce(topic, value, partition=int(value.split()[1]))
    assert producer.flush(30) == 0
    return values


def _committed(broker: BrokerProcess, group: str) -> int:
    """The sum of the committed offsets of a group."""
    return sum(row["offset"] for row in kohort_json("offsets", group, bootstrap=broker.bootstrap))
