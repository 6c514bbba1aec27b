"""Between two events only some instants are looked at: looking at every millisecond tells the same history."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kohort.pipeline.tables.burrow.evaluator import Rules
from kohort.pipeline.tables.burrow.history import BurrowHistory

Event = dict[str, Any]


class LooksAlways(BurrowHistory):
    """Time is looked at millisecond by millisecond."""

    def _evaluate_until(self, next_ms: int) -> Iterator[Event]:
        assert self._at_ms is not None
        for at_ms in range(self._at_ms, next_ms):
            yield from self._emit(at_ms, *self._evaluated(at_ms))


def told(history: BurrowHistory, events: list[Event]) -> list[Event]:
    return [*(row for event in events for row in history.replay(event)), *history.finish()]


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """What is produced and committed, deletions among it, at times that are often the same; some commits count late."""
    found: list[Event] = []
    at_ms = end = 0
    count = draw(st.integers(1, 9))
    orders = draw(st.permutations(range(count))) if draw(st.booleans()) else range(count)
    for order in orders:
        at_ms += draw(st.sampled_from((0, 0, 1, 3, 10, 25)))
        event: Event = {"timestamp_ms": at_ms, "committed": None, "end_offset": end, "behind": None, "order": order}
        match draw(st.sampled_from(("produced", "committed", "committed", "deleted"))):
            case "produced":
                end += draw(st.integers(1, 5))
                event["end_offset"] = end
            case "committed":
                offset = draw(st.integers(0, end))
                event |= {"committed": {"offset": offset}, "behind": end - offset}
            case _:
                event["committed"] = {"offset": None}
        found.append(event)
    return found


SETTINGS = st.builds(
    Rules,
    intervals=st.sampled_from((1, 2, 3, 10)),
    allowed_lag=st.sampled_from((0, 2)),
    refresh_ms=st.sampled_from((5, 10)),
    expire_ms=st.sampled_from((20, 60, 1_000_000)),
)


@given(events(), SETTINGS, st.sampled_from((0, 20, 100)))
def test_no_instant_is_missed(told_events: list[Event], rules: Rules, later_ms: int) -> None:
    until_ms = told_events[-1]["timestamp_ms"] + later_ms
    quick, slow = (kind("g", "t", 0, rules=rules, until_ms=until_ms) for kind in (BurrowHistory, LooksAlways))
    assert told(quick, told_events) == told(slow, told_events)


def story(*rows: tuple[int, int | None, int], lives: tuple[int, ...] = ()) -> list[Event]:
    """Events at milliseconds: a commit of an offset, or (None) records produced up to an end offset; all in one incarnation."""
    return [
        {"timestamp_ms": at_ms, "committed": None if offset is None else {"offset": offset}, "end_offset": end}
        | {"behind": None if offset is None else max(end - offset, 0), "order": order}
        | {"log_life": (lives or (0,) * len(rows))[order]}
        for order, (at_ms, offset, end) in enumerate(rows)
    ]


def test_the_ring_keeps_the_end_of_one_refresh_before_its_span() -> None:
    """At 25 ms the ends of 10 and 20 ms are stored: the group had reached the first. At 30 ms it is no longer stored."""
    events = story((0, None, 10), (5, 10, 10), (6, 10, 10), (15, None, 50), (25, None, 60))
    rules = Rules(intervals=2, refresh_ms=10)
    found = told(BurrowHistory("g", "t", 0, rules=rules, until_ms=40), events)
    assert [(row["since_ms"], row["status"]) for row in found] == [(5, "OK"), (30, "STOP")]


def test_a_log_that_begins_again_has_the_end_of_its_newest_incarnation() -> None:
    """Its end may be smaller than before; a batch of an older incarnation that is dated later does not move it."""
    rows = ((0, None, 50), (10, None, 20), (12, 15, 20), (20, None, 90), (30, None, 15))
    found = told(BurrowHistory("g", "t", 0, rules=Rules(), until_ms=30), story(*rows, lives=(0, 1, 1, 0, 1)))
    assert {row["lag_max"] for row in found} == {5}


def test_a_window_that_gets_shorter_is_silent_earlier() -> None:
    """The commit at 25 ms has expired: the window that is left has lasted 0 ms, and 1 ms later that is silence."""
    events = story((25, 0, 0), (50, 0, 0), (75, None, 7), (125, 1, 7))
    rules = Rules(intervals=3, refresh_ms=5, expire_ms=60)
    found = told(BurrowHistory("g", "t", 0, rules=rules, until_ms=140), events)
    assert [(row["since_ms"], row["status"]) for row in found][-2:] == [(125, "STALL"), (126, "STOP")]
