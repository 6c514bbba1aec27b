"""The queue of replies that wait for the high watermark."""

from typing import Any

import pytest

from kohort.runtime.append.deferred import DeferredEvent, DeferredQueue
from kohort.runtime.serial_execution import Answer


def event(deadline_ms: int = 0, name: str = "reply", replies: list[Any] | None = None) -> DeferredEvent:
    reply = (replies if replies is not None else []).append
    return DeferredEvent(name, reply, str, deadline_ms)


def test_a_deadline_has_passed_when_it_is_reached() -> None:
    """The timer fires in the millisecond of the deadline. An event that it does not take would never be answered."""
    queue, first, second = DeferredQueue(), event(100), event(101)
    queue.add(5, [first], 7)
    queue.add(6, [second], 8)
    assert queue.next_deadline_ms == 100
    assert list(queue.expired(99)) == []
    assert list(queue.expired(100)) == [(first, 7)]
    assert list(queue.expired(101)) == [(first, 7), (second, 8)]


def test_an_expired_event_is_answered_once_and_stays_in_the_queue() -> None:
    replies: list[Any] = []
    queue, late = DeferredQueue(), event(100, "response", replies)
    queue.add(5, [late], 0)
    ((_, answer),) = late.expire(TimeoutError("late"))
    assert answer == "late"
    assert late.expire(TimeoutError("again")) == []
    assert list(queue.expired(1_000)) == []
    assert queue.next_deadline_ms is None
    assert len(queue) == 1
    batch = queue.take_up_to(5)
    assert batch is not None
    outbox: list[Answer] = []
    for each in batch.events:
        each.complete(None, outbox)
    assert not outbox


def test_events_are_taken_up_to_the_high_watermark_in_order() -> None:
    queue, events = DeferredQueue(), [event(), event(), event(), event()]
    for offset, each in zip((3, 5, 5, 9), events, strict=True):
        queue.add(offset, [each], offset)
    assert queue.take_up_to(2) is None
    assert [batch.events for batch in iter(lambda: queue.take_up_to(5), None)] == [events[:1], events[1:3]]
    assert len(queue) == 1
    assert list(queue.take_all()) == events[3:]
    assert len(queue) == 0


def test_events_of_one_offset_and_one_time_are_one_batch() -> None:
    queue, events = DeferredQueue(), [event(), event(), event()]
    queue.add(5, events[:1], 1)
    queue.add(5, events[1:2], 1)
    queue.add(5, events[2:], 2)
    assert [(batch.since_ms, len(batch.events)) for batch in iter(lambda: queue.take_up_to(5), None)] == [
        (1, 2),
        (2, 1),
    ]


def test_an_offset_below_the_newest_is_refused() -> None:
    queue = DeferredQueue()
    queue.add(5, [event()], 0)
    with pytest.raises(ValueError, match=r"4.*5"):
        queue.add(4, [event()], 0)
