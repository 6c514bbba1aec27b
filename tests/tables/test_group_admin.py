"""
The answers to administrators about a classic group, by its state.

Source: `ClassicGroup.validateDeleteGroup`, `validateOffsetDelete`, `validateOffsetFetch`, `describe` of Apache Kafka 4.2.1.
"""

import pytest

from kohort.group.classic.states import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroupState,
)
from kohort.model.errors import ErrorCode
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.readers import response_reader
from tests.group.harness import Coordinator
from tests.tables.groups_in_states import in_state

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND

# fmt: off
ADMIN = {                 # DeleteGroups  OffsetDelete, consumers  OffsetDelete, others
    EMPTY:                (NONE,          NONE,                    NONE),
    PREPARING_REBALANCE:  (NON_EMPTY,     NONE,                    NON_EMPTY),
    COMPLETING_REBALANCE: (NON_EMPTY,     NONE,                    NON_EMPTY),
    STABLE:               (NON_EMPTY,     NONE,                    NON_EMPTY),
}

COMMITTED = 7
FETCHED = {               # fetched   while a transaction is open, stable
    EMPTY:                (COMMITTED, UNSTABLE),
    PREPARING_REBALANCE:  (COMMITTED, UNSTABLE),
    COMPLETING_REBALANCE: (COMMITTED, UNSTABLE),
    STABLE:               (COMMITTED, UNSTABLE),
}

DESCRIBED = {             # protocol  metadata  assignments
    EMPTY:                ("",        [],       []),
    PREPARING_REBALANCE:  ("",        [b"", b""], [b"0", b"1"]),
    COMPLETING_REBALANCE: ("",        [b"", b""], [b"", b""]),
    STABLE:               ("range",   [b"", b""], [b"0", b"1"]),
}
# fmt: on


def test_every_state_is_decided() -> None:
    assert set(ADMIN) == set(FETCHED) == set(DESCRIBED) == set(ClassicGroupState)


@pytest.mark.parametrize("state", ClassicGroupState)
def test_delete_groups(state: ClassicGroupState) -> None:
    coordinator = in_state(state).coordinator
    answer = coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=["group", "none"]), version=3)
    frame = response_encoder(ApiKey.DELETE_GROUPS, 3)(1, answer.response)
    read = response_reader(ApiKey.DELETE_GROUPS, 3)(frame, 9)
    # A message is for errors that have no code of their own.
    assert [(found.group_id, found.error_code, found.error_message) for found in read.results] == [
        ("group", ADMIN[state][0], None),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND, None),
    ]
    assert ("group" in coordinator.listed()) == (state is not EMPTY)


def offset_delete(coordinator: Coordinator, group: str = "group", topic: str = "orders") -> ErrorCode:
    partitions = [m.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [m.OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    answer = coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id=group, topics=topics))
    return answer.code


@pytest.mark.parametrize("column", [1, 2])
@pytest.mark.parametrize("state", ClassicGroupState)
def test_offset_delete(state: ClassicGroupState, column: int) -> None:
    situation = in_state(state, protocol_type="consumer" if column == 1 else "connect")
    assert offset_delete(situation.coordinator) is ADMIN[state][column]


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("state", ClassicGroupState)
def test_offset_fetch(state: ClassicGroupState, column: int) -> None:
    """The member fields of version 9 concern other kinds of groups."""
    coordinator = in_state(state, offset=COMMITTED).coordinator
    if column == 1:
        coordinator.shard.replay(coordinator.end, 9, 0, OffsetCommit("group", "orders", 0, 8, -1, "", 0))
    topics = [m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    for member_id, epoch in ((None, -1), ("stranger", 99)):
        group = m.OffsetFetchRequestGroup(group_id="group", member_id=member_id, member_epoch=epoch, topics=topics)
        request = m.OffsetFetchRequest(groups=[group], require_stable=column == 1)
        (found,) = coordinator.ask("offset_fetch", request).groups
        (partition,) = found.topics[0].partitions
        assert found.error_code == NONE
        assert (ErrorCode(partition.error_code) or partition.committed_offset) == FETCHED[state][column]


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
