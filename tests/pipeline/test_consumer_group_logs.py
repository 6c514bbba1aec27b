"""
One story of a consumer group (KIP-848), told to Apache Kafka and to Kohort: the tables over both logs are the same.

Members are raw, so that each heartbeat is sent at a place of the story. Member ids are fixed, times are only known or unknown,
and topic ids are names. The two sessions that expire take 6 s each.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.client.cluster import Client
from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT
from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.testing.kafka import KafkaNode, UnavailableKafkaError
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

pytestmark = [pytest.mark.spark, pytest.mark.java, NIGHTLY]

GROUP = "told-twice"
TOPICS = {"story-a": 6, "story-b": 3}
NAMES = ("one", "two", "static", "static-again")
LEAVE, LEAVE_STATIC = -1, -2
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    # The records are the same at any speed.
    "group.consumer.assignment.interval.ms": "0",
}
TIMES = ("began_at_ms", "completed_at_ms", "duration_ms", "sync_ms", "since_ms", "until_ms", "unowned_ms")
UNTOLD = ("topic_id", "held_p50_ms", "held_min_ms", "first_since_ms")


class Member:
    """A member that sends a heartbeat when it is told to."""

    def __init__(self, stack: ExitStack, bootstrap: str, name: str, instance_id: str | None = None) -> None:
        self._client = stack.enter_context(Client(bootstrap, PATIENCE_S, PLAINTEXT, client_id=name))
        self.member_id = f"member-{name}"
        self._instance_id = instance_id
        self.epoch = 0
        self.owned: list[Any] = []

    def join(self, topics: Iterable[str]) -> None:
        self.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=list(topics), server_assignor="uniform")

    def beat(self, **fields: Any) -> None:
        known = {"group_id": GROUP, "member_id": self.member_id, "instance_id": self._instance_id}
        request = m.ConsumerGroupHeartbeatRequest(
            **{**known, "member_epoch": self.epoch, "topic_partitions": self.owned, **fields}
        )
        answer = self._client.send_to_coordinator(
            GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, request, error_code=lambda response: response.error_code
        )
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                m.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]

    def leave(self, epoch: int = LEAVE) -> None:
        self.beat(member_epoch=epoch, topic_partitions=None)
        self.owned = []


def described(client: Client) -> Any:
    request = m.ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    answer = client.send_to_coordinator(
        GROUP,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        request,
        error_code=lambda response: response.groups[0].error_code,
        within=Versions(0, 1),
    )
    return answer.groups[0]


def settle(client: Client, members: Iterable[Member]) -> None:
    """Send heartbeats in turns until the group is stable."""

    def is_stable() -> bool:
        for member in members:
            member.beat()
        return bool(described(client).group_state == "Stable")

    wait_until(is_stable, what="a stable group")


def expire(client: Client, gone: Member, members: list[Member]) -> None:
    """Wait for the session of a silent member, while the other members send heartbeats."""

    def is_gone() -> bool:
        for member in members:
            member.beat()
        return gone.member_id not in {one.member_id for one in described(client).members}

    wait_until(is_gone, what=f"the end of the session of {gone.member_id}")


def tell(bootstrap: str) -> None:
    """Three members, one of them static: joins, a new subscription, a leave, an expired session, a replacement, the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name, count in TOPICS.items():
        admin.create_topics([NewTopic(name, num_partitions=count, replication_factor=1)])[name].result(PATIENCE_S)
    first_topic, both = ["story-a"], list(TOPICS)
    with ExitStack() as stack:
        client = stack.enter_context(Client(bootstrap, PATIENCE_S, PLAINTEXT))
        one, two = Member(stack, bootstrap, "one"), Member(stack, bootstrap, "two")
        static = Member(stack, bootstrap, "static", "instance-1")
        one.join(first_topic)
        settle(client, [one])
        two.join(first_topic)
        settle(client, [one, two])
        static.join(first_topic)
        settle(client, [one, two, static])
        two.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=both)
        settle(client, [one, two, static])
        # A static member that comes back with another member id is the same owner.
        static.leave(LEAVE_STATIC)
        returned = Member(stack, bootstrap, "static-again", "instance-1")
        returned.join(first_topic)
        settle(client, [one, two, returned])
        two.leave()
        settle(client, [one, returned])
        expire(client, one, [returned])
        settle(client, [returned])
        expire(client, returned, [])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The data directories of Apache Kafka and of Kohort after the story."""
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka"), SETTINGS, release="4.4.0")
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with node:
        tell(node.bootstrap)
    with ServedKohort(tmp_path_factory.mktemp("kohort"), SETTINGS) as broker:
        tell(broker.bootstrap)
    return node.directory / "data", broker.data_dir


@pytest.fixture(scope="module")
def tables(spark: Any, logs: tuple[Path, Path]) -> tuple[Tables, Tables]:
    kafka, kohort = (Tables(Reading(spark, path)) for path in logs)
    return kafka, kohort


def neutral(tables: Tables, name: str) -> list[dict[str, Any]]:
    return [
        {
            column: (value is not None) if column in TIMES else value
            for column, value in row.items()
            if column not in UNTOLD
        }
        for row in publish.rows(getattr(tables, name), name)
    ]


@pytest.mark.parametrize("name", ["rebalances", "members", "assignments", "partition_flapping", "time_without_owner"])
def test_tables_over_both_logs_are_the_same(tables: tuple[Tables, Tables], name: str) -> None:
    kafka, kohort = (neutral(one, name) for one in tables)
    assert kohort == kafka
    assert kafka


def test_the_story_has_every_cause(tables: tuple[Tables, Tables]) -> None:
    """The comparison covers these causes; rows without a cause would be equal too."""
    rows = neutral(tables[1], "rebalances")
    whys = {why for row in rows for why in row["why"]}
    assert {"joined", "left", "subscription"} <= whys
    assert [row["event"] for row in rows][-1] == "emptied"
    assert {row["member_id"] for row in neutral(tables[1], "members")} == {f"member-{name}" for name in NAMES}
