"""
How classic groups come together.

Source: `GroupMetadataManager` of Apache Kafka 4.2.1 and what a broker answered to raw frames.
"""

from typing import Any

import pytest

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.member import ClassicMember
from kohort.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.configs import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.records.values import GroupMetadata
from kohort.wire import messages as m
from tests.group.harness import Coordinator, subscription

DELAY_MS = 3_000


def config(**options: Any) -> GroupConfig:
    return GroupConfig(**options)


def test_a_first_join_yields_an_id_and_logs_an_empty_group() -> None:
    coordinator = Coordinator()
    answer = coordinator.join(client_id="app")
    assert (answer.code, answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "app-uuid1")
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
    assert coordinator.records() == [GroupMetadata("group", "", 0, None, None, coordinator.now_ms, ())]
    assert coordinator.listed() == {"group": "Empty"}


def test_before_version_4_a_member_joins_at_once() -> None:
    coordinator = Coordinator()
    answer = coordinator.join(version=3)
    assert answer.is_parked
    coordinator.advance(DELAY_MS)
    assert (answer.code, answer.member_id, answer.leader) == (ErrorCode.NONE, "client-uuid1", "client-uuid1")


def test_version_0_has_only_a_session_timeout() -> None:
    coordinator = Coordinator()
    coordinator.join(version=0, session_ms=20_000, rebalance_ms=-1)
    coordinator.join(version=1, session_ms=20_000, rebalance_ms=-1)
    assert [member.rebalance_timeout_ms for member in coordinator.groups["group"].members.values()] == [
        20_000,
        -1,
    ]


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())], ids=["no type", "no protocols"]
)
def test_a_refused_first_join_leaves_a_group_behind(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    coordinator = Coordinator()
    answer = coordinator.join(protocol_type=protocol_type, protocols=protocols)
    assert answer.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.listed() == {"group": "Empty"}
    assert len(coordinator.records()) == 1


def test_an_id_of_an_unknown_group_is_unknown() -> None:
    coordinator = Coordinator()
    assert coordinator.join("somebody").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.listed() == {}


def test_the_initial_delay_is_waited_in_full_by_a_lone_member() -> None:
    coordinator = Coordinator()
    member = coordinator.new_member_id()
    answer = coordinator.join(member)
    coordinator.advance(DELAY_MS - 1)
    assert answer.is_parked
    coordinator.advance(1)
    assert (answer.code, answer.generation_id, answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert coordinator.groups["group"].state is COMPLETING_REBALANCE


def test_each_newcomer_extends_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    answers = [coordinator.join(coordinator.new_member_id(rebalance_ms=8_000), rebalance_ms=8_000)]
    for _ in range(2):
        coordinator.advance(DELAY_MS - 1)
        answers.append(coordinator.join(coordinator.new_member_id(rebalance_ms=8_000), rebalance_ms=8_000))
        coordinator.advance(1)
    # 6 s have passed, and the second newcomer has asked for 3 s more; 2 s are left of the rebalance timeout.
    coordinator.advance(1_999)
    assert all(answer.is_parked for answer in answers)
    coordinator.advance(1)
    assert {answer.generation_id for answer in answers} == {1}


def test_the_initial_delay_does_not_heed_a_shorter_rebalance_timeout() -> None:
    coordinator = Coordinator()
    answer = coordinator.join(coordinator.new_member_id(rebalance_ms=100), rebalance_ms=100)
    coordinator.advance(DELAY_MS - 1)
    assert answer.is_parked
    coordinator.advance(1)
    assert answer.code is ErrorCode.NONE


def test_without_an_initial_delay_a_member_is_answered_at_once() -> None:
    coordinator = Coordinator(config(group_initial_rebalance_delay_ms=0))
    answer = coordinator.join(coordinator.new_member_id())
    coordinator.advance(0)
    assert answer.code is ErrorCode.NONE


def test_a_pending_member_that_lapses_completes_the_first_phase() -> None:
    coordinator = Coordinator(config(group_initial_rebalance_delay_ms=30_000))
    coordinator.new_member_id(session_ms=6_000)
    answer = coordinator.join(coordinator.new_member_id())
    coordinator.advance(5_999)
    assert answer.is_parked
    coordinator.advance(1)
    assert answer.code is ErrorCode.NONE


def test_a_rebalance_completes_when_everybody_is_back() -> None:
    coordinator = Coordinator()
    first, second = coordinator.stable(2)
    third = coordinator.new_member_id()
    newcomer = coordinator.join(third)
    assert coordinator.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    answers = [newcomer, coordinator.join(second)]
    assert newcomer.is_parked
    answers.append(coordinator.join(first))
    assert {answer.generation_id for answer in answers} == {2}
    assert [len(answer.members) for answer in answers] == [0, 0, 3]
    assert {answer.leader for answer in answers} == {first}


def test_a_pending_member_holds_up_a_rebalance() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    pending = coordinator.new_member_id()
    answer = coordinator.join(member)
    assert answer.is_parked
    assert coordinator.leave((pending, None)) == [ErrorCode.NONE]
    assert answer.code is ErrorCode.NONE


def test_who_is_not_back_in_time_is_out() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2, rebalance_ms=9_000)
    answer = coordinator.join(follower, protocols=(("range", b"new"),), rebalance_ms=9_000)
    coordinator.heartbeat(leader, 1)
    coordinator.advance(8_999)
    assert answer.is_parked
    coordinator.advance(1)
    assert (answer.code, answer.leader, len(answer.members)) == (ErrorCode.NONE, follower, 1)
    assert coordinator.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_to_a_completing_group_sends_everybody_back() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.completing(2)
    parked = coordinator.sync(follower, 1)
    assert parked.is_parked
    coordinator.join(coordinator.new_member_id())
    assert parked.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.groups["group"].state is PREPARING_REBALANCE


def test_a_leader_that_joins_again_assigns_again() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    answer = coordinator.join(leader)
    assert answer.is_parked
    assert coordinator.join(follower).generation_id == 2
    assert len(answer.members) == 2


def test_protocols_are_compared_in_order_and_with_their_bytes() -> None:
    coordinator = Coordinator()
    protocols = (("range", b"1"), ("roundrobin", b"2"))
    _, follower = coordinator.stable(2, protocols=protocols)
    assert coordinator.join(follower, protocols=protocols).generation_id == 1
    assert coordinator.join(follower, protocols=protocols[::-1]).is_parked


def test_after_a_load_a_member_knows_only_the_selected_protocol() -> None:
    coordinator = Coordinator()
    protocols = (("range", b"1"), ("roundrobin", b"2"))
    _, follower = coordinator.stable(2, protocols=protocols)
    coordinator.restart()
    assert coordinator.join(follower, protocols=protocols[:1]).generation_id == 1
    assert coordinator.join(follower, protocols=protocols).is_parked


def test_members_must_share_a_protocol() -> None:
    coordinator = Coordinator()
    coordinator.stable(2)
    assert coordinator.join(protocols=(("other", b""),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_joins_again_may_have_other_protocols() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1, protocols=(("range", b""), ("roundrobin", b"")))
    coordinator.join(member, protocols=(("range", b""), ("sticky", b"")))
    assert coordinator.join(protocols=(("roundrobin", b""),)).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.join(protocols=(("sticky", b""),)).code is ErrorCode.MEMBER_ID_REQUIRED


def vote(*members: list[str]) -> str:
    group = ClassicGroup("group", SnapshotRegistry())
    for index, names in enumerate(members):
        member = ClassicMember(
            member_id=str(index),
            session=(),
            group_instance_id=None,
            client_id="",
            client_host="",
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols=tuple([(name, b"") for name in names]),
        )
        group.add(member, "consumer")
    return group.select_protocol()


@pytest.mark.parametrize(
    ("members", "selected"),
    [
        ([["a", "b"], ["b", "a"], ["b", "a"]], "b"),
        ([["a", "b"], ["b"], ["b", "a"]], "b"),  # a is not everybody's
        ([["range", "sticky"], ["sticky", "range"]], "sticky"),
        ([["roundrobin", "range"], ["range", "roundrobin"]], "range"),
        ([["cooperative-sticky", "roundrobin"], ["roundrobin", "cooperative-sticky"]], "roundrobin"),
        ([["range", "range"], ["range"]], "range"),  # twice in one list is once
    ],
)
def test_vote(members: list[list[str]], selected: str) -> None:
    assert vote(*members) == selected


def test_one_protocol_named_twice_does_not_wedge_the_group() -> None:
    coordinator = Coordinator()
    protocols = (("range", b"1"), ("range", b"2"))
    answer = coordinator.join(coordinator.new_member_id(protocols=protocols), protocols=protocols)
    coordinator.advance(DELAY_MS)
    assert (answer.code, answer.protocol_name) == (ErrorCode.NONE, "range")


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription("orders", "payments"), {"orders", "payments"}),
        (subscription(), set()),
        (b"\0\x09" + subscription("orders")[2:], {"orders"}),  # whatever the version, version 0 is read
        (b"\xff\xff" + subscription("orders")[2:], {"orders"}),
        (b"", None),
        (b"\0\0\0", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (b"\0\0\xff\xff\xff\xff", None),
        (b"\0\0\0\0\0\x01\x7f\xff", None),
        (b"\0\0\0\0\0\x01\xff\xff", None),
        (b"\0\0\0\0\0\x01\0\x01\xff", None),
    ],
)
def test_subscriptions_that_cannot_be_read_are_unknown(metadata: bytes, topics: set[str] | None) -> None:
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(("range", metadata),))
    assert coordinator.groups["group"].subscribed_topics == topics
    coordinator.restart()
    assert coordinator.groups["group"].subscribed_topics == topics


def test_a_full_group_refuses_newcomers() -> None:
    coordinator = Coordinator(config(group_max_size=2))
    coordinator.stable(2)
    answer = coordinator.join()
    assert (answer.code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_while_a_group_prepares_seats_are_for_those_who_are_back() -> None:
    coordinator = Coordinator(config(group_max_size=2))
    leader, follower = coordinator.stable(2)
    assert coordinator.join(leader).is_parked
    newcomer = coordinator.join("", version=3)
    assert newcomer.is_parked
    assert coordinator.join(follower).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert follower not in coordinator.groups["group"].members


def test_a_group_that_is_too_large_after_a_load_shrinks() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(3)
    coordinator.restart(config(group_max_size=2))
    assert coordinator.groups["group"].state is PREPARING_REBALANCE
    assert coordinator.join(members[0]).is_parked
    assert coordinator.join(members[1]).is_parked
    last = coordinator.join(members[2])
    assert (last.code, last.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_an_older_join_of_the_same_member_is_answered_when_it_is_replaced() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    older = coordinator.join(leader)
    newer = coordinator.join(leader)
    assert (older.code, older.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, leader)
    assert newer.is_parked
    assert len(coordinator.groups["group"].waiting) == 1


def test_a_group_that_was_rebalancing_is_stable_again_after_a_load() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    coordinator.join(follower)
    assert coordinator.describe_generation() == 2
    coordinator.restart()
    group = coordinator.groups["group"]
    assert (group.state, group.generation) == (STABLE, 1)
    assert [member.assignment for member in group.members.values()] == [b"0", b"1"]
    assert coordinator.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat(leader, 1) is ErrorCode.NONE


def test_an_empty_group_keeps_its_generation_and_type() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    assert coordinator.leave(*[(member, None) for member in members]) == [ErrorCode.NONE] * 2
    group = coordinator.groups["group"]
    assert (group.state, group.generation, group.protocol_type, group.protocol_name) == (EMPTY, 2, "consumer", None)
    assert coordinator.records()[-1] == GroupMetadata("group", "consumer", 2, None, None, coordinator.now_ms, ())
    coordinator.stable(1)
    assert coordinator.describe_generation() == 3


def test_unloading_sends_everybody_elsewhere() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    join = coordinator.join(leader)
    _, second = coordinator.completing(2, group="other")
    sync = coordinator.sync(second, 1, group="other")
    assert join.is_parked
    assert sync.is_parked
    coordinator.restart()
    assert (join.code, sync.code) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)


def test_an_id_that_was_given_out_is_not_for_a_static_member() -> None:
    coordinator = Coordinator()
    answer = coordinator.join(coordinator.new_member_id(), instance="a")
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


@pytest.mark.parametrize("version", [3, 9])
def test_a_group_id_that_no_record_can_hold_is_refused_and_leaves_nothing(version: int) -> None:
    coordinator = Coordinator()
    answer = coordinator.join(group="x" * 32_768, version=version)
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert coordinator.commit(group="x" * 32_768) == {("orders", 0): ErrorCode.UNKNOWN_SERVER_ERROR}
    assert coordinator.listed() == {}
    coordinator.advance(400_000)


def test_members_are_described_with_the_assignments_of_the_last_generation_while_they_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    coordinator.join(follower)
    assert coordinator.groups["group"].state is COMPLETING_REBALANCE
    assert [member.member_assignment for member in coordinator.describe().members] == [b"0", b"1"]


def test_the_protocol_type_must_match_even_when_all_have_left() -> None:
    """During the initial delay a group may have no members, but it has a type."""
    coordinator = Coordinator()
    member = coordinator.new_member_id()
    coordinator.join(member)
    coordinator.leave((member, None))
    assert coordinator.join(protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.join(protocols=(("another", b""),)).code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_pending_member_that_expires_leaves_an_empty_group_as_it_is() -> None:
    coordinator = Coordinator()
    coordinator.new_member_id()
    end = coordinator.end
    coordinator.advance(10_000)
    group = coordinator.groups["group"]
    assert (group.state, group.generation, len(group.pending_members), coordinator.end) == (EMPTY, 0, 0, end)
    coordinator.stable(1)
    assert group.generation == 1


def test_a_pending_member_that_expires_does_not_complete_a_phase_that_waits_for_others() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2, session_ms=30_000)
    coordinator.new_member_id(session_ms=10_000)
    joined = coordinator.join(leader, session_ms=30_000)
    coordinator.advance(10_000)
    assert joined.is_parked
    assert coordinator.groups["group"].state is PREPARING_REBALANCE
    coordinator.join(follower, session_ms=30_000)
    assert joined.generation_id == 2


def test_the_longest_rebalance_timeout_counts() -> None:
    coordinator = Coordinator()
    short, long = coordinator.stable(2, session_ms=100_000)
    group = coordinator.groups["group"]
    for member_id, timeout_ms in ((short, 20_000), (long, 40_000)):
        group.members[member_id] = group.members[member_id].changed(rebalance_timeout_ms=timeout_ms)
    coordinator.join(short, session_ms=100_000, rebalance_ms=20_000)
    coordinator.advance(39_999)
    assert long in group.members
    coordinator.advance(1)
    assert list(group.members) == [short]


def test_a_join_is_refused_when_a_write_of_another_group_in_its_batch_fails() -> None:
    """All operations of the batch are undone. In Kafka the request waits on."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.is_burst = True
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.send("offset_commit", m.OffsetCommitRequest(group_id="other", topics=[_orders()]))
    joined = coordinator.join(leader)
    coordinator.is_burst = False
    coordinator.node.settle()
    assert joined.code is ErrorCode.NOT_COORDINATOR
    group = coordinator.groups["group"]
    assert (group.state, len(group.waiting)) == (STABLE, 0)
    again = coordinator.join(leader)
    coordinator.join(follower)
    assert again.generation_id == 2


def _orders() -> m.OffsetCommitRequestTopic:
    return m.OffsetCommitRequestTopic(name="orders", partitions=[m.OffsetCommitRequestPartition(committed_offset=1)])


def test_a_member_that_expires_does_not_complete_a_phase_that_waits_for_others() -> None:
    coordinator = Coordinator()
    first, second, third = coordinator.stable(3, session_ms=20_000)
    coordinator.advance(10_000)
    assert coordinator.heartbeat(second, 1) is ErrorCode.NONE
    joined = coordinator.join(first, session_ms=20_000)
    coordinator.advance(10_000)
    group = coordinator.groups["group"]
    assert set(group.members) == {first, second}
    assert group.state is PREPARING_REBALANCE
    assert joined.is_parked
    coordinator.join(second, session_ms=20_000)
    assert joined.generation_id == 2
    assert third not in group.members


def test_a_repeated_join_that_completes_the_phase_refuses_the_earlier_one() -> None:
    """The last member was refused, so that nobody else is waited for; as in Kafka, that alone does not complete the phase."""
    coordinator = Coordinator()
    members = coordinator.stable(3)
    coordinator.restart(config(group_max_size=2))
    earlier, other = coordinator.join(members[0]), coordinator.join(members[1])
    assert coordinator.join(members[2]).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert earlier.is_parked
    again = coordinator.join(members[0])
    assert earlier.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert (again.generation_id, other.generation_id) == (2, 2)


def test_a_new_member_that_repeats_its_join_stays_new() -> None:
    """A new member whose request waits for five minutes is given up: its client may have gone unnoticed."""
    coordinator = Coordinator()
    (old,) = coordinator.stable(1, session_ms=NEW_MEMBER_JOIN_TIMEOUT_MS, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    joined = coordinator.join("", version=3)
    (new,) = set(coordinator.groups["group"].members) - {old}
    coordinator.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert coordinator.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = coordinator.join(new)
    assert (joined.code, again.is_parked) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    coordinator.advance(1)
    assert again.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(coordinator.groups["group"].members) == [old]


def test_a_member_whose_first_join_completes_the_phase_has_its_own_session() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable(1)
    pending = coordinator.new_member_id()
    waiting = coordinator.join(leader)
    assert waiting.is_parked
    assert coordinator.join(pending).generation_id == 2
    coordinator.advance(9_000)
    assert coordinator.heartbeat(leader, 2) is ErrorCode.NONE
    coordinator.advance(1_000)
    assert list(coordinator.groups["group"].members) == [leader]


def test_an_unload_tells_a_waiting_member_its_id() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2)
    waiting = coordinator.join(leader)
    coordinator.restart()
    assert (waiting.code, waiting.member_id) == (ErrorCode.NOT_COORDINATOR, leader)
