"""
The states of a classic group and their transitions.

    EMPTY ──────────────▶ PREPARING_REBALANCE ──────▶ COMPLETING_REBALANCE ──────▶ STABLE
      ▲      a join          │  ▲      ▲    all members have         the leader's     │
      └──────────────────────┘  │      │    joined                   assignment is    │
        all members have left   │      └──────────────┘              written          │
                                └─────────────────────────────────────────────────────┘
                                  a member joins, leaves, expires or changes its metadata

Deleting a group removes the object.

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


EMPTY: Final = ClassicGroupState.EMPTY
PREPARING_REBALANCE: Final = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = ClassicGroupState.COMPLETING_REBALANCE
STABLE: Final = ClassicGroupState.STABLE
DEAD_NAME: Final = "Dead"
"""The state that DescribeGroups shows of a group that does not exist; in Kafka also that of a group during an unload."""

# fmt: off
TRANSITIONS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    EMPTY:                frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE:  frozenset({COMPLETING_REBALANCE, EMPTY}),
    COMPLETING_REBALANCE: frozenset({STABLE, PREPARING_REBALANCE}),
    STABLE:               frozenset({PREPARING_REBALANCE}),
}
# fmt: on


def can_rebalance(state: ClassicGroupState) -> bool:
    """Whether a rebalance can start in this state."""
    return state is not PREPARING_REBALANCE
