"""
The states of a classic group and their transitions.

    EMPTY ──────────────▶ PREPARING_REBALANCE ──────▶ COMPLETING_REBALANCE ──────▶ STABLE
      ▲      a join          │  ▲      ▲    all members have         the leader's     │
      └──────────────────────┘  │      │    joined                   assignment is    │
        all members have left   │      └──────────────┘              written          │
                                └─────────────────────────────────────────────────────┘
                                  a member joins, leaves, expires or changes its metadata

A group is DEAD when this node stops coordinating it. Deleting a group removes the object instead.

Source: Kafka ClassicGroupState.
"""

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """The values are the names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY: Final = ClassicGroupState.EMPTY
PREPARING_REBALANCE: Final = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = ClassicGroupState.COMPLETING_REBALANCE
STABLE: Final = ClassicGroupState.STABLE
DEAD: Final = ClassicGroupState.DEAD

# fmt: off
TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    EMPTY:                frozenset({PREPARING_REBALANCE, DEAD}),
    PREPARING_REBALANCE:  frozenset({COMPLETING_REBALANCE, EMPTY, DEAD}),
    COMPLETING_REBALANCE: frozenset({STABLE, PREPARING_REBALANCE, DEAD}),
    STABLE:               frozenset({PREPARING_REBALANCE, DEAD}),
    DEAD:                 frozenset({DEAD}),
}
# fmt: on


def can_rebalance(state: ClassicGroupState) -> bool:
    """Whether a rebalance can start in this state."""
    return PREPARING_REBALANCE in TRANSITIONS[state]
