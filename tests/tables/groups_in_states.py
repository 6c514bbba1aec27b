"""A classic group of two in each of its states, for tables of what the group answers there."""

from collections.abc import Sequence

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.states import ClassicGroupState
from kohort.group.configs import GroupConfig
from tests.group.harness import Coordinator

INSTANCES = ("leader", "follower")


class Situation(msgspec.Struct):
    """
    A coordinator with the group "group".

    Attributes:
        leader, follower: member ids. In EMPTY both have left, in PREPARING_REBALANCE the leader waits in JoinGroup.
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

    def pending_id(self) -> str:
        """A member id that was assigned and is not used."""
        return self.coordinator.new_member_id(protocol_type=self.group.protocol_type)


def in_state(
    state: ClassicGroupState, *, protocol_type: str = "consumer", is_static: bool = False, offset: int | None = None
) -> Situation:
    """The group in a state; with an offset of partition 0 of orders, if one is given."""
    coordinator = Coordinator(GroupConfig())
    if offset is not None:
        coordinator.commit({("orders", 0): offset})
    instances: Sequence[str | None] = INSTANCES if is_static else (None, None)
    leader, follower = coordinator.completing(2, instances=instances, protocol_type=protocol_type)
    situation = Situation(coordinator, leader, follower)
    if state is not ClassicGroupState.COMPLETING_REBALANCE:
        for member, assignments in ((leader, {leader: b"0", follower: b"1"}), (follower, {})):
            coordinator.sync(member, situation.generation, assignments, protocol_type=protocol_type)
    if state is ClassicGroupState.EMPTY:
        coordinator.leave((leader, None), (follower, None))
    elif state is ClassicGroupState.PREPARING_REBALANCE:
        instance = instances[0]
        protocols = (("range", b"new"),) if is_static else (("range", b""),)
        answer = coordinator.join(leader, instance=instance, protocols=protocols, protocol_type=protocol_type)
        assert answer.is_parked
    assert situation.group.state is state
    return situation
