"""
What administrators are answered about a classic group, by its state.

Source: `ClassicGroup.validateDeleteGroup`, `validateOffsetDelete`, `describe` of Apache Kafka 4.2.1.
"""

import pytest

from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
)
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.harness import Coordinator
from tests.tables.groups_in_states import in_state

NONE = ErrorCode.NONE
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND

# fmt: off
ADMIN = {                 # DeleteGroups  OffsetDelete, consumers  OffsetDelete, others
    EMPTY:                (NONE,          NONE,                    NONE),
    PREPARING_REBALANCE:  (NON_EMPTY,     NONE,                    NON_EMPTY),
    COMPLETING_REBALANCE: (NON_EMPTY,     NONE,                    NON_EMPTY),
    STABLE:               (NON_EMPTY,     NONE,                    NON_EMPTY),
    DEAD:                 (NOT_FOUND,     NOT_FOUND,               NOT_FOUND),
}

DESCRIBED = {             # protocol  metadata  assignments
    EMPTY:                ("",        [],       []),
    PREPARING_REBALANCE:  ("",        [b"", b""], [b"0", b"1"]),
    COMPLETING_REBALANCE: ("",        [b"", b""], [b"", b""]),
    STABLE:               ("range",   [b"", b""], [b"0", b"1"]),
    DEAD:                 ("",        [b"", b""], [b"0", b"1"]),
}
# fmt: on


def test_every_state_is_decided() -> None:
    assert set(ADMIN) == set(DESCRIBED) == set(ClassicGroupState)


@pytest.mark.parametrize("state", ClassicGroupState)
def test_delete_groups(state: ClassicGroupState) -> None:
    coordinator = in_state(state).coordinator
    assert coordinator.delete("group") == {"group": ADMIN[state][0]}
    assert ("group" in coordinator.listed()) == (state is not EMPTY)


def offset_delete(coordinator: Coordinator, group: str = "group", topic: str = "orders") -> ErrorCode:
    partitions = [m.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [m.OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    answer = coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id=group, topics=topics))
    return answer.code


@pytest.mark.parametrize("column", [1, 2])
@pytest.mark.parametrize("state", [state for state in ClassicGroupState if state is not COMPLETING_REBALANCE])
def test_offset_delete(state: ClassicGroupState, column: int) -> None:
    situation = in_state(state, protocol_type="consumer" if column == 1 else "connect")
    assert offset_delete(situation.coordinator) is ADMIN[state][column]


@pytest.mark.parametrize("state", ClassicGroupState)
def test_describe(state: ClassicGroupState) -> None:
    found = in_state(state).coordinator.describe()
    protocol, metadata, assignments = DESCRIBED[state]
    assert (found.error_code, found.group_state, found.protocol_type) == (NONE, state.value, "consumer")
    assert found.protocol_data == protocol
    assert [member.member_metadata for member in found.members] == metadata
    assert [member.member_assignment for member in found.members] == assignments


@pytest.mark.parametrize("state", ClassicGroupState)
def test_list(state: ClassicGroupState) -> None:
    assert in_state(state).coordinator.listed() == {"group": state.value}
