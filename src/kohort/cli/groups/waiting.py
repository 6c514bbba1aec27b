"""
Which member of a consumer group waits for which other member, as far as ConsumerGroupDescribe shows it.

A member that is given a partition gets it after its owner has revoked it. A partition that its owner was told to revoke is
shown in no assignment, so its owner is one of the members that have not reached the epoch of the target assignment.

Source: KIP-848, Kafka CurrentAssignmentBuilder.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kohort.cli.groups.queries import GroupMember
from kohort.model.ids import TopicPartition

AWAY_EPOCH = -2
"""Epoch of a static member that is away. It keeps its partitions and has none to revoke."""


class Wait(NamedTuple):
    """
    A partition that a member does not have yet.

    Attributes:
        member_id: the waiting member.
        waits_for: the member that has the partition, or the members of which one is revoking it; empty if the partition is free
            and the member gets it with its own next heartbeat.
    """

    member_id: str
    partition: TopicPartition
    waits_for: tuple[str, ...]


def find_waits(members: Sequence[GroupMember], target_epoch: int) -> list[Wait]:
    """
    Return a wait for each partition that a member has in its target and not in its assignment.

    Args:
        target_epoch: the epoch of the target assignment.
    """
    owners = {partition: member.member_id for member in members for partition in member.assignment or ()}
    behind = [member.member_id for member in members if AWAY_EPOCH != (member.epoch or 0) < target_epoch]
    waits = []
    for member in members:
        for partition in sorted(set(member.target or ()).difference(member.assignment or ())):
            owner = owners.get(partition)
            revoking = tuple(each for each in behind if each != member.member_id)
            waits.append(Wait(member.member_id, partition, revoking if owner is None else (owner,)))
    return waits
