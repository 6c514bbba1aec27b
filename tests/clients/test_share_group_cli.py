"""`kohort groups` and `kohort offsets` on share groups (KIP-932), on Kohort and on Apache Kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import Broker
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.waiting import PATIENCE_S, wait_until


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, PATIENCE_S, PLAINTEXT) as client:
        yield client


class Member:
    """A member that sends a heartbeat when it is told to."""

    def __init__(self, client: Client, group: str, topic: str, member_id: str) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._member_id = member_id
        self._epoch = 0

    def join(self) -> None:
        self.beat(subscribed_topic_names=[self._topic])

    def beat(self, **fields: Any) -> Any:
        request = m.ShareGroupHeartbeatRequest(
            **{"group_id": self._group, "member_id": self._member_id, "member_epoch": self._epoch, **fields}
        )
        answer = self._client.send_to_coordinator(
            self._group, ApiKey.SHARE_GROUP_HEARTBEAT, request, error_code=lambda response: response.error_code
        )
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch
        return answer


def test_a_share_group_is_listed_described_reset_and_deleted(
    broker: Broker, client: Client, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(2)
    a, b = Member(client, group, topic, "a"), Member(client, group, topic, "b")
    a.join()
    b.join()

    def described() -> Any:
        a.beat()
        b.beat()
        (shown,) = kohort_json("groups", "describe", group, bootstrap=broker.bootstrap)
        return shown

    def is_assigned() -> Any:
        shown = described()
        return shown if all(member["assignment"] for member in shown["members"]) else None

    shown = wait_until(is_assigned, what="a partition for each member")
    assert (shown["type"], shown["state"], shown["protocol"], shown["waits"]) == ("share", "Stable", "simple", [])
    assert {member["epoch"] for member in shown["members"]} <= {shown["epoch"], shown["target_epoch"]}
    assert [(row["partition"], row["offset"], row["lag"]) for row in shown["offsets"]] == [
        (0, None, None),
        (1, None, None),
    ]
    assert sorted(row["member_id"] for row in shown["offsets"]) == ["a", "b"]
    (listed,) = [
        row
        for row in kohort_json("groups", "list", "--type", "share", bootstrap=broker.bootstrap)
        if row["group"] == group
    ]
    assert listed == {"group": group, "type": "share", "protocol_type": "share", "state": "Stable"}
    title, *_ = kohort("groups", "describe", group, bootstrap=broker.bootstrap).stdout.splitlines()
    assert title.startswith(f"Group {group}: share, Stable, members 2, coordinator ")
    assert title.endswith("assignor simple")

    to_earliest = ("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    refused = kohort(*to_earliest, bootstrap=broker.bootstrap, codes=(2,))
    assert "stop its members" in refused.stderr
    a.beat(member_epoch=-1)
    b.beat(member_epoch=-1)
    assert [row["new_offset"] for row in kohort_json(*to_earliest, bootstrap=broker.bootstrap)] == [0, 0]
    rows = kohort_json("offsets", group, bootstrap=broker.bootstrap)
    assert [(row["partition"], row["offset"], row["end_offset"], row["lag"]) for row in rows] == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
    ]

    refused = kohort("groups", "export", group, "--topic", topic, bootstrap=broker.bootstrap, codes=(2,))
    assert "no committed offsets to export" in refused.stderr
    one = ("groups", "delete-offsets", group, "--topic", f"{topic}:0")
    assert "leave out the partitions" in kohort(*one, bootstrap=broker.bootstrap, codes=(2,)).stderr
    all_topics = ("groups", "delete-offsets", group, "--all-topics")
    assert kohort_json(*all_topics, bootstrap=broker.bootstrap) == [{"group": group, "topic": topic}]
    assert "no start offsets" in kohort(*all_topics, bootstrap=broker.bootstrap, codes=(2,)).stderr
    assert kohort_json("groups", "delete", group, bootstrap=broker.bootstrap) == [{"group": group}]
    assert "does not exist" in kohort("groups", "describe", group, bootstrap=broker.bootstrap, codes=(2,)).stderr
