"""Events by key: order, exclusivity, closing."""

import threading
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.runtime.threaded.accumulator import EventAccumulator, RejectedError

WAIT_SECONDS = 120


def first(count: int) -> int:
    return 0


def test_all_events_are_taken_each_once() -> None:
    events: EventAccumulator[str, int] = EventAccumulator()
    for number in range(9):
        events.add("abc"[number % 3], number)
    seen = []
    for left in range(9, 0, -1):
        assert len(events) == left
        taken = events.take(0)
        assert taken is not None
        seen.append(taken[1])
        events.done(taken[0])
    assert sorted(seen) == list(range(9))
    assert events.take(0) is None
    assert len(events) == 0


def test_what_is_added_first_is_taken_first() -> None:
    events: EventAccumulator[str, int] = EventAccumulator(first)
    for number in range(3):
        events.add("a", number, first=True)
    taken = []
    while (event := events.take(0)) is not None:
        taken.append(event[1])
        events.done("a")
    assert taken == [2, 1, 0]


def test_a_key_whose_event_runs_gives_no_other() -> None:
    events: EventAccumulator[str, int] = EventAccumulator()
    events.add("a", 1)
    events.add("a", 2)
    assert events.take(0) == ("a", 1)
    assert events.take(0) is None
    events.add("b", 3)
    events.add("a", 4)
    assert events.take(0) == ("b", 3)
    events.done("a")
    assert events.take(0) == ("a", 2)
    events.done("a")
    assert events.take(0) == ("a", 4)


def test_done_and_close_wake_who_waits() -> None:
    events: EventAccumulator[str, int] = EventAccumulator()
    events.add("a", 1)
    events.add("a", 2)
    assert events.take(0) == ("a", 1)
    taken: list[tuple[str, int] | None] = []

    def wait() -> None:
        taken.append(events.take(WAIT_SECONDS))
        taken.append(events.take(WAIT_SECONDS))

    thread = threading.Thread(target=wait)
    thread.start()
    events.done("a")
    while not taken:
        thread.join(0.001)
    events.close()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert taken == [("a", 2), None]


def test_after_a_close_nothing_is_added_and_the_rest_is_handed_out() -> None:
    events: EventAccumulator[str, int] = EventAccumulator()
    events.add("a", 1)
    events.close()
    events.close()
    with pytest.raises(RejectedError):
        events.add("a", 2)
    assert events.take() == ("a", 1)
    assert events.take() is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "first", "take", "done"]))))
def test_any_course_agrees_with_queues_in_plain_sight(steps: list[tuple[str, str]]) -> None:
    events: EventAccumulator[str, int] = EventAccumulator(first)
    queues: dict[str, list[int]] = defaultdict(list)
    running: dict[str, int] = {}
    for number, (key, step) in enumerate(steps):
        if step in ("add", "first"):
            events.add(key, number, first=step == "first")
            queues[key].insert(0 if step == "first" else len(queues[key]), number)
        elif step == "done" and key in running:
            events.done(key)
            del running[key]
        elif step == "take":
            free = {name for name, queue in queues.items() if queue and name not in running}
            taken = events.take(0)
            assert (taken is None) is (not free)
            if taken is not None:
                assert taken[0] in free
                assert taken[1] == queues[taken[0]].pop(0)
                running[taken[0]] = taken[1]
        assert len(events) == sum(map(len, queues.values()))


def test_closed_keys_give_back_their_events_and_take_no_more() -> None:
    events: EventAccumulator[str, int] = EventAccumulator(first)
    for number, key in enumerate("aabbc"):
        events.add(key, number)
    assert sorted(events.close_keys(["a", "c", "unknown"])) == [0, 1, 4]
    assert len(events) == 2
    for key in ("a", "unknown"):
        with pytest.raises(RejectedError):
            events.add(key, 9)
    assert events.take(0) == ("b", 2)
    assert events.take(0) is None
    events.done("b")
    assert events.take(0) == ("b", 3)


def test_an_event_in_progress_of_a_closed_key_can_be_waited_for() -> None:
    """A thread that waits for an event is woken by the next one although another thread waits for the closed key."""
    events: EventAccumulator[str, int] = EventAccumulator(first)
    events.add("a", 1)
    events.add("a", 2)
    assert events.take(0) == ("a", 1)
    assert events.close_keys(["a"]) == [2]
    taken: list[tuple[str, int] | None] = []
    waiting = threading.Thread(target=lambda: events.wait_until_done(["a"]))
    taking = threading.Thread(target=lambda: taken.append(events.take(WAIT_SECONDS)))
    waiting.start()
    taking.start()
    events.add("b", 3)
    taking.join(WAIT_SECONDS)
    assert taken == [("b", 3)]
    events.done("b")
    assert waiting.is_alive()
    events.done("a")
    waiting.join(WAIT_SECONDS)
    assert not waiting.is_alive()


def test_threads_keep_order_and_exclusivity() -> None:
    """Four writers and four workers on eight keys: a key's events run in order, one at a time, and none is lost."""
    events: EventAccumulator[int, tuple[int, int]] = EventAccumulator()
    writers, workers, keys, count = 4, 4, 8, 500
    running = [threading.Lock() for _ in range(keys)]
    done: list[list[tuple[int, int]]] = [[] for _ in range(keys)]
    overlaps: list[int] = []

    def write(writer: int) -> None:
        for number in range(count):
            events.add(number % keys, (writer, number))

    def work() -> None:
        while (taken := events.take()) is not None:
            key, event = taken
            if not running[key].acquire(blocking=False):
                overlaps.append(key)
            else:
                done[key].append(event)
                running[key].release()
            events.done(key)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    writing = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in (*threads, *writing):
        thread.start()
    for thread in writing:
        thread.join(WAIT_SECONDS)
    events.close()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not overlaps
    assert sum(map(len, done)) == writers * count
    for key in range(keys):
        for writer in range(writers):
            mine = [number for name, number in done[key] if name == writer]
            assert mine == list(range(key, count, keys))
