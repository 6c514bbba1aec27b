"""
The states of a transactional id and their transitions.

    EMPTY ─────▶ ONGOING ─────▶ PREPARE_COMMIT ─────▶ COMPLETE_COMMIT ───┐
      ▲  a partition   EndTxn                 all markers                │
      │  is added    │                        are written                │
      │              └────────▶ PREPARE_ABORT ──────▶ COMPLETE_ABORT ────┤
      │                EndTxn, timeout,                                  │
      │                a fencing InitProducerId                          │
      └──────────────────────────────────────────────────────────────────┘
        InitProducerId; AddPartitionsToTxn leads to ONGOING instead

In transaction version 2 EndTxn may abort without an ongoing transaction: that leads to PREPARE_ABORT from EMPTY and from both
complete states.

Kafka has two more states, Dead and PrepareEpochFence, for transitions whose record is being written. The runtime runs one
operation after the other on the newest state, so no operation sees such a transition.

Source: Kafka TransactionState.
"""

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The values are those of the field TransactionStatus in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def wire_name(self) -> str:
        """The name in ListTransactions and DescribeTransactions."""
        return WIRE_NAMES[self]


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

WIRE_NAMES: Final[dict[TransactionState, str]] = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
}

KNOWN_NAMES: Final = frozenset({*WIRE_NAMES.values(), "Dead", "PrepareEpochFence"})
"""The state filters that ListTransactions knows. No transactional id is ever in the last two states."""

# fmt: off
PREDECESSORS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY:           frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING:         frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT:  frozenset({ONGOING}),
    PREPARE_ABORT:   frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT:  frozenset({PREPARE_ABORT}),
}
# fmt: on


def is_prepared(state: TransactionState) -> bool:
    """Whether the end of the transaction is decided and not all of its markers are known to be written."""
    return state is PREPARE_COMMIT or state is PREPARE_ABORT


def is_complete(state: TransactionState) -> bool:
    return state is COMPLETE_COMMIT or state is COMPLETE_ABORT


def is_unfinished(state: TransactionState) -> bool:
    """Whether partitions may hold an open transaction of the id."""
    return state is ONGOING or is_prepared(state)
