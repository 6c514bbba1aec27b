"""What clients have asked and were told, and whether one order of all operations explains it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kohort.model.ids import TopicPartition

UNKNOWN: Final = -1


class NodeGuaranteeError(AssertionError):
    """A guarantee of the cluster was broken."""


@dataclass(slots=True)
class Operation:
    """
    An append of a value, or a read of a partition's whole log.

    Attributes:
        value: the value that is appended, or the last one that was read.
        offset: of the value; UNKNOWN without an answer, and for a read of an empty log.
        answered: None without an answer.
    """

    is_read: bool
    place: TopicPartition
    invoked: float
    value: bytes = b""
    offset: int = UNKNOWN
    answered: float | None = None


class History:
    """The operations of all clients, and the changes of the catalog that were acknowledged."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.changes: list[str] = []
        self.counts: Counter[str] = Counter()

    def begin(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def check(self, logs: dict[TopicPartition, list[bytes]]) -> None:
        """
        Check all operations against what the logs have at the end.

        Raises:
            NodeGuaranteeError: an acknowledged value was lost, doubled or reordered, or a read was answered that an earlier
                acknowledged operation should have changed.
        """
        by_place: dict[TopicPartition, list[Operation]] = {}
        for operation in self.operations:
            by_place.setdefault(operation.place, []).append(operation)
        for place, operations in by_place.items():
            _check_log(place, operations, logs.get(place, []))


def _check_log(place: TopicPartition, operations: list[Operation], log: list[bytes]) -> None:
    doubled = [value for value, count in Counter(log).items() if count > 1]
    _promise(not doubled, f"{place} has doubled {doubled}")
    invoked = {operation.value: operation.invoked for operation in operations if not operation.is_read}
    for operation in operations:
        if operation.answered is None or operation.offset == UNKNOWN:
            continue
        found = log[operation.offset] if operation.offset < len(log) else None
        what = "was read" if operation.is_read else "was acknowledged"
        _promise(
            found == operation.value,
            f"{operation.value!r} {what} at {place}@{operation.offset} at {operation.answered:.3f}, where {found!r} is",
        )
        _promise(
            invoked[operation.value] <= operation.answered,
            f"{operation.value!r} of {place} was answered before it was sent",
        )
    # Whoever asks after an answer sees no less: an append has a higher offset, a read the same or a higher one.
    ends = sorted((each for each in operations if each.answered is not None), key=lambda each: each.answered or 0.0)
    begins = sorted(ends, key=lambda each: each.invoked)
    highest, last, at = UNKNOWN, None, 0
    for operation in begins:
        while at < len(ends) and (ends[at].answered or 0.0) < operation.invoked:
            if ends[at].offset > highest:
                highest, last = ends[at].offset, ends[at]
            at += 1
        is_right = operation.offset >= highest if operation.is_read else operation.offset > highest
        if not is_right and last is not None:
            raise NodeGuaranteeError(
                f"{'a read' if operation.is_read else 'an append'} of {place} from {operation.invoked:.3f} to "
                f"{operation.answered:.3f} has offset {operation.offset}, after offset {highest} was told at "
                f"{last.answered:.3f}"
            )


def _promise(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise NodeGuaranteeError(otherwise)
