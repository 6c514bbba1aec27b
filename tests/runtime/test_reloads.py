"""Loads that fail: they are tried again with a back-off, unless something else happens to the partition first."""

from typing import Any

import pytest

from kohort.model.errors import CoordinatorError, UnavailableError
from kohort.runtime.states import State
from tests.runtime.harness import Bench, batch_of
from tests.runtime.shards import TableShard


def test_a_load_that_fails_is_tried_again() -> None:
    """After half a second, and then after twice as long each time, up to a minute."""
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"7")]), leader_epoch=0)
    bench.log.commit()
    waits_s = [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    loaded = bench.runtime.load(0, bench.log, 1)
    for attempt, wait_s in enumerate(waits_s, 1):
        bench.log.fail_next_read = UnavailableError("no disk")
        bench.node.advance(0 if attempt == 1 else 1)
        assert (len(bench.shards), bench.state()) == (attempt, State.FAILED)
        bench.node.advance(int(wait_s * 1000) - 1)
        assert len(bench.shards) == attempt, "too early"
    assert isinstance(loaded.exception(), CoordinatorError)
    bench.log.fail_next_read = None
    bench.node.advance(1)
    assert (bench.state(), bench.read()) == (State.ACTIVE, {"x": 7})
    # The next failure begins anew.
    bench.log.shift_next_append = 1
    bench.put("lost", ("a", 2))
    bench.log.fail_next_read = UnavailableError("no disk")
    bench.node.advance(499)
    assert bench.state() is State.FAILED
    bench.node.advance(1)
    assert bench.state() is State.ACTIVE


@pytest.mark.parametrize("end", ["unload", "close", "load"])
def test_a_failed_load_that_is_overtaken_is_not_tried_again(end: str) -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"7")]), leader_epoch=0)
    bench.log.commit()
    bench.log.fail_next_read = UnavailableError("no disk")
    bench.load(leader_epoch=1)
    if end == "unload":
        bench.runtime.unload(0, 2)
    elif end == "close":
        bench.runtime.close()
    else:
        bench.load(leader_epoch=2)
    bench.node.advance(1_000)
    assert bench.state() is (State.ACTIVE if end == "load" else None)
    assert len(bench.shards) == (2 if end == "load" else 1)


def test_the_back_off_is_that_of_the_last_failure() -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"7")]), leader_epoch=0)
    bench.log.commit()
    for epoch in (1, 2):
        bench.log.fail_next_read = UnavailableError("no disk")
        bench.load(leader_epoch=epoch)
        bench.node.advance(100)
    bench.node.advance(899)
    assert (len(bench.shards), bench.state()) == (2, State.FAILED), "the timer of the first failure counts no more"
    bench.node.advance(1)
    assert bench.state() is State.ACTIVE


def test_a_failure_that_stays_the_same_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"poison", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.load(leader_epoch=1)
    bench.node.advance(60_000)
    assert len(bench.shards) > 2
    assert [record.levelname for record in caplog.records if "load_failed" in record.message] == ["ERROR"]


def test_a_shard_that_cannot_be_made_is_made_later() -> None:
    class Reluctant(TableShard):
        attempts = 0

        def __init__(self, *args: Any) -> None:
            type(self).attempts += 1
            if self.attempts == 1:
                raise RuntimeError("not yet")
            super().__init__(*args)

    bench = Bench(kind=Reluctant)
    loaded = bench.runtime.load(0, bench.log, 0)
    assert (bench.state(), isinstance(loaded.exception(), CoordinatorError)) == (State.FAILED, True)
    bench.node.advance(500)
    assert bench.state() is State.ACTIVE
