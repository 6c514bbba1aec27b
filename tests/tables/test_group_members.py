"""
What a member of a classic group is answered, by the group's state and by who asks.

Source: `ClassicGroup` and `GroupMetadataManager` of Apache Kafka 4.2.1; each row was tried against a broker.
"""

import pytest

from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    ClassicGroupState,
    can_rebalance,
)
from kohort.model.errors import ErrorCode, InvariantError
from tests.tables.groups_in_states import Situation, in_state

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL

WHO = ("member", "stale generation", "stranger", "unknown instance")

# fmt: off
HEARTBEAT = {             # member       stale generation  stranger     unknown instance
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN),
    COMPLETING_REBALANCE: (NONE,         STALE,            UNKNOWN,     UNKNOWN),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN),
    DEAD:                 (UNAVAILABLE,  UNAVAILABLE,      UNAVAILABLE, UNAVAILABLE),
}

PARKED = None
SYNC = {                  # member       stale generation  stranger     unknown instance
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN),
    COMPLETING_REBALANCE: (PARKED,       STALE,            UNKNOWN,     UNKNOWN),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN),
    DEAD:                 (UNAVAILABLE,  UNAVAILABLE,      UNAVAILABLE, UNAVAILABLE),
}

COMMIT = {                # member       stale generation  stranger     unknown instance
    EMPTY:                (UNKNOWN,      UNKNOWN,          UNKNOWN,     UNKNOWN),
    PREPARING_REBALANCE:  (NONE,         STALE,            UNKNOWN,     UNKNOWN),
    COMPLETING_REBALANCE: (REBALANCE,    STALE,            UNKNOWN,     UNKNOWN),
    STABLE:               (NONE,         STALE,            UNKNOWN,     UNKNOWN),
    DEAD:                 (UNAVAILABLE,  UNAVAILABLE,      UNAVAILABLE, UNAVAILABLE),
}

COMMIT_WITHOUT_GENERATION = {  # nobody  with member id
    EMPTY:                (NONE,         NONE),
    PREPARING_REBALANCE:  (UNKNOWN,      STALE),
    COMPLETING_REBALANCE: (UNKNOWN,      STALE),
    STABLE:               (UNKNOWN,      STALE),
    DEAD:                 (UNAVAILABLE,  UNAVAILABLE),
}

REJOIN = {                # leader same  leader changed  follower same  follower changed
    PREPARING_REBALANCE:  (PARKED,       PARKED,         NONE,          NONE),      # the last one completes the phase
    COMPLETING_REBALANCE: (NONE,         PARKED,         NONE,          PARKED),
    STABLE:               (PARKED,       PARKED,         NONE,          PARKED),
    DEAD:                 (UNAVAILABLE,  UNAVAILABLE,    UNAVAILABLE,   UNAVAILABLE),
    EMPTY:                (UNKNOWN,      UNKNOWN,        UNKNOWN,       UNKNOWN),
}
# fmt: on


@pytest.mark.parametrize("table", [HEARTBEAT, SYNC, COMMIT, COMMIT_WITHOUT_GENERATION, REJOIN, TRANSITIONS])
def test_every_state_is_decided(table: dict[ClassicGroupState, object]) -> None:
    assert set(table) == set(ClassicGroupState)


def asker(situation: Situation, who: str) -> tuple[str, int, str | None]:
    """Member id, generation and instance id of who asks."""
    generation = situation.generation
    return {
        "member": (situation.follower, generation, None),
        "stale generation": (situation.follower, generation - 1, None),
        "stranger": ("stranger", generation, None),
        "unknown instance": (situation.follower, generation, "nobody"),
    }[who]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_heartbeat(state: ClassicGroupState, who: str) -> None:
    situation = in_state(state)
    member_id, generation, instance = asker(situation, who)
    code = situation.coordinator.heartbeat(member_id, generation, instance=instance)
    assert code is HEARTBEAT[state][WHO.index(who)]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("state", ClassicGroupState)
def test_sync(state: ClassicGroupState, who: str) -> None:
    situation = in_state(state)
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
    situation = in_state(state)
    member_id, generation, instance = asker(situation, who)
    codes = situation.coordinator.commit(member_id=member_id, generation=generation, instance=instance)
    assert codes == {("orders", 0): COMMIT[state][WHO.index(who)]}
    assert (situation.coordinator.fetch() != {}) == (codes["orders", 0] is NONE)


@pytest.mark.parametrize("with_member", [False, True])
@pytest.mark.parametrize("state", ClassicGroupState)
def test_commit_without_generation(state: ClassicGroupState, with_member: bool) -> None:
    situation = in_state(state)
    codes = situation.coordinator.commit(member_id=situation.follower if with_member else "")
    assert codes["orders", 0] is COMMIT_WITHOUT_GENERATION[state][with_member]


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
