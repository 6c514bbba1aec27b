"""
The states of a record of a share partition, and what moves a record from one to another.

Source: KIP-932, KIP-1191; Kafka RecordState, AcknowledgeType, InFlightState.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
"""A dead letter of the record is being written."""
ARCHIVED: Final = 4

PENDING: Final = 8
"""Added to a state while it is being written: nobody can acquire the record, and a failed write takes the state back."""

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

THROTTLED_LIMIT_MIN: Final = 2


class ShareSettings(NamedTuple):
    """
    The configuration of a share group, read at each use.

    Attributes:
        lock_ms: share.record.lock.duration.ms.
        delivery_limit: share.delivery.count.limit.
        locks_max: share.partition.max.record.locks.
        can_renew: share.renew.acknowledge.enable.
        has_dead_letters: whether rejected and exhausted records become dead letters.
        is_committed: whether share.isolation.level is read_committed.
    """

    lock_ms: int = 30_000
    delivery_limit: int = 5
    locks_max: int = 2000
    can_renew: bool = True
    has_dead_letters: bool = False
    is_committed: bool = False


def is_terminal(state: int) -> bool:
    """Whether a record is not delivered again, and this is written."""
    return state in (ACKNOWLEDGED, ARCHIVED)


def state_after(acknowledgement: int, count: int, settings: ShareSettings) -> int:
    """The state of an acquired record after an acknowledgement other than RENEW."""
    if acknowledgement == ACCEPT:
        return ACKNOWLEDGED
    if acknowledgement == GAP:
        return ARCHIVED
    if acknowledgement == RELEASE and count < settings.delivery_limit:
        return AVAILABLE
    return ARCHIVING if settings.has_dead_letters else ARCHIVED


def throttled_from(settings: ShareSettings) -> int:
    """The delivery count from which on the records of a batch are delivered a few at a time."""
    return max(THROTTLED_LIMIT_MIN, (settings.delivery_limit + 1) // 2)
