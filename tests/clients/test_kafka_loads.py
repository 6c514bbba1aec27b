"""
Apache Kafka loads the logs of coordinators that a Kohort like its release wrote.

One story is told to Kohort. Its partitions of the topics of coordinators then take the places of Kafka's, which has to report
the same offsets, groups, transactions and states of share partitions.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.client.cluster import Client, CoordinatorKind
from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN, read_partition_metadata, write_partition_metadata
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.share_states import find_coordinator, rename_topic, states, topic_id_of, write_states
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

pytestmark = [pytest.mark.java, pytest.mark.maven]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
COORDINATOR_TOPICS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
TOPIC = "orders"
GROUPS = ("classic", "consumer", "in-transactions")
TRANSACTIONAL_ID = "tx"


class State(NamedTuple):
    """What a broker reports of its coordinators."""

    offsets: dict[str, list[int]]
    groups: dict[str, tuple[str, str]]
    transaction: tuple[Any, ...]
    shares: tuple[Any, ...]


def tell(bootstrap: str) -> None:
    """Two groups commit and end, one of each protocol; a third one gets offsets by transactions, one of which is aborted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions()
    for turn in range(3):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(TOPIC, b"value", partition=partition)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "in-transactions"})
        place = TopicPartition(TOPIC, turn % 2, turn + 1)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
        producer.commit_transaction() if turn else producer.abort_transaction()
        consumer.close()
    for protocol in ("classic", "consumer"):
        settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
        consumer.subscribe([TOPIC])
        wait_until(partial(consumer.consume, 1, 0.5), what="records")
        places = [TopicPartition(TOPIC, 0, 1), TopicPartition(TOPIC, 1, 2, metadata="note")]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    write_states(bootstrap, TOPIC)


def offsets_of(client: Client, group: str) -> list[int]:
    topic = m.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])
    answer = client.send_to_coordinator(
        group,
        ApiKey.OFFSET_FETCH,
        m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=group, topics=[topic])]),
        error_code=lambda found: found.groups[0].error_code,
        within=Versions(0, 9),  # version 10 names topics by id
    )
    return [each.committed_offset for each in answer.groups[0].topics[0].partitions]


def state(bootstrap: str) -> State:
    with Client(bootstrap, PATIENCE_S, PLAINTEXT) as client:
        (address,) = client.brokers().values()
        listed = client.send_to_broker(
            address, ApiKey.LIST_GROUPS, m.ListGroupsRequest(), error_code=lambda found: found.error_code
        ).groups
        described = client.send_to_coordinator(
            TRANSACTIONAL_ID,
            ApiKey.DESCRIBE_TRANSACTIONS,
            m.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID]),
            error_code=lambda found: found.transaction_states[0].error_code,
            kind=CoordinatorKind.TRANSACTION,
        )
        (found,) = described.transaction_states
        return State(
            {group: offsets_of(client, group) for group in GROUPS},
            {each.group_id: (each.group_state, each.group_type) for each in listed if each.group_id in GROUPS},
            (found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_timeout_ms),
            states(bootstrap, TOPIC),
        )


def prepare(bootstrap: str) -> UUID:
    """Make the topic and the topics of coordinators; the id of the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "first"}).init_transactions()
    with Client(bootstrap, PATIENCE_S, PLAINTEXT) as client:
        offsets_of(client, "first")
        find_coordinator(client)
        return topic_id_of(client, TOPIC)


def put(source: Path, target: Path) -> None:
    """Replace the partitions of coordinators of a stopped broker by those of another, which keep its topic ids."""
    for theirs in sorted(target.glob("__*_*-[0-9]*")):
        if theirs.name.rpartition("-")[0] not in COORDINATOR_TOPICS:
            continue
        topic_id = read_partition_metadata(theirs)
        shutil.rmtree(theirs)
        if (source / theirs.name).exists():
            shutil.copytree(source / theirs.name, theirs)
        else:
            theirs.mkdir()
        write_partition_metadata(theirs, topic_id, "the id of the other broker")
    (target / CLEAN_SHUTDOWN).unlink(missing_ok=True)


@pytest.fixture(params=["4.4.0", pytest.param("4.2.1", marks=NIGHTLY)])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_kafka_loads_what_kohort_wrote(tmp_path: Path, release: str) -> None:
    try:
        node = KafkaNode(tmp_path / "kafka", SETTINGS, release=release)
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    with ServedKohort(tmp_path / "kohort", SETTINGS, kafka=release) as kohort:
        tell(kohort.bootstrap)
        wait_until(
            lambda: state(kohort.bootstrap).transaction[0] == "CompleteCommit", what="the end of the transaction"
        )
        told = state(kohort.bootstrap)
        with Client(kohort.bootstrap, PATIENCE_S, PLAINTEXT) as client:
            ours = topic_id_of(client, TOPIC)
    assert told.shares == ((2, 3, 10, 1), (2, 10), [(12, 12, 4, 3), (13, 14, 0, 1), (15, 15, 0, 2)])
    assert told.offsets == {"classic": [1, 2], "consumer": [1, 2], "in-transactions": [3, 2]}
    with node:
        theirs = prepare(node.bootstrap)
    put(kohort.data_dir, node.directory / "data")
    rename_topic(node.directory / "data", ours, theirs)
    with node:
        wait_until(
            lambda: state(node.bootstrap) == told, what=lambda: f"{told}, not {state(node.bootstrap)}", timeout_s=60
        )
