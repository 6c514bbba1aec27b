"""A classic group of two in each of its states, for tables that say what it answers there."""

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.states import ClassicGroupState
from kohort.group.configs import GroupConfig
from tests.group.harness import Coordinator


class Situation(msgspec.Struct):
    """
    A coordinator with the group "group".

    Attributes:
        leader, follower: member ids. In EMPTY they have left, in PREPARING_REBALANCE the leader waits in JoinGroup.
    """

    coordinator: Coordinator
    leader: str
    follower: str

    @property
    def group(self) -> ClassicGroup:
        return self.coordinator.groups["group"]

    @property
    def generation(self) -> int:
        return self.group.generation


def in_state(state: ClassicGroupState, *, protocol_type: str = "consumer") -> Situation:
    coordinator = Coordinator(GroupConfig())
    make = coordinator.completing if state is ClassicGroupState.COMPLETING_REBALANCE else coordinator.stable
    leader, follower = make(2) if protocol_type == "consumer" else _of_type(coordinator, protocol_type)
    situation = Situation(coordinator, leader, follower)
    if state is ClassicGroupState.EMPTY:
        coordinator.leave((leader, None), (follower, None))
    elif state is ClassicGroupState.PREPARING_REBALANCE:
        assert coordinator.join(leader, protocol_type=protocol_type).is_parked
    elif state is ClassicGroupState.DEAD:
        situation.group.move_to(state, coordinator.now_ms)
    assert situation.group.state is state
    return situation


def _of_type(coordinator: Coordinator, protocol_type: str) -> list[str]:
    ids = [coordinator.new_member_id(protocol_type=protocol_type) for _ in range(2)]
    answers = [coordinator.join(id_, protocol_type=protocol_type) for id_ in ids]
    coordinator.wait_initial_delay()
    for index, id_ in enumerate(ids):
        assignments = dict.fromkeys(ids, b"") if not index else {}
        coordinator.sync(id_, answers[0].generation_id, assignments, protocol_type=protocol_type)
    return ids
