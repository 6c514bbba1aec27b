"""Tasks beside a shard: what they find comes back as an operation, or is dropped."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.machine.shard import Executor, Result
from kohort.model.errors import UnavailableError
from kohort.runtime.loop import Loop
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from kohort.runtime.threaded.processor import ThreadedProcessor
from kohort.runtime.threaded.shared_log import LogOwner
from kohort.testing import FaultyLog, VirtualNode
from tests.runtime.harness import Bench
from tests.runtime.shards import Put, PutSerde, TableShard

WAIT_SECONDS = 120


class Thinker(TableShard):
    """Lets others work out what it puts."""

    executor: Executor

    def use_executor(self, executor: Executor, /) -> None:
        self.executor = executor

    def think(self, key: str, task: Callable[[], int]) -> Result[Put, str]:
        return Result((), "begun" if self.executor.schedule(key, task, self._keep(key)) else "under way")

    def _keep(self, key: str) -> Callable[[Any, Exception | None, int], Result[Put, None]]:
        def operation(found: Any, error: Exception | None, _now_ms: int) -> Result[Put, None]:
            self.last = found, error, self.executor.is_scheduled(key)
            return Result([Put(key, -1 if error is not None else found)])

        return operation


def noting(ran: list[str], name: str, found: int = 1) -> Callable[[], int]:
    """A task that says that it ran."""

    def task() -> int:
        ran.append(name)
        return found

    return task


def thinking(bench: Bench, name: str, key: str, task: Callable[[], int] = lambda: 7) -> None:
    bench.write(name, lambda shard, _: shard.think(key, task))  # type: ignore[attr-defined]


@pytest.fixture
def bench() -> Bench:
    return Bench(kind=Thinker).load()


def test_what_a_task_finds_is_written() -> None:  # [L8]
    """Also for who asks while it is under way; afterwards the key is free."""
    bench = Bench(kind=Thinker).load()
    thinking(bench, "a", "x")
    thinking(bench, "b", "x")
    assert (bench.answers["a"], bench.answers["b"]) == (["begun"], ["under way"])
    bench.node.settle()
    bench.log.commit()
    assert bench.shard.last == (7, None, False)  # type: ignore[attr-defined]
    assert bench.read() == {"x": 7}
    assert bench.written() == [(b"x", b"7")]
    thinking(bench, "c", "x")
    assert bench.answers["c"] == ["begun"]


def test_what_a_task_raises_is_the_operations_to_decide(bench: Bench) -> None:  # [L8]
    def task() -> int:
        raise RuntimeError("no idea")

    thinking(bench, "a", "x", task)
    bench.node.settle()
    bench.log.commit()
    assert bench.read() == {"x": -1}


def test_a_task_that_was_cancelled_before_it_began_never_runs(bench: Bench) -> None:  # [L8]
    ran: list[str] = []
    thinking(bench, "a", "x", noting(ran, "a"))
    bench.shard.executor.cancel("x")  # type: ignore[attr-defined]
    bench.node.settle()
    assert (ran, dict(bench.shard.table)) == ([], {})


def test_what_a_cancelled_or_replaced_task_finds_is_dropped(bench: Bench) -> None:  # [L8]
    """It had begun, so it goes on to its end; the one that took its key meanwhile is not disturbed."""

    def cancelled_meanwhile() -> int:
        bench.shard.executor.cancel("x")  # type: ignore[attr-defined]
        thinking(bench, "b", "x", lambda: 2)
        return 1

    thinking(bench, "a", "x", cancelled_meanwhile)
    bench.node.settle()
    bench.log.commit()
    assert bench.answers["b"] == ["begun"]
    assert bench.read() == {"x": 2}


def test_a_shard_that_is_gone_forgets_its_tasks() -> None:  # [L8]
    bench = Bench(kind=Thinker).load()
    ran: list[str] = []

    def unload_meanwhile() -> int:
        bench.runtime.unload(0, None)
        bench.runtime.load(0, bench.log, 5)
        return 1

    thinking(bench, "a", "x", unload_meanwhile)
    thinking(bench, "b", "y", noting(ran, "a"))
    bench.node.settle()
    bench.log.commit()
    assert len(bench.shards) == 2
    assert (ran, bench.read(), bench.written()) == ([], {}, [])


def test_an_operation_whose_records_cannot_be_written_is_not_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    thinking(bench, "a", "x")
    bench.log.fail_next_append = UnavailableError("full")
    bench.node.settle()
    bench.node.advance(10_000)
    assert (dict(bench.shard.table), bench.log.appends) == ({}, 0)
    assert "shard.background_failed key=x error=full" in caplog.text


def test_tasks_are_timed(bench: Bench) -> None:  # [L8]
    def slow() -> int:
        bench.node.clock.set(bench.node.clock.now_ms() + 30)
        return 1

    thinking(bench, "a", "x", slow)
    bench.node.clock.set(bench.node.clock.now_ms() + 20)
    bench.node.settle()
    metrics = bench.runtime.metrics()
    assert (metrics["background_queue_time"].sum_ms, metrics["background_processing_time"].sum_ms) == (20, 30)


def test_tasks_elsewhere_need_a_way_back() -> None:  # [L8]
    node = VirtualNode()
    with pytest.raises(ValueError, match="call_soon_threadsafe"):
        InlineProcessor(node.wheel, node.defer, node.call_soon, background=node.call_soon)


# On threads of their own


def test_a_loop_runs_tasks_on_a_thread_and_operations_on_its_own() -> None:  # [L8]
    loop, log, shards = Loop(), FaultyLog(), list[Thinker]()

    def make_shard(partition: int, registry: Any, deadlines: Any) -> Thinker:
        shards.append(Thinker(partition, registry, deadlines))
        return shards[-1]

    runtime = Runtime(make_shard=make_shard, serde=PutSerde(), clock=loop.clock, processor=loop.processor)
    loop.wait(runtime.load(0, log, 0))
    threads: list[threading.Thread] = []

    def task() -> int:
        threads.append(threading.current_thread())
        return 3

    runtime.submit(0, lambda shard, _: shard.think("x", task))
    loop.run_until(lambda: bool(shards[0].table), timeout_ms=WAIT_SECONDS * 1000)
    assert shards[0].table == {"x": 3}
    assert threads != [threading.current_thread()]
    runtime.close()


@pytest.fixture
def threaded() -> Iterator[tuple[Runtime[Thinker], FaultyLog, ThreadedProcessor]]:
    with ThreadedProcessor(2) as processor:
        log = FaultyLog()
        runtime: Runtime[Thinker] = Runtime(
            make_shard=Thinker, serde=PutSerde(), clock=processor.clock, processor=processor
        )
        runtime.load(0, LogOwner(processor).share(log), 0).result(WAIT_SECONDS)
        yield runtime, log, processor
        runtime.close()


def test_threads_run_tasks_beside_partitions(
    threaded: tuple[Runtime[Thinker], FaultyLog, ThreadedProcessor],
) -> None:  # [L8]
    runtime, log, _ = threaded
    may_end, has_written = threading.Event(), threading.Event()
    append = log.append

    def noted(batch: bytes | bytearray, *, leader_epoch: int) -> int:
        end = append(batch, leader_epoch=leader_epoch)
        has_written.set()
        return end

    log.append = noted  # type: ignore[method-assign]

    def task() -> int:
        assert may_end.wait(WAIT_SECONDS)
        return 4

    assert runtime.submit(0, lambda shard, _: shard.think("x", task)).result(WAIT_SECONDS) == "begun"
    # The partition goes on meanwhile.
    assert runtime.submit(0, lambda shard, _: shard.think("x", task)).result(WAIT_SECONDS) == "under way"
    may_end.set()
    assert has_written.wait(WAIT_SECONDS)
    assert runtime.submit(0, lambda shard, _: Result((), str(shard.last))) is not None


def test_a_close_waits_for_the_task_that_runs_and_drops_the_others(
    threaded: tuple[Runtime[Thinker], FaultyLog, ThreadedProcessor],
) -> None:
    runtime, log, processor = threaded
    has_begun, may_end, ran = threading.Event(), threading.Event(), list[str]()

    def first() -> int:
        has_begun.set()
        assert may_end.wait(WAIT_SECONDS)
        ran.append("first")
        return 1

    runtime.submit(0, lambda shard, _: shard.think("x", first)).result(WAIT_SECONDS)
    runtime.submit(0, lambda shard, _: shard.think("y", noting(ran, "second"))).result(WAIT_SECONDS)
    assert has_begun.wait(WAIT_SECONDS)

    def close() -> None:
        runtime.close()
        processor.close()

    closing = threading.Thread(target=close)
    closing.start()
    may_end.set()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert (ran, log.batches) == (["first"], [])
    processor.background.submit(lambda: ran.append("late"))
    assert ran == ["first"]
