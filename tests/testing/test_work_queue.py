"""The verdict on the deliveries of a queue: each kind of defect is found and counted, and what a kill excuses is none."""

from collections.abc import Sequence

import pytest

from kohort_lab.work_queue import Event, judge
from kohort_lab.work_queue.verdict import ACCEPTED, READ, REFUSED, REJECTED, RELEASED, Delivery


def event(kind: str, since: float, deliveries: int = 1) -> Event:
    """Of the only record, begun at an instant, and answered half a second later."""
    return Event(kind, since, since + 0.5, [Delivery(0, 0, deliveries)])


RIGHT = {
    "once": [event(READ, 1), event(ACCEPTED, 2)],
    "rejected": [event(READ, 1), event(REJECTED, 2)],
    "without an answer": [event(READ, 1)],
    "refused": [event(READ, 1), event(REFUSED, 2), event(READ, 3, 2), event(ACCEPTED, 4, 2)],
    "released": [event(READ, 1), event(RELEASED, 2), event(READ, 3, 2), event(ACCEPTED, 4, 2)],
    "forgotten by the killed broker": [event(READ, 1), event(READ, 11), event(ACCEPTED, 12)],
    "asked for before the end": [event(READ, 1), event(ACCEPTED, 2), event(READ, 2.4, 2)],
    "at the same time": [event(READ, 1), event(READ, 1.4), event(ACCEPTED, 3)],
}
"""Events by name; the broker is killed at the instant 10."""

WRONG = {
    "never": ([], (1, 0, 0)),
    "only acknowledged": ([event(ACCEPTED, 1)], (1, 0, 0)),
    "again after its end": ([event(READ, 1), event(ACCEPTED, 2), event(READ, 3, 2)], (0, 1, 0)),
    "again after its rejection": ([event(READ, 1), event(REJECTED, 2), event(READ, 3, 2)], (0, 1, 0)),
    "ended twice": ([event(READ, 1), event(ACCEPTED, 2), event(REJECTED, 2.1)], (0, 1, 0)),
    "the same count": ([event(READ, 1), event(READ, 2)], (0, 0, 1)),
    "a lower count": ([event(READ, 1, 3), event(READ, 2, 4), event(READ, 3, 3)], (0, 0, 1)),
    "a released count forgotten": ([event(READ, 1), event(RELEASED, 2), event(READ, 11)], (0, 0, 1)),
    "after the kill": ([event(READ, 10.1), event(READ, 11)], (0, 0, 1)),
    "before the kill": ([event(READ, 1), event(READ, 9)], (0, 0, 1)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_happen(name: str) -> None:
    verdict = judge({0: 1}, RIGHT[name], [10])
    assert verdict.is_right, verdict
    assert verdict.examples == ()


@pytest.mark.parametrize("name", WRONG)
def test_each_defect_is_counted(name: str) -> None:
    events, counts = WRONG[name]
    verdict = judge({0: 1}, events, [10])
    assert (verdict.lost, verdict.repeated, verdict.fallen) == counts
    assert not verdict.is_right
    assert verdict.examples


def test_counts_may_fall_at_any_time_if_leaders_move_but_not_after_a_release() -> None:
    fallen = {name: judge({0: 1}, events, None).fallen for name, (events, _) in WRONG.items()}
    assert [name for name, count in fallen.items() if count] == ["a released count forgotten"]


def test_events_are_lines_and_records_are_counted() -> None:
    records = [Delivery(0, 0, 1), Delivery(1, 0, 1), Delivery(1, 1, 2)]
    events: Sequence[Event] = [Event(READ, 1.0, 2.0, records), Event(ACCEPTED, 2.0, 3.0, records[:2])]
    verdict = judge({0: 1, 1: 2}, [Event.from_json(each.to_json()) for each in events], [])
    assert (verdict.records, verdict.deliveries, verdict.confirmed, verdict.unanswered) == (3, 3, 2, 1)
    assert verdict.is_right
