"""
The answers to the members of a classic group, by the state of the group and by member.

Source: `ClassicGroup` and `GroupMetadataManager` of Apache Kafka 4.2.1; each row was tried against a broker.
"""

import pytest

from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    ClassicGroupState,
    can_rebalance,
)
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError
from kohort.wire import messages as m
from tests.tables.groups_in_states import Situation, in_state

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
INTERNAL = ErrorCode.UNKNOWN_SERVER_ERROR

WHO = ("member", "stale generation", "stranger", "unknown instance", "pending", "fenced")

# fmt: off
HEARTBEAT = {             # member       stale generation  stranger     unknown instance  pending      fenced
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    COMPLETING_REBALANCE: (NONE,         STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
}

PARKED = None
SYNC = {                  # member       stale generation  stranger     unknown instance  pending      fenced
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    COMPLETING_REBALANCE: (PARKED,       STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
}

COMMIT = {                # member       stale generation  stranger     unknown instance  pending      fenced
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (NONE,         STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    COMPLETING_REBALANCE: (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN,          UNKNOWN,     FENCED),
}

JOINING = ("dynamic", "dynamic, version 3", "static", "replacement", "pending", "pending with instance", "fenced")
JOIN = {                  # dynamic      version 3    static       replacement  pending   with instance  fenced
    EMPTY:                (REQUIRED,     PARKED,      PARKED,      PARKED,      PARKED,      INTERNAL,      UNKNOWN),
    PREPARING_REBALANCE:  (REQUIRED,     PARKED,      PARKED,      NONE,        PARKED,      INTERNAL,      FENCED),
    COMPLETING_REBALANCE: (REQUIRED,     PARKED,      PARKED,      PARKED,      PARKED,      INTERNAL,      FENCED),
    STABLE:               (REQUIRED,     PARKED,      PARKED,      NONE,        PARKED,      INTERNAL,      FENCED),
}

LEAVING = ("member", "stranger", "nobody", "unknown instance", "pending", "fenced", "instance alone")
LEAVE = {                 # member       stranger     nobody       unknown inst. pending      fenced       instance alone
    EMPTY:                (UNKNOWN,      UNKNOWN,     UNKNOWN,     UNKNOWN,     NONE,        UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (NONE,         UNKNOWN,     UNKNOWN,     UNKNOWN,     NONE,        FENCED,      NONE),
    COMPLETING_REBALANCE: (NONE,         UNKNOWN,     UNKNOWN,     UNKNOWN,     NONE,        FENCED,      NONE),
    STABLE:               (NONE,         UNKNOWN,     UNKNOWN,     UNKNOWN,     NONE,        FENCED,      NONE),
}
LEFT = {                  # the state after the follower, or a pending member, has left
    EMPTY:                (EMPTY,               EMPTY),
    PREPARING_REBALANCE:  (COMPLETING_REBALANCE, PREPARING_REBALANCE),  # the leader waits; the follower is still missing
    COMPLETING_REBALANCE: (PREPARING_REBALANCE, PREPARING_REBALANCE),
    STABLE:               (PREPARING_REBALANCE, PREPARING_REBALANCE),
}

COMMIT_WITHOUT_GENERATION = {  # nobody  with member id
    EMPTY:                (NONE,         NONE),
    PREPARING_REBALANCE:  (UNKNOWN,      STALE),
    COMPLETING_REBALANCE: (UNKNOWN,      STALE),
    STABLE:               (UNKNOWN,      STALE),
}

REJOIN = {                # leader same  leader changed  follower same  follower changed
    PREPARING_REBALANCE:  (PARKED,       PARKED,         NONE,          NONE),      # the last one completes the phase
    COMPLETING_REBALANCE: (NONE,         PARKED,         NONE,          PARKED),
    STABLE:               (PARKED,       PARKED,         NONE,          PARKED),
    EMPTY:                (UNKNOWN,      UNKNOWN,        UNKNOWN,       UNKNOWN),
}
# fmt: on


@pytest.mark.parametrize(
    "table", [HEARTBEAT, SYNC, COMMIT, JOIN, LEAVE, LEFT, COMMIT_WITHOUT_GENERATION, REJOIN, TRANSITIONS]
)
def test_every_state_is_decided(table: dict[ClassicGroupState, object]) -> None:
    assert set(table) == set(ClassicGroupState)


def situation_of(state: ClassicGroupState, who: str) -> Situation:
    return in_state(state, is_static=who in ("fenced", "replacement", "instance alone"))


def asker(situation: Situation, who: str) -> tuple[str, int, str | None]:
    """Member id, generation and instance id in the request."""
    generation = situation.generation
    match who:
        case "member":
            return situation.follower, generation, None
        case "stale generation":
            return situation.follower, generation - 1, None
        case "stranger":
            return "stranger", generation, None
        case "unknown instance":
            return situation.follower, generation, "nobody"
        case "pending":
            return situation.pending_id(), generation, None
        case "fenced":
            return "an earlier id", generation, "follower"
    raise AssertionError(who)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_heartbeat(state: ClassicGroupState, who: str) -> None:
    situation = situation_of(state, who)
    member_id, generation, instance = asker(situation, who)
    code = situation.coordinator.heartbeat(member_id, generation, instance=instance)
    assert code is HEARTBEAT[state][WHO.index(who)]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_sync(state: ClassicGroupState, who: str) -> None:
    situation = situation_of(state, who)
    member_id, generation, instance = asker(situation, who)
    answer = situation.coordinator.sync(member_id, generation, instance=instance)
    assert (None if answer.is_parked else answer.code) is SYNC[state][WHO.index(who)]


@pytest.mark.parametrize("state", [COMPLETING_REBALANCE, STABLE])
def test_sync_compares_protocols_where_both_sides_name_one(state: ClassicGroupState) -> None:
    situation = in_state(state)
    coordinator, member, generation = situation.coordinator, situation.follower, situation.generation
    assert coordinator.sync(member, generation, protocol_type="connect").code is PROTOCOL
    assert coordinator.sync(member, generation, protocol_name="roundrobin").code is PROTOCOL
    # Version 5 insists on both; before it there are none.
    assert coordinator.sync(member, generation, protocol_name=None).code is PROTOCOL
    assert coordinator.sync(member, generation, protocol_type=None).code is PROTOCOL
    old = coordinator.sync(member, generation, protocol_type=None, protocol_name=None, version=4)
    assert old.is_parked or old.code is NONE


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_commit(state: ClassicGroupState, who: str) -> None:
    situation = situation_of(state, who)
    member_id, generation, instance = asker(situation, who)
    codes = situation.coordinator.commit(member_id=member_id, generation=generation, instance=instance)
    assert codes == {("orders", 0): COMMIT[state][WHO.index(who)]}
    assert (situation.coordinator.fetch() != {}) == (codes["orders", 0] is NONE)


@pytest.mark.parametrize("who", JOINING)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_join(state: ClassicGroupState, who: str) -> None:
    """A member that is new to the group, or claims to be one. Known members: `test_rejoin`."""
    situation = situation_of(state, who)
    coordinator = situation.coordinator
    match who:
        case "dynamic" | "dynamic, version 3":
            answer = coordinator.join(version=3 if "3" in who else 9)
        case "static":
            answer = coordinator.join(instance="new")
        case "replacement":
            answer = coordinator.join(instance="follower")
        case "fenced":
            answer = coordinator.join("an earlier id", instance="follower")
        case _:
            answer = coordinator.join(situation.pending_id(), instance="new" if "instance" in who else None)
    expected = JOIN[state][JOINING.index(who)]
    assert (None if answer.is_parked else answer.code) is expected
    if expected is REQUIRED:
        assert answer.member_id in situation.group.pending_members
        assert answer.member_id not in situation.group.members
    elif expected is PARKED:
        assert situation.group.state is PREPARING_REBALANCE
    elif expected is NONE:
        assert situation.follower not in situation.group.members


@pytest.mark.parametrize("who", LEAVING)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_leave(state: ClassicGroupState, who: str) -> None:
    situation = situation_of(state, who)
    coordinator = situation.coordinator
    if who == "nobody":
        member_id, instance = "", None
    elif who == "instance alone":
        member_id, instance = "", "follower"
    else:
        member_id, _, instance = asker(situation, who)
    identity = m.LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=instance)
    answer = coordinator.ask("leave_group", m.LeaveGroupRequest(group_id="group", members=[identity]))
    expected = LEAVE[state][LEAVING.index(who)]
    (member,) = answer.members
    assert (answer.code, member.error_code) == (NONE, expected)
    assert (member.member_id, member.group_instance_id) == (member_id, instance)
    if expected is NONE:
        assert situation.group.state is LEFT[state][who == "pending"]
        assert member_id not in situation.group.pending_members
        assert (situation.follower in situation.group.members) == (who == "pending" and state is not EMPTY)
    else:
        assert situation.group.state is state


@pytest.mark.parametrize("with_member", [False, True])
@pytest.mark.parametrize("state", ClassicGroupState)
def test_commit_without_generation(state: ClassicGroupState, with_member: bool) -> None:
    situation = in_state(state)
    codes = situation.coordinator.commit(member_id=situation.follower if with_member else "")
    assert codes["orders", 0] is COMMIT_WITHOUT_GENERATION[state][with_member]


@pytest.mark.parametrize("member", ["", "stranger"])
def test_a_generation_of_zero_is_a_generation(member: str) -> None:
    """Only a negative one stands for a client without membership."""
    situation = in_state(EMPTY)
    assert situation.coordinator.commit(member_id=member, generation=0)["orders", 0] is UNKNOWN
    assert situation.coordinator.commit(member_id=member, generation=-1)["orders", 0] is NONE


@pytest.mark.parametrize("state", [PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE])
def test_a_transactional_commit_may_name_no_member(state: ClassicGroupState) -> None:
    """Producers before KIP-447 name none; a named member must be right. Source: ClassicGroup.validateOffsetCommit."""
    situation = in_state(state)
    group, generation = situation.group, situation.generation
    group.validate_offset_commit("", None, -1, 4, is_transactional=True)
    group.validate_offset_commit(situation.follower, None, generation, 4, is_transactional=True)
    for member_id, sent, code in (
        ("", generation, UNKNOWN),
        (situation.follower, -1, STALE),
        ("stranger", -1, UNKNOWN),
    ):
        with pytest.raises(CoordinatorError) as refused:
            group.validate_offset_commit(member_id, None, sent, 4, is_transactional=True)
        assert refused.value.code is code


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("is_follower", [False, True])
@pytest.mark.parametrize("state", ClassicGroupState)
def test_rejoin(state: ClassicGroupState, is_follower: bool, is_changed: bool) -> None:
    situation = in_state(state)
    member = situation.follower if is_follower else situation.leader
    generation = situation.generation
    answer = situation.coordinator.join(member, protocols=(("range", b"new" if is_changed else b""),))
    expected = REJOIN[state][2 * is_follower + is_changed]
    assert (None if answer.is_parked else answer.code) is expected
    if expected is NONE and state is not PREPARING_REBALANCE:
        assert answer.generation_id == generation
        assert len(answer.members) == (0 if is_follower else 2)
        assert answer.leader == situation.leader


@pytest.mark.parametrize("target", ClassicGroupState)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_moves(state: ClassicGroupState, target: ClassicGroupState) -> None:
    group = in_state(state).group
    if target in TRANSITIONS[state]:
        group.move_to(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, state, 5)
    else:
        with pytest.raises(InvariantError):
            group.move_to(target, 5)


def test_a_rebalance_starts_from_three_states() -> None:
    assert {state for state in ClassicGroupState if can_rebalance(state)} == {EMPTY, COMPLETING_REBALANCE, STABLE}


@pytest.mark.parametrize("api", ["join", "sync", "heartbeat", "commit", "leave"])
def test_a_static_member_is_known_by_both_its_names(api: str) -> None:
    """Source: `ClassicGroup.validateMember`."""
    situation = in_state(STABLE)
    coordinator = situation.coordinator
    old, _ = coordinator.stable(2, group="static", instances=("a", "b"))
    new = str(coordinator.join("", group="static", instance="a").member_id)
    generation = coordinator.describe_generation("static")

    def ask(member_id: str, instance: str) -> ErrorCode:
        match api:
            case "join":
                return coordinator.join(member_id, group="static", instance=instance).code
            case "sync":
                return coordinator.sync(member_id, generation, group="static", instance=instance).code
            case "heartbeat":
                return coordinator.heartbeat(member_id, generation, group="static", instance=instance)
            case "commit":
                codes = coordinator.commit(
                    member_id=member_id, generation=generation, group="static", instance=instance
                )
                return codes["orders", 0]
        return coordinator.leave((member_id, instance), group="static")[0]

    assert ask(old, "a") is FENCED
    assert ask(old, "b") is FENCED
    assert ask(new, "b") is FENCED
    assert ask(new, "c") is UNKNOWN
    if api != "join":
        assert ask(new, "a") is NONE
