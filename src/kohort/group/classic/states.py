"""
The states of a classic group, and where each may go: the table is the program.

    EMPTY ──────────────▶ PREPARING_REBALANCE ──────▶ COMPLETING_REBALANCE ──────▶ STABLE
      ▲      a join          │  ▲      ▲    everyone (left) has      the leader's     │
      └──────────────────────┘  │      │    joined                   assignment is    │
        everyone has left       │      └──────────────┘              written          │
                                └─────────────────────────────────────────────────────┘
                                  a member joins, leaves, lapses or changes its mind

DEAD is where a group goes when this node stops leading it; deleting a group removes the object instead.

Source: Kafka ClassicGroupState.
"""

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """Values are the names that clients see in ListGroups and DescribeGroups."""

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
    """Whether a rebalance can be started from here."""
    return PREPARING_REBALANCE in TRANSITIONS[state]
