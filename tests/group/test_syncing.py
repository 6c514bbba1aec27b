"""The second half of a rebalance, timers, leaving, and static members."""

from typing import Any

import pytest

from kohort.group.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.records.values import GroupMetadata
from kohort.wire import messages as m
from tests.group.harness import Answer, Coordinator, subscription

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def state(coordinator: Coordinator, group: str = "group") -> Any:
    return coordinator.groups[group].state


# SyncGroup


def test_everybody_waits_for_the_leader() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    waiting = coordinator.sync(follower, 1, {follower: b"ignored"})
    assert waiting.is_parked
    own = coordinator.sync(leader, 1, {follower: b"f", "nobody": b"n"})
    assert (own.code, own.assignment) == (NONE, b"")  # forgotten by itself
    assert (waiting.code, waiting.assignment) == (NONE, b"f")
    assert (waiting.protocol_type, waiting.protocol_name) == ("consumer", "range")
    record = coordinator.records()[-1]
    assert isinstance(record, GroupMetadata)
    assert [(member.member_id, member.assignment) for member in record.members] == [(leader, b""), (follower, b"f")]


def test_the_assignment_counts_when_it_is_committed() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.log.is_held = True
    answers = [coordinator.sync(follower, 1), coordinator.sync(leader, 1, {leader: b"l"})]
    assert all(answer.is_parked for answer in answers)
    described = coordinator.describe("group")
    assert described.group_state == "CompletingRebalance"
    assert [member.member_assignment for member in described.members] == [b"", b""]
    coordinator.log.commit()
    coordinator.node.settle()
    assert [answer.code for answer in answers] == [NONE, NONE]
    assert coordinator.describe("group").group_state == "Stable"


def test_a_rebalance_that_begins_while_the_assignment_is_written() -> None:
    """It begins with the assignment, which is told when it is committed. Kafka drops it, and refuses the SyncGroup."""
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.log.is_held = True
    sync = coordinator.sync(leader, 1, {leader: b"l"})
    newcomer = coordinator.join("", version=3)
    assert sync.is_parked  # no answer overtakes a write that came before it
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    assert (sync.code, sync.assignment) == (NONE, b"l")
    assert state(coordinator) is PREPARING_REBALANCE
    assert coordinator.heartbeat(leader, 1) is REBALANCE
    coordinator.join(leader)
    coordinator.join(follower)
    assert newcomer.generation_id == 2


@pytest.mark.parametrize("is_written", [True, False])
def test_a_generation_that_begins_while_an_assignment_is_written(is_written: bool) -> None:
    """The write of generation 1 ends when generation 2 waits for its own assignment, or takes generation 2 back."""
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.is_burst = True
    coordinator.log.fail_next_append = None if is_written else UnavailableError("offline")
    early = coordinator.sync(leader, 1, {leader: b"old", follower: b"old"})
    rejoins = [coordinator.join(follower, protocols=(("range", b"new"),)), coordinator.join(leader)]
    assert (state(coordinator), coordinator.describe_generation()) == (COMPLETING_REBALANCE, 2)
    coordinator.is_burst = False
    coordinator.node.settle()
    if is_written:
        assert (early.code, early.assignment) == (NONE, b"old")
    else:
        assert {answer.code for answer in (early, *rejoins)} == {ErrorCode.NOT_COORDINATOR}
        assert state(coordinator) is PREPARING_REBALANCE
        rejoins = [coordinator.join(follower, protocols=(("range", b"new"),)), coordinator.join(leader)]
    assert [answer.generation_id for answer in rejoins] == [2, 2]
    assert (state(coordinator), coordinator.describe_generation()) == (COMPLETING_REBALANCE, 2)
    waiting = coordinator.sync(follower, 2)
    assert waiting.is_parked
    assert coordinator.sync(leader, 2, {leader: b"new", follower: b"new"}).assignment == b"new"
    assert waiting.assignment == b"new"


def test_a_leader_that_repeats_its_request_while_it_is_written_gets_the_first_assignment() -> None:
    """Kafka refuses the first request, writes both assignments, and gives the second one after the next load."""
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.log.is_held = True
    first = coordinator.sync(leader, 1, {leader: b"first", follower: b"first"})
    again = coordinator.sync(leader, 1, {leader: b"again", follower: b"again"})
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    assert [(answer.code, answer.assignment) for answer in (first, again)] == [(NONE, b"first")] * 2
    coordinator.restart()
    assert coordinator.sync(follower, 1).assignment == b"first"


def test_an_assignment_that_cannot_be_written_starts_over() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    waiting = coordinator.sync(follower, 1)
    coordinator.log.fail_next_append = UnavailableError("offline")
    own = coordinator.sync(leader, 1, {leader: b"l"})
    assert (own.code, waiting.code) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)
    assert state(coordinator) is PREPARING_REBALANCE
    assert [member.assignment for member in coordinator.groups["group"].members.values()] == [b"", b""]
    again = [coordinator.join(leader), coordinator.join(follower)]
    assert {answer.generation_id for answer in again} == {2}


def test_an_assignment_that_is_not_committed_in_time() -> None:
    """As any write: the code of a timeout after offsets.commit.timeout.ms. The assignment counts when it is committed later."""
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    early = coordinator.sync(follower, 1)
    coordinator.log.is_held = True
    answer = coordinator.sync(leader, 1, {leader: b"0", follower: b"1"})
    late = coordinator.sync(follower, 1)
    coordinator.advance(4_999)
    assert (answer.is_parked, late.is_parked) == (True, True)
    coordinator.advance(1)
    # The place of the early one was taken by the later request of the member, whose answer tells it so.
    assert [answer.code, late.code, early.code] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    assert state(coordinator) is STABLE
    assert [coordinator.sync(member, 1).assignment for member in (leader, follower)] == [b"0", b"1"]


def test_a_generation_that_begins_while_the_log_commits_nothing() -> None:
    """Its answers wait for the commits that it has seen, and no longer than a write; Kafka gives them at once."""
    coordinator = Coordinator()
    ids = [coordinator.new_member_id() for _ in range(2)]
    joins = [coordinator.join(id_) for id_ in ids]
    coordinator.log.is_held = True
    entry = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = m.OffsetCommitRequest(
        group_id="beside",
        generation_id_or_member_epoch=-1,
        topics=[m.OffsetCommitRequestTopic(name="orders", partitions=[entry])],
    )
    coordinator.ask("offset_commit", request)
    coordinator.advance(6_000)
    assert state(coordinator) is COMPLETING_REBALANCE
    coordinator.advance(4_999)
    assert [answer.is_parked for answer in joins] == [True, True]
    coordinator.advance(1)
    assert [answer.code for answer in joins] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    assert [(again.code, again.generation_id) for again in map(coordinator.join, ids)] == [(NONE, 1)] * 2


def test_a_replacement_that_is_not_committed_in_time() -> None:
    coordinator = Coordinator()
    old, other = coordinator.stable(2, instances=("a", "b"))
    coordinator.log.is_held = True
    answer = coordinator.join("", instance="a")
    coordinator.advance(4_999)
    assert answer.is_parked
    coordinator.advance(1)
    assert (answer.code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.node.settle()
    (new,) = set(coordinator.groups["group"].members) - {old, other}
    assert coordinator.heartbeat(new, 1, instance="a") is NONE


def test_an_assignment_that_is_too_large_is_an_unknown_error() -> None:
    coordinator = Coordinator(batch_bytes_max=1_000)
    (leader,) = coordinator.completing(1)
    assert coordinator.sync(leader, 1, {leader: b"x" * 1_000}).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert state(coordinator) is PREPARING_REBALANCE


def test_an_older_sync_of_the_same_member_is_answered_when_it_is_replaced() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.completing(2)
    older, newer = coordinator.sync(follower, 1), coordinator.sync(follower, 1)
    assert older.code is REBALANCE
    assert newer.is_parked


# Timers


@pytest.mark.parametrize(("silence_ms", "is_alive"), [(SESSION_MS - 1, True), (SESSION_MS, False)])
def test_a_session_ends_when_nothing_is_heard(silence_ms: int, is_alive: bool) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.advance(5_000)
    for member in (leader, follower):
        assert coordinator.heartbeat(member, 1) is NONE
    coordinator.advance(silence_ms)
    assert (coordinator.heartbeat(leader, 1) is NONE) == is_alive


def test_a_commit_keeps_a_member_alive_and_a_stale_heartbeat_does_not() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.advance(6_000)
    coordinator.commit(member_id=leader, generation=1)
    assert coordinator.heartbeat(follower, 0) is ErrorCode.ILLEGAL_GENERATION
    coordinator.advance(6_000)
    assert list(coordinator.groups["group"].members) == [leader]


def test_a_commit_while_the_group_prepares_keeps_a_member_alive() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.join(leader)
    coordinator.advance(6_000)
    assert coordinator.commit(member_id=follower, generation=1) == {("orders", 0): NONE}
    coordinator.advance(6_000)
    assert follower in coordinator.groups["group"].members


def test_a_session_starts_anew_with_the_answer_to_a_parked_sync() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    waiting = coordinator.sync(follower, 1)
    coordinator.heartbeat(leader, 1)
    coordinator.advance(SESSION_MS - 1)
    coordinator.heartbeat(leader, 1)
    coordinator.advance(5_000)  # the follower's session has ended, without consequence
    coordinator.join("", version=3)
    assert waiting.code is REBALANCE
    for _ in range(2):
        assert coordinator.heartbeat(leader, 1) is REBALANCE
        assert follower in coordinator.groups["group"].members
        coordinator.advance(SESSION_MS // 2)
    assert follower not in coordinator.groups["group"].members


def test_a_session_that_expires_during_completing_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(leader, 1) is NONE
    coordinator.advance(1)
    assert list(coordinator.groups["group"].members) == [leader]
    assert state(coordinator) is PREPARING_REBALANCE
    assert coordinator.heartbeat(follower, 1) is UNKNOWN


def test_who_waits_for_an_answer_does_not_lapse() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    parked = coordinator.join(leader)
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(follower, 1) is REBALANCE
    coordinator.advance(SESSION_MS - 1)
    assert parked.is_parked
    assert leader in coordinator.groups["group"].members
    coordinator.advance(1)  # now the follower has lapsed
    assert parked.code is NONE
    coordinator.sync(leader, 2, {leader: b""})
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(leader, 2) is NONE


def test_a_new_member_that_waits_in_vain_is_out_after_five_minutes() -> None:
    coordinator = Coordinator(GroupConfig(group_initial_rebalance_delay_ms=400_000))
    answer = coordinator.join("", version=3, rebalance_ms=1_000_000)
    coordinator.advance(299_999)
    assert answer.is_parked
    coordinator.advance(1)
    assert (answer.code, answer.member_id) == (UNKNOWN, "")


def test_a_pending_id_lapses() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    pending = coordinator.new_member_id(session_ms=6_000)
    coordinator.advance(6_000)
    assert coordinator.join(pending).code is UNKNOWN
    assert state(coordinator) is STABLE


@pytest.mark.parametrize("silent", [["follower"], ["leader"], ["leader", "follower"]])
def test_who_does_not_synchronise_in_time_is_out(silent: list[str]) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    answers: list[Answer] = []
    for name, member in (("leader", leader), ("follower", follower)):
        if name not in silent:
            answers.append(coordinator.sync(member, 1, {leader: b""} if name == "leader" else {}))
    for _ in range(7):
        coordinator.heartbeat(leader, 1)
        coordinator.heartbeat(follower, 1)
        coordinator.advance(9_000)
    gone = [{"leader": leader, "follower": follower}[name] for name in silent]
    group = coordinator.groups["group"]
    assert not set(gone) & set(group.members)
    assert group.state is (EMPTY if len(silent) == 2 else PREPARING_REBALANCE)
    assert [answer.code for answer in answers] in ([], [NONE], [REBALANCE])


def test_the_sync_timer_is_off_when_all_have_synchronised() -> None:
    coordinator = Coordinator()
    members = coordinator.stable(2)
    for _ in range(10):
        coordinator.advance(9_000)
        assert [coordinator.heartbeat(member, 1) for member in members] == [NONE, NONE]


def test_a_join_timer_that_finds_nobody_is_armed_again() -> None:
    coordinator = Coordinator()
    coordinator.stable(2, instances=("a", "b"), session_ms=1_000_000, rebalance_ms=20_000)
    pending = coordinator.new_member_id()
    leader = coordinator.groups["group"].leader
    assert leader is not None
    coordinator.leave((pending, None))
    assert state(coordinator) is PREPARING_REBALANCE
    coordinator.advance(60_000)
    assert state(coordinator) is PREPARING_REBALANCE
    assert coordinator.describe_generation() == 1
    coordinator.join(leader, instance="a", session_ms=1_000_000, rebalance_ms=20_000)
    coordinator.advance(20_000)
    assert coordinator.describe_generation() == 2


# LeaveGroup


def test_a_batch_of_leavers() -> None:
    coordinator = Coordinator()
    coordinator.stable(3, instances=(None, "a", "b"))
    members = coordinator.groups["group"].members
    by_instance = {member.group_instance_id: id_ for id_, member in members.items()}
    dynamic, static, other = by_instance[None], by_instance["a"], by_instance["b"]
    pending = coordinator.new_member_id()
    codes = coordinator.leave(
        ("nobody", None), ("", None), ("", "nobody"), (static, "b"), (pending, "ignored"), (dynamic, None), ("", "a")
    )
    assert codes == [UNKNOWN, UNKNOWN, UNKNOWN, FENCED, NONE, NONE, NONE]
    assert list(members) == [other]
    assert state(coordinator) is PREPARING_REBALANCE


def test_leaving_an_unknown_group_is_an_error_of_each_member() -> None:
    coordinator = Coordinator()
    assert coordinator.leave(("a", None), ("b", None)) == [UNKNOWN, UNKNOWN]


def test_a_pending_member_that_leaves_rebalances_a_stable_group() -> None:
    coordinator = Coordinator()
    coordinator.stable(1)
    assert coordinator.leave((coordinator.new_member_id(), None)) == [NONE]
    assert state(coordinator) is PREPARING_REBALANCE


def test_a_parked_join_of_a_leaver_is_answered() -> None:
    coordinator = Coordinator()
    member = coordinator.new_member_id()
    answer = coordinator.join(member)
    assert coordinator.leave((member, None)) == [NONE]
    assert (answer.code, answer.member_id) == (UNKNOWN, "")
    assert state(coordinator) is PREPARING_REBALANCE  # the initial delay goes on without members
    coordinator.advance(3_000)
    assert state(coordinator) is EMPTY
    assert coordinator.groups["group"].protocol_type == "consumer"


def test_a_parked_sync_of_a_leaver_is_answered() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.completing(2)
    answer = coordinator.sync(follower, 1)
    coordinator.leave((follower, None))
    assert answer.code is UNKNOWN


def test_a_next_member_leads_when_the_leader_leaves() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2)
    coordinator.leave((leader, None))
    answer = coordinator.join(follower)
    assert (answer.leader, len(answer.members)) == (follower, 1)


# Static members


def test_a_static_member_needs_no_id_first() -> None:
    coordinator = Coordinator()
    answer = coordinator.join("", instance="a")
    assert answer.is_parked
    coordinator.advance(3_000)
    assert answer.member_id == "a-uuid1"


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("instance", ["leader", "follower"])
def test_a_replacement_in_a_stable_group_moves_nothing(instance: str, version: int) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable(2, instances=("leader", "follower"))
    old = leader if instance == "leader" else follower
    end = coordinator.end
    answer = coordinator.join("", instance=instance, version=version, session_ms=20_000)
    new = answer.member_id
    is_leader = instance == "leader"
    assert (answer.code, answer.generation_id) == (NONE, 1)
    assert state(coordinator) is STABLE
    assert coordinator.heartbeat(old, 1, instance=instance) is FENCED
    assert coordinator.heartbeat(new, 1, instance=instance) is NONE
    if version == 9:
        assert (answer.leader, answer.skip_assignment) == (new if is_leader else leader, is_leader)
        assert len(answer.members) == (2 if is_leader else 0)
    else:
        # A replaced leader is told of the old one, so that it does not assign again.
        assert (answer.leader, answer.skip_assignment, len(answer.members)) == (leader, False, 0)
    (record,) = coordinator.records(end)
    assert isinstance(record, GroupMetadata)
    stored = {member.group_instance_id: member for member in record.members}
    assert (stored[instance].member_id, stored[instance].session_timeout_ms) == (new, 20_000)
    assert stored[instance].assignment == (b"0" if is_leader else b"1")
    assert coordinator.sync(new, 1, instance=instance).assignment == stored[instance].assignment


def test_a_replacement_that_cannot_be_written_is_taken_back() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2, instances=("a", "b"))
    coordinator.log.fail_next_append = UnavailableError("offline")
    answer = coordinator.join("", instance="a", session_ms=20_000)
    assert (answer.code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert (answer.generation_id, answer.leader) == (1, leader)
    group = coordinator.groups["group"]
    assert (group.leader, group.static_members["a"], len(group.waiting)) == (leader, leader, 0)
    assert group.members[leader].session_timeout_ms == SESSION_MS
    assert coordinator.heartbeat(leader, 1, instance="a") is NONE
    coordinator.advance(SESSION_MS)
    assert leader not in group.members


def test_two_replacements_that_cannot_be_written_are_taken_back() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable(2, instances=("a", "b"))
    coordinator.is_burst = True
    coordinator.log.fail_next_append = UnavailableError("offline")
    answers = [coordinator.join("", instance="a") for _ in range(2)]
    coordinator.is_burst = False
    coordinator.node.settle()
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    group = coordinator.groups["group"]
    assert (group.leader, group.static_members["a"], len(group.waiting)) == (leader, leader, 0)
    assert coordinator.heartbeat(leader, 1, instance="a") is NONE


def test_a_member_whose_replacement_is_taken_back_gets_a_whole_session() -> None:
    """Its own timer may end while the replacement is being written."""
    coordinator = Coordinator()
    old, other = coordinator.stable(2, instances=("a", "b"))
    coordinator.linger_ms = 20
    coordinator.restart()
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(other, 1, instance="b") is NONE
    coordinator.log.fail_next_append = UnavailableError("offline")
    answer = coordinator.join("", instance="a")
    coordinator.advance(20)
    assert (answer.code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    coordinator.advance(SESSION_MS - 21)
    assert coordinator.heartbeat(other, 1, instance="b") is NONE
    coordinator.advance(20)
    assert set(coordinator.groups["group"].members) == {old, other}
    coordinator.advance(1)
    assert list(coordinator.groups["group"].members) == [other]
    assert state(coordinator) is PREPARING_REBALANCE


def test_a_replacement_that_is_silent_expires_by_the_old_session_timeout() -> None:
    """The timeout in its request applies from its next heartbeat on, as in Kafka."""
    coordinator = Coordinator()
    _, other = coordinator.stable(2, instances=("a", "b"))
    new = str(coordinator.join("", instance="a", session_ms=20_000).member_id)
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(other, 1, instance="b") is NONE
    assert new in coordinator.groups["group"].members
    coordinator.advance(1)
    assert list(coordinator.groups["group"].members) == [other]


def test_a_replacement_that_changes_the_vote_rebalances() -> None:
    coordinator = Coordinator()
    protocols = (("sticky", b""), ("range", b""))
    coordinator.stable(2, instances=("a", "b"), protocols=protocols)
    assert coordinator.groups["group"].protocol_name == "sticky"
    answer = coordinator.join("", instance="a", protocols=(("range", b""),))
    assert answer.is_parked
    assert state(coordinator) is PREPARING_REBALANCE


def test_a_replacement_while_the_group_completes_rebalances() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2, instances=("a", "b"))
    parked = coordinator.sync(follower, 1, instance="b")
    answer = coordinator.join("", instance="a")
    assert answer.is_parked
    assert parked.code is REBALANCE
    assert coordinator.join(leader, instance="a").code is FENCED


def test_the_fenced_holder_is_told_so_where_it_waits() -> None:
    coordinator = Coordinator()
    first = coordinator.join("", instance="a")
    second = coordinator.join("", instance="a")
    assert (first.code, first.member_id) == (FENCED, "a-uuid1")
    coordinator.advance(3_000)
    assert (second.code, second.member_id) == (NONE, "a-uuid2")
    coordinator.sync("a-uuid2", 1, {"a-uuid2": b""}, instance="a")

    _, follower = coordinator.completing(2, group="other", instances=("x", "y"))
    sync = coordinator.sync(follower, 1, group="other", instance="y")
    coordinator.join("", group="other", instance="y")
    assert sync.code is FENCED


def test_a_replacement_counts_as_one_more_in_a_full_group() -> None:
    coordinator = Coordinator(GroupConfig(group_max_size=2))
    coordinator.stable(2, instances=("a", "b"))
    assert coordinator.join("", instance="a").code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_does_not_come_back_is_out_by_the_sync_timer() -> None:
    coordinator = Coordinator()
    options: dict[str, Any] = {"session_ms": 500_000, "rebalance_ms": 20_000}
    leader, away = coordinator.stable(2, instances=("a", "b"), **options)
    coordinator.join(leader, instance="a", **options)
    coordinator.advance(20_000)
    assert away in coordinator.groups["group"].members
    assert coordinator.sync(leader, 2, {leader: b"all"}, instance="a").code is NONE
    coordinator.advance(20_000)
    assert away not in coordinator.groups["group"].members
    assert state(coordinator) is PREPARING_REBALANCE


def test_an_empty_instance_id_is_one_too() -> None:
    coordinator = Coordinator()
    answer = coordinator.join("", instance="")
    coordinator.advance(3_000)
    assert answer.member_id == "-uuid1"
    assert coordinator.leave(("", "")) == [NONE]


def test_a_replacement_shows_the_old_client_id_and_keeps_the_old_subscription() -> None:
    coordinator = Coordinator()
    protocols = (("range", subscription("orders")),)
    coordinator.stable(1, instances=("a",), protocols=protocols)
    coordinator.join("", instance="a", protocols=(("range", subscription("payments")),), client_id="another")
    group = coordinator.groups["group"]
    assert group.subscribed_topics == frozenset({"orders"})
    assert [member.client_id for member in group.members.values()] == ["client"]


# A group that could not be created


def test_a_group_that_could_not_be_logged_is_not_there() -> None:
    coordinator = Coordinator()
    coordinator.log.fail_next_append = UnavailableError("offline")
    answer = coordinator.join("", version=3)
    assert (answer.code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert coordinator.listed() == {}
    coordinator.advance(400_000)
    again = coordinator.join("", version=3)
    coordinator.advance(3_000)
    assert again.generation_id == 1


@pytest.mark.parametrize("maker", ["commit", "join"])
def test_a_member_that_waits_in_a_group_whose_creation_is_lost_later_is_answered(maker: str) -> None:
    """The creation waits for its commit. The batch of the member's JoinGroup shows that the log has other records."""
    coordinator = Coordinator()
    coordinator.log.is_held = True
    if maker == "commit":
        entry = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = [m.OffsetCommitRequestTopic(name="orders", partitions=[entry])]
        first = coordinator.ask("offset_commit", m.OffsetCommitRequest(group_id="group", topics=topics))
    else:
        first = coordinator.join()
    coordinator.is_burst = True
    other = coordinator.join(group="other")
    waiting = coordinator.join(instance="i")
    assert [answer.is_parked for answer in (first, other, waiting)] == [True] * 3
    coordinator.log.shift_next_append = 1
    coordinator.is_burst = False
    coordinator.node.settle()
    assert not first.is_parked
    assert (waiting.code, other.code) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("maker", ["commit", "join"])
def test_who_joins_a_group_in_the_turn_that_fails_to_make_it_is_answered(maker: str) -> None:
    coordinator = Coordinator()
    coordinator.log.fail_next_append = UnavailableError("offline")
    join = m.JoinGroupRequest(
        group_id="group",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    entry = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [m.OffsetCommitRequestTopic(name="orders", partitions=[entry])]
    commit = m.OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=-1, topics=topics)
    if maker == "commit":
        coordinator.send("offset_commit", commit)
    answers = [coordinator.send("join_group", join, version=version) for version in (3, 2, 1)]
    coordinator.node.settle()
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 3
    assert coordinator.listed() == {}
    coordinator.advance(400_000)


@pytest.mark.parametrize("end", ["assignment", "rebalance"])
def test_a_request_that_waited_gives_its_member_a_whole_session(end: str) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.completing(2)
    coordinator.advance(SESSION_MS - 2_000)
    assert coordinator.heartbeat(leader, 1) is NONE
    waiting = coordinator.sync(follower, 1)
    if end == "assignment":
        coordinator.sync(leader, 1, {leader: b"0", follower: b"1"})
    else:
        coordinator.join("", version=3)
    assert not waiting.is_parked
    coordinator.advance(SESSION_MS - 1)
    assert follower in coordinator.groups["group"].members
    coordinator.advance(1)
    assert follower not in coordinator.groups["group"].members
