"""`kohort groups` on consumer groups (KIP-848), on Kohort and on Apache Kafka: epochs, targets, and who waits for whom."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.client.cluster import Client
from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import Broker
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import PATIENCE_S, wait_until

OWN_HEARTBEAT = "its own next heartbeat"


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, PATIENCE_S, PLAINTEXT) as client:
        yield client


class Member:
    """A member that sends a heartbeat when it is told to."""

    def __init__(self, client: Client, group: str, topic: str, member_id: str, instance_id: str | None = None) -> None:
        self._client = client
        self._topic = topic
        self._fixed = {"group_id": group, "member_id": member_id, "instance_id": instance_id}
        self.epoch = 0
        self.owned: list[Any] = []

    def join(self) -> None:
        self.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=[self._topic])

    def beat(self, **fields: Any) -> None:
        request = m.ConsumerGroupHeartbeatRequest(
            **{**self._fixed, "member_epoch": self.epoch, "topic_partitions": self.owned, **fields}
        )
        answer = self._client.send_to_coordinator(
            str(self._fixed["group_id"]),
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            request,
            error_code=lambda response: response.error_code,
        )
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                m.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]


def test_a_partition_on_its_way_from_member_to_member(
    broker: Broker, client: Client, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    a, b = Member(client, group, topic, "a", "one"), Member(client, group, topic, "b")

    def described() -> tuple[str, int, int, list[tuple[str, int]], list[tuple[str, tuple[str, ...]]]]:
        (shown,) = kohort_json("groups", "describe", group, bootstrap=broker.bootstrap)
        members = sorted((each["member_id"], each["epoch"]) for each in shown["members"])
        waits = [(each["member_id"], tuple(each["waits_for"])) for each in shown["waits"]]
        return shown["state"], shown["epoch"], shown["target_epoch"], members, waits

    a.join()
    # The first epoch is that of the release.
    one, two = a.epoch, a.epoch + 1
    assert described() == ("Stable", one, one, [("a", one)], [])
    b.join()

    def is_assigned() -> bool:
        b.beat()
        return b.epoch == two

    # Kafka 4.4 computes the next target after the assignment interval.
    wait_until(is_assigned, what="the target with both members")
    assert described() == ("Reconciling", two, two, [("a", one), ("b", two)], [("b", ("a",))])
    a.beat()  # it is told to revoke one; Kafka before 4.4 shows it nowhere now
    assert described() == ("Reconciling", two, two, [("a", one), ("b", two)], [("b", ("a",))])
    table = kohort("groups", "describe", group, bootstrap=broker.bootstrap).stdout.splitlines()
    coordinator = client.coordinator(group)
    assert table[0] == (
        f"Group {group}: consumer, Reconciling, members 2, coordinator {coordinator}, epoch {two}, target epoch {two}, "
        "assignor uniform"
    )
    assert table[-2].split() == ["MEMBER", "ID", "TOPIC", "PARTITION", "WAITS", "FOR"]
    assert (table[-1].split()[:2], table[-1].split()[-1]) == (["b", topic], "a")
    a.beat()
    assert described() == ("Reconciling", two, two, [("a", two), ("b", two)], [("b", ())])
    assert kohort("groups", "describe", group, bootstrap=broker.bootstrap).stdout.rstrip().endswith(OWN_HEARTBEAT)
    b.beat()
    assert described() == ("Stable", two, two, [("a", two), ("b", two)], [])

    (shown,) = kohort_json("groups", "describe", group, bootstrap=broker.bootstrap)
    members = {each["member_id"]: each for each in shown["members"]}
    assert {each["protocol"] for each in members.values()} == {"consumer"}
    assert (members["a"]["instance_id"], members["a"]["subscription"]) == ("one", [topic])
    assert all(each["assignment"] == each["target"] and len(each["target"]) == 1 for each in members.values())
    assert sorted(row["member_id"] for row in shown["offsets"]) == ["a", "b"]
    a.beat(member_epoch=-2)
    assert described() == ("Reconciling", two, two, [("a", -2), ("b", two)], [])
    b.beat(member_epoch=-1)
    assert described() == ("Assigning", two + 1, two, [("a", -2)], [])


def test_consumer_groups_in_the_list(
    broker: Broker, client: Client, make_topic: Callable[..., str], group: str
) -> None:
    Member(client, group, make_topic(), "a").join()
    row = {"group": group, "type": "consumer", "protocol_type": "consumer", "state": "Stable"}
    for filters in ((), ("--type", "consumer"), ("--type", "Consumer", "--state", "stable")):
        assert row in kohort_json("groups", "list", *filters, bootstrap=broker.bootstrap)
    assert row not in kohort_json("groups", "list", "--type", "classic", bootstrap=broker.bootstrap)
    assert row not in kohort_json(
        "groups", "list", "--type", "consumer", "--state", "Empty", bootstrap=broker.bootstrap
    )


def test_a_consumer_group_with_members_is_left_alone(
    broker: Broker, client: Client, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic()
    a = Member(client, group, topic, "a")
    a.join()
    commit = m.OffsetCommitRequest(
        group_id=group,
        member_id="a",
        generation_id_or_member_epoch=a.epoch,
        topics=[
            m.OffsetCommitRequestTopic(
                name=topic,
                partitions=[m.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
            )
        ],
    )
    answer = client.send_to_coordinator(
        group,
        ApiKey.OFFSET_COMMIT,
        commit,
        error_code=lambda response: response.topics[0].partitions[0].error_code,
        within=Versions(9, 9),
    )
    assert answer.topics[0].partitions[0].error_code == 0
    refusals = {
        (
            "reset-offsets",
            group,
            "--all-topics",
            "--to-latest",
            "--execute",
        ): "is Stable with 1 member; stop its members",
        ("delete-offsets", group, "--all-topics"): "has members that are subscribed to the topic",
        ("delete", group): "it has members; stop them first",
    }
    for words, reason in refusals.items():
        refused = kohort("groups", *words, bootstrap=broker.bootstrap, codes=(2,))
        assert reason in refused.stderr
    a.beat(member_epoch=-1)
    words = ("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    assert [row["new_offset"] for row in kohort_json(*words, bootstrap=broker.bootstrap)] == [0]
    assert kohort_json("groups", "delete-offsets", group, "--topic", topic, bootstrap=broker.bootstrap)
    assert kohort_json("groups", "delete", group, bootstrap=broker.bootstrap) == [{"group": group}]
    kohort("groups", "describe", group, bootstrap=broker.bootstrap, codes=(2,))
