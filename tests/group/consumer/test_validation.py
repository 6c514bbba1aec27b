"""
The checks of a ConsumerGroupHeartbeat that need no group, and their order.

Source: Kafka GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid; the messages are recorded from 4.2.1.
"""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.consumer.members import consumer_group
from tests.group.harness import Coordinator

MEMBER_ID = "MemberId can't be empty."
GROUP_ID = "GroupId can't be empty."
INSTANCE_ID = "InstanceId can't be empty."
RACK_ID = "RackId can't be empty."
TIMEOUT = "RebalanceTimeoutMs must be provided in first request."
PARTITIONS = "TopicPartitions must be empty when (re-)joining."
SUBSCRIPTION = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
NO_INSTANCE = "InstanceId can't be null."
EPOCH = "MemberEpoch is invalid."
ASSIGNOR = "ServerAssignor x is not supported. Supported assignors: uniform, range."
NO_ASSIGNOR = "ServerAssignor  is not supported. Supported assignors: uniform, range."

OWNED = [m.ConsumerGroupHeartbeatRequestTopicPartitions(partitions=[0])]
JOIN: dict[str, Any] = {
    "group_id": "group",
    "member_id": "member",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}
STAY: dict[str, Any] = {"group_id": "group", "member_id": "member", "member_epoch": 5}
LEAVE = STAY | {"member_epoch": -1}
AWAY = STAY | {"member_epoch": -2, "instance_id": "instance"}

# The request, what differs from it, and the message of version 0 and of version 1; None: the request is valid.
ROWS: list[tuple[dict[str, Any], dict[str, Any], str | None, str | None]] = [
    # Rule 1: the coordinator makes the id of a member that joins by version 0, and asks none of one that is away
    (JOIN, {"member_id": ""}, None, MEMBER_ID),
    (JOIN, {"member_id": " \t"}, None, MEMBER_ID),
    (STAY, {"member_id": ""}, MEMBER_ID, MEMBER_ID),
    (LEAVE, {"member_id": ""}, MEMBER_ID, MEMBER_ID),
    (LEAVE, {"member_id": "  "}, MEMBER_ID, MEMBER_ID),
    (AWAY, {"member_id": ""}, None, MEMBER_ID),
    (STAY, {"member_id": "", "member_epoch": -3}, EPOCH, MEMBER_ID),
    # Rule 2
    (JOIN, {"group_id": ""}, GROUP_ID, GROUP_ID),
    (STAY, {"group_id": " "}, GROUP_ID, GROUP_ID),
    (LEAVE, {"group_id": ""}, GROUP_ID, GROUP_ID),
    # Rule 3
    (JOIN, {"instance_id": ""}, INSTANCE_ID, INSTANCE_ID),
    (STAY, {"instance_id": " "}, INSTANCE_ID, INSTANCE_ID),
    (AWAY, {"instance_id": ""}, INSTANCE_ID, INSTANCE_ID),
    # Rule 4
    (JOIN, {"rack_id": ""}, RACK_ID, RACK_ID),
    (STAY, {"rack_id": "\n"}, RACK_ID, RACK_ID),
    (LEAVE, {"rack_id": ""}, RACK_ID, RACK_ID),
    # Rule 5: a member that joins
    (JOIN, {}, None, None),
    (JOIN, {"rebalance_timeout_ms": -1}, TIMEOUT, TIMEOUT),
    (JOIN, {"rebalance_timeout_ms": 0}, None, None),
    (JOIN, {"rebalance_timeout_ms": -2}, None, None),
    (JOIN, {"topic_partitions": None}, PARTITIONS, PARTITIONS),
    (JOIN, {"topic_partitions": OWNED}, PARTITIONS, PARTITIONS),
    (JOIN, {"subscribed_topic_names": None}, SUBSCRIPTION, SUBSCRIPTION),
    (JOIN, {"subscribed_topic_names": []}, None, None),
    (JOIN, {"subscribed_topic_names": ["", "a b"]}, None, None),
    (JOIN, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}, None, None),
    (STAY, {"topic_partitions": OWNED}, None, None),
    # Rules 6 and 7
    (AWAY, {}, None, None),
    (AWAY, {"instance_id": None}, NO_INSTANCE, NO_INSTANCE),
    (STAY, {"member_epoch": -3}, EPOCH, EPOCH),
    (STAY, {"member_epoch": -(1 << 31)}, EPOCH, EPOCH),
    # Rule 8, at any epoch
    (JOIN, {"server_assignor": "x"}, ASSIGNOR, ASSIGNOR),
    (STAY, {"server_assignor": "x"}, ASSIGNOR, ASSIGNOR),
    (LEAVE, {"server_assignor": "x"}, ASSIGNOR, ASSIGNOR),
    (AWAY, {"server_assignor": "x"}, ASSIGNOR, ASSIGNOR),
    (JOIN, {"server_assignor": ""}, NO_ASSIGNOR, NO_ASSIGNOR),
    (JOIN, {"server_assignor": "range"}, None, None),
    # The order: each rule before those after it
    (JOIN, {"member_id": "", "group_id": ""}, GROUP_ID, MEMBER_ID),
    (STAY, {"member_id": "", "group_id": ""}, MEMBER_ID, MEMBER_ID),
    (JOIN, {"group_id": "", "instance_id": ""}, GROUP_ID, GROUP_ID),
    (JOIN, {"instance_id": "", "rack_id": ""}, INSTANCE_ID, INSTANCE_ID),
    (JOIN, {"rack_id": "", "rebalance_timeout_ms": -1}, RACK_ID, RACK_ID),
    (JOIN, {"rebalance_timeout_ms": -1, "topic_partitions": None, "subscribed_topic_names": []}, TIMEOUT, TIMEOUT),
    (JOIN, {"rebalance_timeout_ms": -1, "topic_partitions": None, "subscribed_topic_names": None}, TIMEOUT, TIMEOUT),
    (JOIN, {"topic_partitions": None, "subscribed_topic_names": None}, PARTITIONS, PARTITIONS),
    (JOIN, {"subscribed_topic_names": None, "server_assignor": "x"}, SUBSCRIPTION, SUBSCRIPTION),
    (AWAY, {"instance_id": None, "server_assignor": "x"}, NO_INSTANCE, NO_INSTANCE),
    (STAY, {"member_epoch": -3, "server_assignor": "x"}, EPOCH, EPOCH),
]  # fmt: skip


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_the_checks_before_the_group(row: int, version: int) -> None:
    base, changes, *messages = ROWS[row]
    coordinator = Coordinator()
    answer = coordinator.ask(
        "consumer_group_heartbeat", m.ConsumerGroupHeartbeatRequest(**{**base, **changes}), version=version
    )
    message = messages[version]
    if message is not None:
        code = ErrorCode.UNSUPPORTED_ASSIGNOR if "ServerAssignor" in message else ErrorCode.INVALID_REQUEST
        assert (answer.code, answer.error_message) == (code, message)
        assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
        assert coordinator.end == 0
    elif base["member_epoch"] == 0:
        assert (answer.code, answer.error_message) == (ErrorCode.NONE, None)
    else:
        assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_a_change_of_a_subscription_at_epoch_0_has_the_client_join(version: int, code: ErrorCode) -> None:
    """librdkafka sends it while it leaves or joins; INVALID_REQUEST, Kafka's answer, ends it."""
    coordinator = Coordinator()
    request = m.ConsumerGroupHeartbeatRequest(**(JOIN | {"rebalance_timeout_ms": -1, "topic_partitions": None}))
    for _ in range(2):
        answer = coordinator.ask("consumer_group_heartbeat", request, version=version)
        assert (answer.code, answer.error_message) == (code, TIMEOUT)
        coordinator.ask("consumer_group_heartbeat", m.ConsumerGroupHeartbeatRequest(**JOIN))


def test_version_0_gives_each_member_without_an_id_its_own() -> None:
    coordinator = Coordinator()
    request = m.ConsumerGroupHeartbeatRequest(**(JOIN | {"member_id": ""}))
    ids = {coordinator.ask("consumer_group_heartbeat", request, version=0).member_id for _ in range(2)}
    assert len(ids) == 2
    assert all(ids)
    assert set(consumer_group(coordinator).members) == ids
