"""Many files are flushed by as many threads as the disk is slow: each once, none after a failure, which is raised."""

import threading
from collections.abc import Callable

import pytest

from kohort.storage.durability.parallel import THREADS_MAX, TRIED, for_each


class Disk:
    """A disk whose calls take a time; notes which thread has made them."""

    def __init__(self, call_ms: int) -> None:
        self.items: list[int] = []
        self.threads: set[str] = set()
        self._call_ms = call_ms
        self._now_ms = 0

    def now(self) -> float:
        return self._now_ms / 1000

    def call(self, item: int) -> None:
        self._now_ms += self._call_ms
        self.items.append(item)
        self.threads.add(threading.current_thread().name)


@pytest.mark.parametrize("call_ms", [0, 1, 5, 100])
@pytest.mark.parametrize("count", [0, 1, TRIED, TRIED + 1, 1000])
def test_each_is_done_once(count: int, call_ms: int) -> None:
    disk = Disk(call_ms)
    for_each(range(count), disk.call, now=disk.now)
    assert sorted(disk.items) == list(range(count))
    assert disk.items[:TRIED] == list(range(min(count, TRIED))), "the first ones are done in order"


@pytest.mark.parametrize("call_ms", [0, 1])
def test_a_quick_disk_is_left_to_one_thread(call_ms: int) -> None:
    disk = Disk(call_ms)
    for_each(range(1000), disk.call, now=disk.now)
    assert disk.items == list(range(1000))
    assert disk.threads == {threading.current_thread().name}


@pytest.mark.parametrize(
    ("call_ms", "is_alone", "threads"),
    [(2, False, 2), (5, False, 5), (16, False, THREADS_MAX), (100, False, THREADS_MAX), (0, True, THREADS_MAX)],
)
def test_a_slow_disk_has_a_thread_for_each_millisecond_of_a_call(call_ms: int, is_alone: bool, threads: int) -> None:
    """Each call waits until so many others have begun."""
    disk = Disk(call_ms)
    together = threading.Barrier(threads, timeout=30)

    def call(item: int) -> None:
        disk.call(item)
        if item >= TRIED:
            together.wait()

    for_each(range(TRIED + threads * 8), call, is_alone=is_alone, now=disk.now)
    assert len(disk.threads) == threads


@pytest.mark.parametrize("call_ms", [0, 5])
@pytest.mark.parametrize("failing", [1, TRIED, TRIED + 1])
def test_after_a_failure_nothing_is_begun(failing: int, call_ms: int) -> None:
    disk = Disk(call_ms)

    def fail(item: int) -> None:
        disk.call(item)
        if item == failing:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        for_each(range(10_000), fail, now=disk.now)
    assert len(disk.items) < 10_000
    if failing < TRIED or not call_ms:
        assert disk.items[-1] == failing
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kohort-each")]


@pytest.mark.parametrize("left", [1, 2, 5])
def test_there_are_no_more_threads_than_items(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    start: Callable[[threading.Thread], None] = threading.Thread.start
    started: list[threading.Thread] = []

    def note(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    disk = Disk(0)
    for_each(range(TRIED + left), disk.call, is_alone=True)
    assert len(started) == left - 1
    assert len(disk.items) == TRIED + left


@pytest.mark.parametrize("allowed", [0, 3])
def test_without_more_threads_it_is_done_by_those_that_there_are(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    start: Callable[[threading.Thread], None] = threading.Thread.start
    started: list[threading.Thread] = []

    def start_some(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    disk = Disk(100)
    for_each(range(100), disk.call, now=disk.now)
    assert sorted(disk.items) == list(range(100))
    assert len(started) == allowed
