"""
The states of a consumer group and of its members.

Source: KIP-848, Kafka ConsumerGroup.ConsumerGroupState, MemberState.
"""

from enum import Enum
from typing import Final


class ConsumerGroupState(Enum):
    """
    EMPTY: there are no members.
    ASSIGNING: the group epoch is above the epoch of the target assignment.
    RECONCILING: a member is not at its target assignment.
    STABLE: every member is at its target assignment.
    DEAD: shown for a group that does not exist.
    """

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


# The state of a member, as its record has it.
STABLE: Final = 0
"""The member is at the epoch of its assignment."""
UNREVOKED_PARTITIONS: Final = 1
"""The member has to revoke partitions before it goes on to its target."""
UNRELEASED_PARTITIONS: Final = 2
"""The member waits for partitions that other members have not released."""
UNKNOWN: Final = 127
"""The log has a state of a newer version: the member has to give up its partitions first."""

KNOWN_STATES: Final = frozenset((STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS))

# Member epochs with a meaning of their own, in requests.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member is away for a while; its partitions stay its own until its session ends."""
