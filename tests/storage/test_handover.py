"""Two threads that wake each other: no ring is lost, a wait ends in time, and the follower runs where the other thread runs."""

import os
import threading

import pytest

from kohort.storage.durability.handover import Bell, Follower


def test_every_ring_is_waited_for_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    bell.wait()
    assert bell.wait_for(120_000)
    assert not bell.wait_for(0)
    bell.close()


def test_a_closed_bell_gives_its_descriptors_back() -> None:
    before = set(os.listdir("/dev/fd"))
    bell = Bell()
    bell.close()
    bell.close()
    del bell
    assert set(os.listdir("/dev/fd")) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind threads to processors")
def test_a_follower_runs_where_the_calling_thread_runs() -> None:
    allowed = os.sched_getaffinity(0)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert thread.native_id is not None
    follower = Follower(thread)
    try:
        for processor in allowed:
            os.sched_setaffinity(0, {processor})
            follower.follow()
            assert os.sched_getaffinity(thread.native_id) == {processor}
        os.sched_setaffinity(0, allowed)
        follower.free()
        assert os.sched_getaffinity(thread.native_id) == allowed
    finally:
        os.sched_setaffinity(0, allowed)
        stop.set()
        thread.join()


def test_where_binding_is_forbidden_the_thread_runs_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def refuse(*args: object) -> None:
        calls.append(args)
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    follower = Follower(threading.current_thread())
    follower.follow()
    follower.follow()
    follower.free()
    assert len(calls) <= 1
