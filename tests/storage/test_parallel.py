"""Many files are flushed some at a time: each once, none after a failure, and whoever asked is told of it."""

import threading

import pytest

from kohort.storage.durability.parallel import ITEMS_MIN, THREADS, for_each


@pytest.mark.parametrize("count", [0, 1, ITEMS_MIN - 1, ITEMS_MIN, 1000])
def test_each_is_done_once(count: int) -> None:
    done: list[int] = []
    for_each(range(count), done.append)
    assert sorted(done) == list(range(count))
    if count < ITEMS_MIN:
        assert done == list(range(count)), "few are done in order"


def test_many_are_done_at_once() -> None:
    """Each waits until so many others have begun."""
    together = threading.Barrier(THREADS, timeout=120)

    def wait(_: int) -> None:
        together.wait()

    for_each(range(THREADS * 8), wait)


@pytest.mark.parametrize("count", [3, ITEMS_MIN * 100])
def test_after_a_failure_nothing_is_begun(count: int) -> None:
    begun: list[int] = []

    def fail_at_the_second(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        for_each(range(count), fail_at_the_second)
    assert begun[:2] == [0, 1] or count > ITEMS_MIN
    assert len(begun) < count
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kohort-each")]


@pytest.mark.parametrize("allowed", [0, 3])
def test_without_more_threads_it_is_done_by_those_that_there_are(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_some(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    done: list[int] = []
    for_each(range(ITEMS_MIN), done.append)
    assert sorted(done) == list(range(ITEMS_MIN))
    assert len(started) == allowed
