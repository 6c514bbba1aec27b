"""A shard with thousands of parked requests is unloaded in slices, and other partitions run in between."""

import gc
import weakref

import pytest

from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.machine.timeline import SnapshotRegistry
from kohort.runtime.loading.windows import STEP_MS
from kohort.runtime.waits import Armed, DueTable, free
from kohort.testing import VirtualNode
from tests.runtime.harness import Bench, explain
from tests.runtime.shards import Put, TableShard

PARKED = 10 * STEP_MS


def crowded() -> Bench:
    """A partition in which many are parked; to answer one of them takes a millisecond."""
    bench = Bench().load().load(1)
    for _ in range(PARKED):
        park(bench)
    return bench


def park(bench: Bench) -> None:
    answered = bench.answers.setdefault("parked", [])

    def reply(response: str) -> None:
        answered.append(response)
        bench.node.clock.set(bench.node.clock.now_ms() + 1)

    bench.runtime.write(0, lambda shard, _: shard.park(), reply, explain)


def test_those_who_are_parked_are_answered_a_step_at_a_time() -> None:
    bench = crowded()
    bench.runtime.unload(0, None)
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * STEP_MS
    assert bench.state() is None
    bench.write("other", lambda shard, _: shard.put("ok"), partition=1)
    assert bench.answers["other"] == ["ok"]
    bench.node.settle()
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * PARKED


def test_a_close_answers_the_rest_at_once_and_nobody_twice() -> None:
    bench = crowded()
    bench.runtime.unload(0, None)
    bench.runtime.close()
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * PARKED
    bench.node.settle()
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * PARKED


def test_a_reply_of_an_unload_may_close_the_runtime(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench().load().load(1)
    other = bench.answers.setdefault("other", [])
    bench.runtime.write(1, lambda shard, _: shard.park(), other.append, explain)

    def close(_: str) -> None:
        bench.runtime.close()

    for number in range(PARKED):
        if number == 0:  # the first step answers it
            bench.runtime.write(0, lambda shard, _: shard.park(), close, explain)
        park(bench)
    bench.runtime.unload(0, None)
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * PARKED
    assert other == ["NOT_COORDINATOR"]
    assert caplog.records == []


def test_the_next_shard_is_there_while_the_last_one_goes() -> None:
    bench = crowded()
    arm(bench, 1)
    bench.runtime.unload(0, None)
    bench.runtime.load(0, bench.log, 1)
    bench.put("new", ("x", 1))
    arm(bench, 60_000)
    bench.node.settle()
    bench.log.commit()
    assert bench.answers["new"] == ["ok"]
    assert bench.answers["parked"] == ["NOT_COORDINATOR"] * PARKED
    assert bench.shard.images.count("due") == 0, "the deadline of the last shard has ended"
    bench.node.advance(60_000)
    assert bench.shard.images.count("due") == 1


def arm(bench: Bench, delay_ms: int) -> None:
    def due(shard: TableShard, _: int) -> Result[Put, None]:
        shard.images.append("due")
        return Result()

    bench.write("arm", lambda _, __: Result((), "ok", deadlines=[Deadline(("due",), delay_ms, Operation(due))]))


def test_deadlines_that_end_together_never_run_and_let_go_of_what_they_held() -> None:
    node, ran = VirtualNode(), []

    class Held:
        def run(self, *_: object) -> None:
            raise AssertionError

    table: DueTable[Armed] = DueTable(
        SnapshotRegistry(), node.wheel, node.clock, lambda due: ran.append(table.has(due))
    )
    held = Held()
    for number in range(100):
        table.put(Armed((str(number),), node.clock.now_ms() + 10 + number, Operation(held.run)))
    gone, freed = weakref.ref(held), free(table.close())
    del held
    table.put(Armed(("later",), node.clock.now_ms() + 50, Operation(print)))
    node.advance(20)
    assert not any(ran)
    assert len(list(freed)) == 100
    del freed
    gc.collect()
    node.advance(1_000)
    assert not any(ran), "nor does a deadline that begins since"
    gc.collect()
    assert gone() is None
