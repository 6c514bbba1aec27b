"""Threads for tasks that may hang: so many at a time, in order, and none of them holds up the end."""

import threading
from queue import SimpleQueue

import pytest

from kohort.runtime.background import DaemonThreads

SECONDS_MAX = 30


def test_tasks_run_at_the_same_time_up_to_the_bound_and_in_order() -> None:
    threads = DaemonThreads("test", 2)
    begun: SimpleQueue[int] = SimpleQueue()
    may_end = threading.Event()

    def task(number: int) -> None:
        begun.put(number)
        may_end.wait(SECONDS_MAX)

    for number in range(4):
        threads.submit(lambda number=number: task(number))  # type: ignore[misc]
    assert {begun.get(timeout=SECONDS_MAX), begun.get(timeout=SECONDS_MAX)} == {0, 1}
    assert begun.empty()
    may_end.set()
    assert {begun.get(timeout=SECONDS_MAX), begun.get(timeout=SECONDS_MAX)} == {2, 3}
    threads.close()


def test_a_thread_is_used_again_and_a_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads = DaemonThreads("test", 5)
    names: SimpleQueue[str] = SimpleQueue()

    def task() -> None:
        names.put(threading.current_thread().name)
        raise ValueError("no")

    seen = set()
    for _ in range(3):
        threads.submit(task)
        seen.add(names.get(timeout=SECONDS_MAX))
        while not threads._idle:
            pass
    assert len(threads._threads) == len(seen) == 1
    assert [record.message for record in caplog.records] == ["background.failed"] * 3
    threads.close()


def test_who_closes_them_may_wait_for_the_task_that_has_begun() -> None:
    threads = DaemonThreads()
    ended: list[bool] = []
    begun = threading.Event()

    def task() -> None:
        begun.set()
        while not threads._is_closed:
            pass
        # Long after the close has begun.
        for _ in range(100_000):
            pass
        ended.append(True)

    threads.submit(task)
    assert begun.wait(SECONDS_MAX)
    threads.close(waits=True)
    assert ended == [True]


def test_after_its_end_nothing_begins_and_nothing_is_waited_for() -> None:
    threads = DaemonThreads("test", 1)
    begun: SimpleQueue[int] = SimpleQueue()
    may_end = threading.Event()

    def hang() -> None:
        begun.put(1)
        may_end.wait(SECONDS_MAX)

    threads.submit(hang)
    threads.submit(lambda: begun.put(2))
    assert begun.get(timeout=SECONDS_MAX) == 1
    threads.close()
    threads.submit(lambda: begun.put(3))
    (thread,) = threads._threads
    assert thread.daemon
    may_end.set()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()
    assert begun.empty()
