"""The verdict on the deliveries of a queue. It knows no client, so events may come from any worker."""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

READ: Final = "read"
ACCEPTED: Final = "accepted"
RELEASED: Final = "released"
REJECTED: Final = "rejected"
REFUSED: Final = "refused"
"""Of an acknowledgement that was answered with an error, or not at all."""
EXAMPLES_MAX: Final = 10


class Delivery(NamedTuple):
    """
    A record as a worker got it.

    Attributes:
        deliveries: the delivery count that the broker told.
    """

    partition: int
    offset: int
    deliveries: int


class Event(NamedTuple):
    """
    What a worker saw.

    Attributes:
        kind: `READ`, or what became of an acknowledgement.
        since: seconds; the broker was asked after it.
        at: seconds; the broker had answered before it.
    """

    kind: str
    since: float
    at: float
    deliveries: Sequence[Delivery]

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, line: str) -> Self:
        kind, since, at, deliveries = json.loads(line)
        return cls(kind, since, at, [Delivery(*each) for each in deliveries])


class Fact(NamedTuple):
    """What an event says of one record."""

    kind: str
    since: float
    at: float
    deliveries: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        lost: records that no worker got.
        repeated: records that were delivered after an acknowledgement that ends them was confirmed, or confirmed twice.
        fallen: deliveries whose count is not above that of an earlier one, without a kill of the broker between them; and those
            whose count is not above the one of a confirmed release, whatever was killed.
        unanswered: records without a confirmed acknowledgement. A worker or the broker died between the write and the answer,
            or their deliveries came to the limit.
        examples: a sentence for each of the first defects.
    """

    records: int
    deliveries: int
    confirmed: int
    lost: int
    repeated: int
    fallen: int
    unanswered: int
    examples: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.repeated or self.fallen)

    def __str__(self) -> str:
        return (
            f"{self.records:,} records, {self.deliveries:,} deliveries, {self.confirmed:,} confirmed ends, {self.unanswered:,} "
            f"ended without a confirmation: {self.lost:,} lost, {self.repeated:,} repeated, {self.fallen:,} counts fallen"
        )


def judge(ends: Mapping[int, int], events: Iterable[Event], kills: Sequence[float] | None) -> Verdict:
    """
    Examine what workers saw.

    Args:
        ends: the end of each partition, whose records begin at 0.
        kills: the instants when the broker was killed, in order; None if partitions may get other leaders at any time.
    """
    facts: dict[tuple[int, int], list[Fact]] = defaultdict(list)
    for event in events:
        for each in event.deliveries:
            facts[each.partition, each.offset].append(Fact(event.kind, event.since, event.at, each.deliveries))
    lost = repeated = fallen = confirmed = read = 0
    examples: list[str] = []
    records = [(partition, offset) for partition, end in ends.items() for offset in range(end)]
    for where in records:
        those = sorted(facts[where], key=lambda fact: fact.at)
        deliveries = [fact for fact in those if fact.kind == READ]
        ended = [fact for fact in those if fact.kind in (ACCEPTED, REJECTED)]
        read += len(deliveries)
        confirmed += bool(ended)
        if not deliveries:
            lost += 1
            examples.append(f"lost: {where}")
        if len(ended) > 1 or any(fact.since > ended[0].at for fact in deliveries if ended):
            repeated += 1
            examples.append(f"repeated: {where}: {those}")
        if falls := _falls(those, deliveries, kills):
            fallen += falls
            examples.append(f"count fallen: {where}: {those}")
    return Verdict(
        records=len(records),
        deliveries=read,
        confirmed=confirmed,
        lost=lost,
        repeated=repeated,
        fallen=fallen,
        unanswered=len(records) - confirmed,
        examples=tuple(examples[:EXAMPLES_MAX]),
    )


def _falls(facts: Sequence[Fact], deliveries: Sequence[Fact], kills: Sequence[float] | None) -> int:
    """The number of deliveries of a record whose count should be higher."""
    releases = [fact for fact in facts if fact.kind == RELEASED]
    falls = 0
    for number, delivery in enumerate(deliveries):
        earlier = [
            fact
            for fact in deliveries[:number]
            if kills is not None and fact.at < delivery.since and not _is_one_between(kills, fact.since, delivery.at)
        ]
        earlier += [fact for fact in releases if fact.at < delivery.since]
        falls += any(fact.deliveries >= delivery.deliveries for fact in earlier)
    return falls


def _is_one_between(instants: Sequence[float], first: float, last: float) -> bool:
    found = bisect_left(instants, first)
    return found < len(instants) and instants[found] <= last
