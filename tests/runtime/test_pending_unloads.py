"""A shard with thousands of parked requests is unloaded in slices, and other partitions run in between."""

import gc
import weakref
from collections.abc import Callable

import pytest

from kohort.machine.shard import Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.runtime.loading.windows import STEP_MS
from kohort.runtime.timers.shard_timers import ShardTimers
from kohort.runtime.waits import Armed, Deadlines, DueTable
from kohort.testing import VirtualNode
from tests.runtime.harness import Bench

PARKED = 10 * STEP_MS


def crowded() -> Bench:
    """A partition in which many are parked; to answer one of them takes a millisecond."""
    bench = Bench().load().load(1)
    answered = bench.answers.setdefault("parked", [])

    def reply(response: str) -> None:
        answered.append(response)
        bench.node.clock.set(bench.node.clock.now_ms() + 1)

    for _ in range(PARKED):
        bench.write("park", lambda shard, _: shard.park(reply))
    return bench


def test_those_who_are_parked_are_answered_a_step_at_a_time() -> None:
    bench = crowded()
    bench.runtime.unload(0, None)
    assert bench.answers["parked"] == ["unloaded"] * STEP_MS
    assert bench.state() is None
    bench.write("other", lambda shard, _: shard.put("ok"), partition=1)
    assert bench.answers["other"] == ["ok"]
    bench.node.settle()
    assert bench.answers["parked"] == ["unloaded"] * PARKED


def test_a_close_answers_the_rest_at_once_and_nobody_twice() -> None:
    bench = crowded()
    bench.runtime.unload(0, None)
    bench.runtime.close()
    assert bench.answers["parked"] == ["unloaded"] * PARKED
    bench.node.settle()
    assert bench.answers["parked"] == ["unloaded"] * PARKED


def test_a_reply_of_an_unload_may_close_the_runtime(caplog: pytest.LogCaptureFixture) -> None:
    bench = crowded()
    other = bench.answers.setdefault("other", [])
    bench.write("park", lambda shard, _: shard.park(other.append), partition=1)

    def close(_: str) -> None:
        bench.runtime.close()

    bench.shards[0].parked.insert(3, close)
    bench.runtime.unload(0, None)
    assert bench.answers["parked"] == ["unloaded"] * PARKED
    assert other == ["unloaded"]
    assert caplog.records == []


def test_the_next_shard_is_there_while_the_last_one_goes() -> None:
    bench = crowded()
    bench.shard.timers.schedule("old", 1, lambda _: Result())
    bench.runtime.unload(0, None)
    bench.runtime.load(0, bench.log, 1)
    bench.put("new", ("x", 1))
    bench.shard.timers.schedule("new", 60_000, lambda _: Result())
    bench.node.settle()
    bench.log.commit()
    assert bench.answers["new"] == ["ok"]
    assert bench.answers["parked"] == ["unloaded"] * PARKED
    assert bench.shard.timers.is_scheduled("new")


def test_timers_that_were_cancelled_together_never_run_and_let_go_of_what_they_held() -> None:
    node, ran = VirtualNode(), []

    def expire(is_current: Callable[[], bool], *_: object) -> None:
        ran.append(is_current())

    class Held:
        def expire(self, _: int) -> Result[object, None]:
            return Result()

    table: DueTable[Armed] = DueTable(SnapshotRegistry(), node.wheel, node.clock, lambda _: None)
    timers, held = ShardTimers(node.wheel, node.clock, expire, Deadlines(table)), Held()
    for number in range(100):
        timers.schedule(str(number), 10 + number, held.expire)
    gone, freed = weakref.ref(held), timers.close()
    del held
    timers.schedule("later", 50, lambda _: Result())
    node.advance(20)
    assert ran == []
    assert len(list(freed)) == 100
    gc.collect()
    assert gone() is None
    node.advance(1_000)
    assert ran == [], "nor does a timer that is scheduled since"
    assert not timers.is_scheduled("later")
