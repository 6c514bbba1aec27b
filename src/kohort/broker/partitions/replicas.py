"""
The replicas of one partition: leader, leader epoch, in-sync and eligible replicas, and the transitions between such states.

A state is a value; every transition returns a new one. `change` is the only function that elects a leader. Replicas of virtual
brokers share one log, so a replica whose broker runs is always caught up.

Source: KIP-455, KIP-966; Kafka PartitionRegistration, PartitionChangeBuilder, PartitionReassignmentReplicas.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

NO_LEADER: Final = -1

Ids: TypeAlias = tuple[int, ...]
IsActive: TypeAlias = Callable[[int], bool]
"""Whether a broker runs: only such brokers lead."""


class Election(Enum):
    """Source: Kafka PartitionChangeBuilder.Election."""

    ONLINE = "keep the leader, or take one of the in-sync replicas"
    PREFERRED = "the first replica if it is in sync"
    UNCLEAN = "any replica whose broker runs, if none is in sync"


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """
    The replicas of a partition, and who leads it.

    Attributes:
        replicas: broker ids; the first one is the preferred leader. During a reassignment they include `removing`.
        isr: the in-sync replicas.
        leader: `NO_LEADER` if there is none.
        leader_epoch: rises with each election.
        elr: eligible leader replicas: not in the ISR, but known to have everything below the high watermark.
        last_known_leader: of a partition whose ISR is empty; else `NO_LEADER`.
        adding, removing: the replicas that a reassignment in progress adds and removes.
    """

    replicas: Ids
    isr: Ids
    leader: int
    leader_epoch: int = 0
    elr: Ids = ()
    last_known_leader: int = NO_LEADER
    adding: Ids = ()
    removing: Ids = ()

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)


def first_state(replicas: Sequence[int], is_active: IsActive) -> PartitionState:
    """The state of a new partition; its first active replica leads. Source: ReplicationControlManager.createTopic."""
    isr = tuple(filter(is_active, replicas))
    return PartitionState(tuple(replicas), isr, isr[0] if isr else NO_LEADER)


def change(
    state: PartitionState,
    is_active: IsActive,
    *,
    min_isr: int,
    isr: Ids | None = None,
    replicas: Ids | None = None,
    adding: Ids | None = None,
    removing: Ids | None = None,
    election: Election = Election.ONLINE,
) -> PartitionState:
    """
    Apply a change of the ISR or of the replicas, complete a reassignment that can be completed, and elect a leader.

    Args:
        min_isr: `min.insync.replicas` of the topic.
        isr, replicas, adding, removing: None to leave it as it is.

    Returns:
        The new state; the same object if nothing changes.

    Source: PartitionChangeBuilder.build.
    """
    target = msgspec.structs.replace(
        state,
        isr=state.isr if isr is None else isr,
        replicas=state.replicas if replicas is None else replicas,
        adding=state.adding if adding is None else adding,
        removing=state.removing if removing is None else removing,
    )
    target = _complete_reassignment(target)
    target = _populate_elr(state, target, min(min_isr, len(target.replicas)))
    target = _elect(state, target, is_active, election)
    has_lost_replica = not set(state.replicas) <= set(target.replicas)
    if target.leader != state.leader or has_lost_replica:
        target = msgspec.structs.replace(target, leader_epoch=state.leader_epoch + 1)
    if not target.isr and state.isr:
        target = msgspec.structs.replace(target, last_known_leader=state.leader)
    elif target.leader != NO_LEADER:
        target = msgspec.structs.replace(target, last_known_leader=NO_LEADER)
    return state if target == state else target


def _complete_reassignment(target: PartitionState) -> PartitionState:
    """Source: PartitionReassignmentReplicas.maybeCompleteReassignment."""
    if not target.is_reassigned:
        return target
    isr = tuple(replica for replica in target.isr if replica not in target.removing)
    replicas = tuple(replica for replica in target.replicas if replica not in target.removing)
    if not isr or not replicas or not set(replicas) <= set(isr):
        return target
    return msgspec.structs.replace(target, isr=isr, replicas=replicas, adding=(), removing=())


def _populate_elr(state: PartitionState, target: PartitionState, min_isr: int) -> PartitionState:
    """Keep replicas that leave an ISR below `min_isr` eligible. Source: PartitionChangeBuilder.maybePopulateTargetElr."""
    if len(target.isr) >= min_isr:
        return msgspec.structs.replace(target, elr=())
    candidates = dict.fromkeys((*target.elr, *state.isr))
    elr = tuple(replica for replica in candidates if replica not in target.isr and replica in target.replicas)
    return msgspec.structs.replace(target, elr=elr)


def _elect(state: PartitionState, target: PartitionState, is_active: IsActive, election: Election) -> PartitionState:
    """Source: PartitionChangeBuilder.electLeader, tryElection."""

    def may_lead(replica: int) -> bool:
        is_eligible = replica in target.isr or (not target.isr and replica in target.elr)
        return is_eligible and is_active(replica)

    order = [state.leader, *target.replicas]
    if election is Election.PREFERRED:
        order.insert(0, target.replicas[0])
    leader = next(filter(may_lead, order), NO_LEADER)
    if leader == NO_LEADER and election is Election.UNCLEAN:
        leader = next(filter(is_active, target.replicas), NO_LEADER)
        if leader != NO_LEADER:
            return msgspec.structs.replace(target, leader=leader, isr=(leader,), elr=())
    if leader in target.elr:
        elr = tuple(replica for replica in target.elr if replica != leader)
        return msgspec.structs.replace(target, leader=leader, isr=(leader,), elr=elr)
    return msgspec.structs.replace(target, leader=leader)


def caught_up(state: PartitionState, is_active: IsActive, *, min_isr: int) -> PartitionState:
    """
    The state after brokers have stopped or started: a running leader if there can be one, and the running replicas in the ISR.

    Source: ReplicationControlManager.handleBrokerFenced, handleBrokerUnfenced, Partition.maybeExpandIsr.
    """
    led = change(state, is_active, min_isr=min_isr, isr=tuple(filter(is_active, state.isr)))
    if led.leader == NO_LEADER:
        return led
    joining = tuple(replica for replica in led.replicas if replica not in led.isr and is_active(replica))
    return change(led, is_active, min_isr=min_isr, isr=(*led.isr, *joining)) if joining else led


def adopted(state: PartitionState, broker: int, is_active: IsActive, *, min_isr: int) -> PartitionState:
    """
    The state after a running broker has taken the place of the first replica, and leads. Only where brokers share a store of
    which each has everything.
    """
    others = tuple(replica for replica in state.replicas[1:] if replica != broker)
    isr = (broker, *(replica for replica in others if replica in state.isr and is_active(replica)))
    return change(
        state,
        is_active,
        min_isr=min_isr,
        isr=isr,
        replicas=(broker, *others),
        adding=(),
        removing=(),
        election=Election.PREFERRED,
    )


def led_by(state: PartitionState, broker: int, is_active: IsActive, *, min_isr: int) -> PartitionState:
    """The state after a partition was moved to a broker: one of its replicas, or, if it has one replica, any."""
    if broker not in state.replicas:
        return adopted(state, broker, is_active, min_isr=min_isr)
    others = tuple(replica for replica in state.replicas if replica != broker)
    return change(state, is_active, min_isr=min_isr, replicas=(broker, *others), election=Election.PREFERRED)


def reassigned(state: PartitionState, target: Sequence[int], is_active: IsActive, *, min_isr: int) -> PartitionState:
    """
    Begin to move a partition to other replicas, which completes at once if the brokers of the added ones run.

    A reassignment in progress is replaced: replicas that it has added are kept until the new one is complete.

    Source: ReplicationControlManager.changePartitionReassignment.
    """
    removing = tuple(sorted(set(state.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(state.replicas)))
    kept = (*target, *removing)
    begun = change(
        state,
        is_active,
        min_isr=min_isr,
        isr=tuple(replica for replica in state.isr if replica in kept),
        replicas=kept,
        adding=adding,
        removing=removing,
    )
    return caught_up(begun, is_active, min_isr=min_isr)


def cancelled(state: PartitionState, is_active: IsActive, *, min_isr: int) -> PartitionState:
    """Return to the replicas from before a reassignment. Source: ReplicationControlManager.cancelPartitionReassignment."""
    origin = original_replicas(state)
    isr = tuple(replica for replica in state.isr if replica in origin)
    reverted = change(state, is_active, min_isr=min_isr, isr=isr, replicas=origin, adding=(), removing=())
    return caught_up(reverted, is_active, min_isr=min_isr)


def may_cancel(state: PartitionState) -> bool:
    """Whether an in-sync replica is left if a reassignment is cancelled. Source: PartitionReassignmentRevert.unclean."""
    return any(replica not in state.adding for replica in state.isr)


def original_replicas(state: PartitionState) -> Ids:
    """The replicas without those that a reassignment adds."""
    return tuple(replica for replica in state.replicas if replica not in state.adding)


def assignment_error(replicas: Sequence[int], brokers: Container[int], cordoned: Container[int]) -> str | None:
    """
    Why a partition cannot have these replicas; None if it can.

    Args:
        cordoned: the brokers that get no new partitions.

    Source: ReplicationControlManager.validateManualPartitionAssignment.
    """
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    last = None
    for replica in sorted(replicas):
        if replica not in brokers:
            return f"The manual partition assignment includes broker {replica}, but no such broker is registered."
        if replica == last:
            return f"The manual partition assignment includes the broker {replica} more than once."
        if replica in cordoned:
            return (
                f"The manual partition assignment includes broker {replica}, but all its log directories are cordoned."
            )
        last = replica
    return None


def placed(
    brokers: Sequence[tuple[int, str | None]], count: int, factor: int, first: int, is_active: IsActive
) -> list[Ids]:
    """
    Place the replicas of `count` partitions on brokers in turns, racks alternating. Only running brokers are placed first.

    Args:
        brokers: ids and racks; one at least runs.
        factor: the number of replicas of a partition, at most that of brokers.
        first: the place of the leader of the first partition; leaders of successive partitions are on successive brokers.

    Source: Kafka StripedReplicaPlacer.
    """
    racks: dict[str | None, list[int]] = {}
    for node_id, rack in brokers:
        racks.setdefault(rack, []).append(node_id)
    order = [ids[turn] for turn in range(len(brokers)) for ids in racks.values() if turn < len(ids)]
    active = list(filter(is_active, order))
    fenced_ids = tuple(replica for replica in order if replica not in active)
    size = len(active)
    turns = (tuple(active[(first + index + place) % size] for place in range(size)) for index in range(count))
    return [(*turn, *fenced_ids)[:factor] for turn in turns]
