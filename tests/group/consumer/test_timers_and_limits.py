"""
Session and rebalance timeouts, the configurations of single groups, and the size of a group.

Source: Kafka GroupMetadataManager.scheduleConsumerGroupSessionTimeout, scheduleConsumerGroupRebalanceTimeout; probes of 4.2.1.
"""

from typing import Any

import pytest

from kohort.group.configs import GroupConfig, GroupConfigs
from kohort.group.events import MemberExpired
from kohort.model.errors import ErrorCode, UnavailableError
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.consumer.states import Known, group_of
from tests.group.harness import Coordinator

SESSION_MS = 45_000


def test_each_heartbeat_begins_the_session_anew() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    for _ in range(5):
        coordinator.advance(SESSION_MS - 1)
        assert a.beat().code is ErrorCode.NONE
    coordinator.advance(SESSION_MS)
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    assert state(coordinator) == "Empty"


def test_a_refused_heartbeat_does_not_begin_it_anew() -> None:
    coordinator = Coordinator()
    a = Member(coordinator, "a")
    a.join()
    coordinator.advance(SESSION_MS - 1)
    assert a.beat(member_epoch=9).code is ErrorCode.FENCED_MEMBER_EPOCH
    coordinator.advance(1)
    assert "a" not in consumer_group(coordinator).members


def test_a_load_gives_every_member_a_whole_session() -> None:
    coordinator = Coordinator()
    Member(coordinator, "a").join()
    coordinator.advance(SESSION_MS - 1)
    coordinator.restart()
    coordinator.advance(SESSION_MS - 1)
    assert state(coordinator) == "Stable"
    coordinator.advance(1)
    assert state(coordinator) == "Empty"


def revoking(timeout_ms: int = 10_000) -> tuple[Coordinator, Member, Member]:
    """A has to revoke two partitions within the timeout; B waits for them."""
    coordinator = Coordinator()
    a, b = Member(coordinator, "a", rebalance_timeout_ms=timeout_ms), Member(coordinator, "b")
    a.join()
    b.join()
    a.beat()
    return coordinator, a, b


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    coordinator, a, b = revoking()
    coordinator.advance(9_999)
    a.beat(topic_partitions=None)
    assert "a" in consumer_group(coordinator).members
    coordinator.advance(1)
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID
    (event,) = [event for event in coordinator.events if isinstance(event, MemberExpired)]
    assert (event.member_id, event.timeout) == ("a", "rebalance")
    assert settle(b) == 1


def test_a_member_that_has_revoked_is_not_fenced() -> None:
    coordinator, a, b = revoking()
    coordinator.advance(9_999)
    a.beat()
    coordinator.advance(10_000)
    assert set(consumer_group(coordinator).members) == {"a", "b"}
    settle(a, b)


def test_another_revocation_begins_the_timeout_anew_at_the_same_epoch() -> None:
    coordinator = group_of(
        [
            Known("a", 3, 2, 1, (0, 1), (2,), target=(0,), rebalance_ms=10_000),
            Known("b", 5, 4, 2, (3,), target=(1, 2, 3)),
        ]
    )
    coordinator.advance(9_000)
    a = Member(coordinator, "a")
    a.epoch, a.owned = 3, {"orders": (0, 1)}
    # It acknowledges the first revocation and is told the second.
    assert (a.beat().member_epoch, a.owned) == (3, {"orders": (0,)})
    coordinator.advance(9_999)
    assert "a" in consumer_group(coordinator).members
    coordinator.advance(1)
    assert "a" not in consumer_group(coordinator).members


def test_a_load_begins_the_rebalance_timeout_anew() -> None:
    coordinator, _, _ = revoking()
    coordinator.advance(9_999)
    coordinator.restart()
    coordinator.advance(9_999)
    assert "a" in consumer_group(coordinator).members
    coordinator.advance(1)
    assert "a" not in consumer_group(coordinator).members


def test_the_timer_of_an_earlier_epoch_does_not_fence() -> None:
    """The member has gone on and revokes again; only the newest timer counts."""
    coordinator = group_of(
        [
            Known("a", 4, 3, 1, (0, 1), (2,), target=(0, 1), rebalance_ms=10_000),
            Known("b", 5, 4, 2, (3,), target=(2, 3)),
        ]
    )
    a = Member(coordinator, "a")
    a.epoch, a.owned = 4, {"orders": (0, 1)}
    a.beat()
    assert a.epoch == 5
    coordinator.advance(10_000)
    assert "a" in consumer_group(coordinator).members


@pytest.mark.parametrize("timeout_ms", [0, -2])
def test_odd_rebalance_timeouts_are_accepted(timeout_ms: int) -> None:
    coordinator = Coordinator()
    assert Member(coordinator, "a").join(rebalance_timeout_ms=timeout_ms).code is ErrorCode.NONE


def test_an_expiry_that_cannot_be_written_is_tried_again() -> None:
    coordinator = Coordinator()
    Member(coordinator, "a").join()
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.advance(SESSION_MS)
    assert state(coordinator) == "Stable"
    coordinator.advance(500)
    assert state(coordinator) == "Empty"


# 53: configurations of the group, and its size


def overridden(coordinator: Coordinator, **settings: str) -> None:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    context: Any = coordinator.shard.context
    context.group_configs = GroupConfigs(coordinator.config, lambda _group: values)


@pytest.mark.parametrize(
    ("session", "heartbeat"), [("10000", "1000"), ("\x0110000 ", "0" * 5_000 + "1000"), ("+10000", "\u0661000")]
)
def test_a_changed_session_timeout_counts_from_the_next_heartbeat(session: str, heartbeat: str) -> None:
    coordinator = Coordinator()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    overridden(coordinator, consumer_session_timeout_ms=session, consumer_heartbeat_interval_ms=heartbeat)
    assert a.beat().heartbeat_interval_ms == 1_000
    coordinator.advance(10_000)
    assert set(consumer_group(coordinator).members) == {"b"}
    coordinator.advance(SESSION_MS - 10_000)
    assert state(coordinator) == "Empty"


def test_a_full_group_serves_its_members() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_max_size=2))
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    b.join()
    answer = Member(coordinator, "c").join()
    assert (answer.code, answer.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 2 members.",
    )
    assert (a.beat().code, a.join().code) == (ErrorCode.NONE, ErrorCode.NONE)
    coordinator.restart(GroupConfig(group_consumer_max_size=1))
    assert (a.beat().code, b.join().code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert Member(coordinator, "c").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    # A member that joins by version 0 without an id is a new one.
    assert Member(coordinator, "").join(version=0).code is ErrorCode.GROUP_MAX_SIZE_REACHED
