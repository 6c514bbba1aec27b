"""The events of group life, for the log. Source: the log lines of Kafka's GroupMetadataManager."""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.events import (
    AssignmentStored,
    GenerationStarted,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    HeartbeatRefused,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    OffsetsExpired,
    RebalanceStarted,
    StaticMemberReplaced,
)
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.wire import messages as m
from tests.group.harness import Coordinator

HOST = "/127.0.0.1"


def taken(coordinator: Coordinator) -> list[GroupEvent]:
    """The events since the last call."""
    found = coordinator.events.copy()
    coordinator.events.clear()
    return found


def test_a_group_from_its_first_member_to_its_deletion() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    assert taken(coordinator) == [
        MemberJoined("group", member, None, "client", HOST),
        RebalanceStarted("group", "Empty", 0, f"member {member} joined"),
        GenerationStarted("group", 1, 1, "range", member),
        AssignmentStored("group", 1, member, 1),
    ]
    other = coordinator.new_member_id()
    coordinator.join(other)
    coordinator.join(member)
    assert taken(coordinator) == [
        MemberJoined("group", other, None, "client", HOST),
        RebalanceStarted("group", "Stable", 1, f"member {other} joined"),
        GenerationStarted("group", 2, 2, "range", member),
    ]
    coordinator.leave((member, None), (other, None))
    assert taken(coordinator) == [
        MemberLeft("group", member, None, None),
        MemberLeft("group", other, None, None),
        RebalanceStarted("group", "CompletingRebalance", 2, "members left"),
        GroupEmptied("group", 3),
    ]
    coordinator.commit({("orders", 0): 1, ("orders", 1): 1})
    coordinator.delete("group", "none")
    assert taken(coordinator) == [GroupDeleted("group", 2, "DeleteGroups")]


def test_clients_give_reasons_to_join_and_to_leave() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    taken(coordinator)
    protocols = [m.JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = m.JoinGroupRequest(
        group_id="group",
        member_id=member,
        protocol_type="consumer",
        protocols=protocols,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        reason="a new topic",
    )
    coordinator.ask("join_group", join)
    reason = f"leader {member} joined again; client reason: a new topic"
    assert taken(coordinator)[0] == RebalanceStarted("group", "Stable", 1, reason)
    identity = m.LeaveGroupRequestMemberIdentity(member_id=member, reason="closed")
    coordinator.ask("leave_group", m.LeaveGroupRequest(group_id="group", members=[identity]))
    assert taken(coordinator)[0] == MemberLeft("group", member, None, "closed")
    pending = coordinator.new_member_id()
    identity = m.LeaveGroupRequestMemberIdentity(member_id=pending, reason="gave up")
    coordinator.ask("leave_group", m.LeaveGroupRequest(group_id="group", members=[identity]))
    assert taken(coordinator) == [MemberLeft("group", pending, None, "gave up")]


def test_a_session_that_expires() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    taken(coordinator)
    coordinator.advance(9_999)
    assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE
    coordinator.advance(1)
    assert taken(coordinator) == [
        MemberExpired("group", follower, None, "session"),
        RebalanceStarted("group", "Stable", 1, f"the session of member {follower} expired"),
    ]
    pending = coordinator.new_member_id(group="other")
    coordinator.advance(10_000)
    assert MemberExpired("other", pending, None, "member id") in taken(coordinator)


def test_members_that_do_not_join_or_sync_in_time() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2, rebalance_ms=5_000)
    taken(coordinator)
    coordinator.join(leader, rebalance_ms=5_000)
    coordinator.advance(5_000)
    assert taken(coordinator)[1:] == [
        MemberExpired("group", follower, None, "join"),
        GenerationStarted("group", 2, 1, "range", leader),
    ]
    coordinator.advance(5_000)
    assert taken(coordinator) == [
        MemberExpired("group", leader, None, "sync"),
        RebalanceStarted("group", "CompletingRebalance", 2, "members sent no SyncGroup in time"),
        GroupEmptied("group", 3),
    ]


def test_refused_heartbeats_and_no_others() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    taken(coordinator)
    assert coordinator.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert taken(coordinator) == []
    assert coordinator.heartbeat(leader, 7) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert taken(coordinator) == [
        HeartbeatRefused("group", "Heartbeat", leader, None, 7, ErrorCode.ILLEGAL_GENERATION, None),
        HeartbeatRefused("group", "Heartbeat", "stranger", None, 1, ErrorCode.UNKNOWN_MEMBER_ID, None),
    ]


def test_refused_heartbeats_of_a_consumer_group() -> None:
    coordinator = Coordinator()

    def beat(epoch: int, **fields: Any) -> list[GroupEvent]:
        request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **fields)
        coordinator.ask("consumer_group_heartbeat", request)
        return taken(coordinator)

    def refused(epoch: int, error: ErrorCode, reason: str | None, instance: str | None = None) -> list[GroupEvent]:
        return [HeartbeatRefused("g", "ConsumerGroupHeartbeat", "m", instance, epoch, error, reason)]

    message = "RebalanceTimeoutMs must be provided in first request."
    assert beat(0) == refused(0, ErrorCode.INVALID_REQUEST, message)
    assert beat(1) == refused(1, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    assert beat(-1) == refused(-1, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    assert beat(0, rebalance_timeout_ms=60_000, subscribed_topic_names=[], topic_partitions=[]) != []
    assert beat(1) == []
    (event,) = beat(9)
    assert isinstance(event, HeartbeatRefused)
    assert event.error is ErrorCode.FENCED_MEMBER_EPOCH
    (event,) = beat(-2, instance_id="i")
    assert isinstance(event, HeartbeatRefused)
    assert (event.error, event.group_instance_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "i")
    assert coordinator.heartbeat("stranger", 1, group="g") is ErrorCode.UNKNOWN_MEMBER_ID
    reason = "Member stranger is not a member of group g."
    unknown = HeartbeatRefused("g", "Heartbeat", "stranger", None, 1, ErrorCode.UNKNOWN_MEMBER_ID, reason)
    assert taken(coordinator) == [unknown]


def test_a_static_member_is_replaced() -> None:
    coordinator = Coordinator()
    old, _ = coordinator.stable(2, instances=("a", "b"))
    taken(coordinator)
    coordinator.log.is_held = True
    coordinator.join("", instance="a")
    assert taken(coordinator) == []
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    new = coordinator.groups["group"].static_members["a"]
    assert taken(coordinator) == [StaticMemberReplaced("group", new, old, "a")]
    newest = str(coordinator.join("", instance="a", protocols=(("roundrobin", b""), ("range", b""))).member_id)
    assert taken(coordinator) == [StaticMemberReplaced("group", newest, new, "a")]


def test_a_replacement_that_cannot_be_written_is_not_said_to_be_done() -> None:
    coordinator = Coordinator()
    coordinator.stable(2, instances=("a", "b"))
    taken(coordinator)
    coordinator.log.fail_next_append = UnavailableError("offline")
    assert coordinator.join("", instance="a").code is ErrorCode.NOT_COORDINATOR
    assert taken(coordinator) == []


def test_a_replacement_that_rebalances_is_done_at_once() -> None:
    coordinator = Coordinator()
    old, _ = coordinator.completing(2, instances=("a", "b"))
    taken(coordinator)
    coordinator.join("", instance="a")
    new = coordinator.groups["group"].static_members["a"]
    assert taken(coordinator) == [
        StaticMemberReplaced("group", new, old, "a"),
        RebalanceStarted("group", "CompletingRebalance", 1, f"static member {new} replaced {old}"),
    ]


def test_an_assignment_is_stored_when_it_is_committed() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    taken(coordinator)
    coordinator.log.is_held = True
    coordinator.sync(leader, 1, {leader: b"0"})
    assert taken(coordinator) == []
    coordinator.join(follower, protocols=(("range", b"new"),))
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    assert taken(coordinator) == [
        AssignmentStored("group", 1, leader, 2),
        RebalanceStarted("group", "Stable", 1, f"member {follower} joined again"),
    ]


def test_an_assignment_that_cannot_be_stored_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.completing(2)
    taken(coordinator)
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.sync(leader, 1, {leader: b"0"})
    assert taken(coordinator) == [
        RebalanceStarted("group", "CompletingRebalance", 1, "the assignment could not be stored: NOT_COORDINATOR")
    ]


def test_a_group_that_cannot_be_created_is_not_said_to_have_members() -> None:
    coordinator = Coordinator()
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.join(version=3)
    assert taken(coordinator) == []
    assert "group" not in coordinator.groups


def test_a_deletion_that_cannot_be_written_is_not_said_to_be_done() -> None:
    coordinator = Coordinator()
    coordinator.commit()
    coordinator.log.fail_next_append = UnavailableError("offline")
    assert coordinator.delete("group") == {"group": ErrorCode.NOT_COORDINATOR}
    assert taken(coordinator) == []


def test_offsets_that_expire_once_they_are_written() -> None:
    coordinator = Coordinator(GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=60_000))
    coordinator.commit({("orders", 0): 1, ("orders", 1): 1})
    coordinator.log.fail_next_append = UnavailableError("full")
    coordinator.advance(60_000)
    assert taken(coordinator) == []
    coordinator.advance(500)
    assert taken(coordinator) == [OffsetsExpired("group", 2), GroupDeleted("group", 0, "expired")]


def test_a_group_that_is_too_large_when_it_is_loaded() -> None:
    coordinator = Coordinator()
    coordinator.stable(2)
    taken(coordinator)
    coordinator.restart(GroupConfig(group_max_size=1))
    assert taken(coordinator) == [
        RebalanceStarted("group", "Stable", 1, "loaded with more members than group.max.size")
    ]


@pytest.mark.parametrize("happening", ["heartbeat", "commit", "fetch", "sync"])
def test_usual_requests_emit_nothing(happening: str) -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    taken(coordinator)
    ask: dict[str, Any] = {
        "heartbeat": lambda: coordinator.heartbeat(member, 1),
        "commit": lambda: coordinator.commit(member_id=member, generation=1),
        "fetch": coordinator.fetch,
        "sync": lambda: coordinator.sync(member, 1),
    }
    ask[happening]()
    assert taken(coordinator) == []
