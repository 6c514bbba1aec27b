"""What was acknowledged is there when the broker comes back, whether it was stopped or killed."""

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kohort.client.cluster import Client
from kohort.model.errors import ErrorCode
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.conftest import new_topic
from tests.clients.crew import Crew, Member
from tests.clients.kohort_command import kohort_json
from tests.clients.waiting import PATIENCE_S, wait_until

PARTITIONS = 3
GENERATIONS_MAX = 50


@pytest.mark.parametrize("end", [ServedKohort.stop, ServedKohort.kill], ids=["stopped", "killed"])
def test_members_records_and_offsets_outlive_the_broker(
    own_broker: Callable[[], ServedKohort], group: str, end: Callable[[ServedKohort], None]
) -> None:
    broker = own_broker()
    topic = new_topic(broker.bootstrap, PARTITIONS, {"retention.ms": "3600000"})
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        for client in ("librdkafka", "aiokafka", "kafka-python"):
            crew.join(client, *(("partition.assignment.strategy=range",) if client == "librdkafka" else ()))
        crew.settle(1, 1, 1)
        before = _produce(broker, topic, "before")
        wait_until(lambda: crew.values() == before, what="the first records are read")
        wait_until(lambda: _committed(broker, group) == 10 * PARTITIONS, what="and committed")

        end(broker)
        broker.start()

        after = _produce(broker, topic, "after")
        wait_until(lambda: set(crew.values()) == {*before, *after}, what="the members go on")
        wait_until(lambda: _committed(broker, group) == 20 * PARTITIONS, what="and commit")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    ends = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    listed = admin.list_offsets({each: OffsetSpec.latest() for each in ends})
    assert [listed[each].result(PATIENCE_S).offset for each in ends] == [20] * PARTITIONS
    (described,) = kohort_json("topics", "describe", topic, bootstrap=broker.bootstrap)
    assert described["configs"] == {"retention.ms": "3600000"}
    broker.stop()


CREW = {"librdkafka": "first", "aiokafka": "second", "kafka-python": "third"}
"""Static members, by client: their instance ids."""


def test_static_members_are_restarted_one_by_one_under_a_broker_that_dies(
    own_broker: Callable[[], ServedKohort], group: str
) -> None:
    """No rebalance at all: whoever comes back under its instance id gets what it had, and nobody else notices."""
    broker = own_broker()
    topic = new_topic(broker.bootstrap, PARTITIONS, {})
    with Crew(broker.bootstrap, group, topic, PARTITIONS) as crew:
        shares = {client: _join_static(crew, client) for client in CREW}
        crew.settle(1, 1, 1)
        generation = _generation(broker, group)
        before = {client: member.assigned() for client, member in shares.items()}
        written = _produce(broker, topic, "before")
        wait_until(lambda: _committed(broker, group) == len(written), what="everything is committed")
        for number, client in enumerate(CREW, 1):
            crew.die(shares[client])
            if client == "aiokafka":
                broker.kill()
                broker.start()
            shares[client] = _join_static(crew, client)
            crew.settle(1, 1, 1)
            written += _produce(broker, topic, f"{client}-restarted")
            wait_until(partial(_has_committed, broker, group, len(written)), what=f"{number} are back")
        assert {client: member.assignments() for client, member in shares.items()} == {
            client: [partitions] for client, partitions in before.items()
        }
        assert _generation(broker, group) == generation
        assert crew.values() == sorted(written)
    broker.stop()


def _join_static(crew: Crew, client: str) -> Member:
    assignor = ("partition.assignment.strategy=range",) if client == "librdkafka" else ()
    return crew.join(client, f"group.instance.id={CREW[client]}", *assignor)


def _generation(broker: ServedKohort, group: str) -> int:
    """The one in which a member's heartbeat is right; no API tells it."""
    (described,) = kohort_json("groups", "describe", group, bootstrap=broker.bootstrap)
    member = described["members"][0]
    with Client(broker.bootstrap) as client:
        for generation in range(1, GENERATIONS_MAX):
            request = messages.HeartbeatRequest(
                group_id=group,
                generation_id=generation,
                member_id=member["member_id"],
                group_instance_id=member["instance_id"],
            )
            if client.send(ApiKey.HEARTBEAT, request).error_code == ErrorCode.NONE:
                return generation
    raise AssertionError(f"no generation below {GENERATIONS_MAX} is that of {described}")


def _produce(broker: ServedKohort, topic: str, what: str) -> list[str]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    values = sorted(f"{what} {partition} {number}" for partition in range(PARTITIONS) for number in range(10))
    for value in values:
        producer.produce(topic, value, partition=int(value.split()[1]))
    assert producer.flush(PATIENCE_S) == 0
    return values


def _has_committed(broker: ServedKohort, group: str, total: int) -> bool:
    return _committed(broker, group) == total


def _committed(broker: ServedKohort, group: str) -> int:
    """The sum of the committed offsets of a group."""
    return sum(row["offset"] for row in kohort_json("offsets", group, bootstrap=broker.bootstrap))
