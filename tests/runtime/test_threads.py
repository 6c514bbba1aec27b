"""The runtime on threads of its own: the same promises, from any thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kohort.machine.shard import EndTransaction, Producer, Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.errors import CoordinatorError, ErrorCode, InvariantError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.model.image import ClusterImage
from kohort.runtime.ports import Verify
from kohort.runtime.runtime import Runtime, skip_verification
from kohort.runtime.states import State
from kohort.runtime.threaded.processor import DeadlineThread, ThreadedProcessor
from kohort.runtime.threaded.shared_log import LogOwner, SharedLog
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig, LogStore
from kohort.storage.memory import MemoryStore
from kohort.testing import FaultyLog, FixedImage
from tests.runtime.harness import batch_of
from tests.runtime.shards import Put, PutSerde, TableShard

WAIT_SECONDS = 120
PARTITIONS = 4


class Library:
    """A program that uses the runtime with threads."""

    def __init__(self, store_kind: str, data_dir: Path, threads: int) -> None:
        self.processor = ThreadedProcessor(threads)
        self.owner = LogOwner(self.processor)
        self.store: LogStore
        if store_kind == "memory":
            self.store = MemoryStore(self.owner.defer)
        else:
            self.store = DiskStore(
                data_dir,
                defer=self.owner.defer,
                call_soon_threadsafe=self.owner.call_soon_threadsafe,
                flush="commit",
                node_id=1,
                clock=self.processor.clock,
                journal_file_bytes=1 << 16,
            )
        self.shards: list[TableShard] = []
        self.image = FixedImage()
        self.runtime: Runtime[TableShard] = Runtime(
            partition_count=PARTITIONS,
            make_shard=self.make_shard,
            serde=PutSerde(),
            image=self.image,
            clock=self.processor.clock,
            processor=self.processor,
        )

    def make_shard(self, partition: int, registry: Any, deadlines: Any) -> TableShard:
        self.shards.append(TableShard(partition, registry, deadlines))
        return self.shards[-1]

    def load(self) -> None:
        for partition in range(PARTITIONS):
            with self.owner.lock:
                log = self.store.open(TopicPartition("state", partition), UUID(int=7), LogConfig())
                log.become_leader(max(log.leader_epoch, 0) + 1)
            self.runtime.load(partition, self.owner.share(log), log.leader_epoch).result(WAIT_SECONDS)

    def read(self, partition: int) -> dict[str, int]:
        return self.runtime.query(partition, lambda shard, offset: dict(shard.table.items_at(offset)))

    def close(self) -> None:
        self.runtime.close()
        self.store.close()
        self.processor.close()


@contextmanager
def library(store_kind: str, data_dir: Path, threads: int = 3) -> Iterator[Library]:
    made = Library(store_kind, data_dir, threads)
    try:
        made.load()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("store_kind", ["memory", "disk"])
def test_writes_from_many_threads_are_all_there(store_kind: str, tmp_path: Path) -> None:
    with library(store_kind, tmp_path) as used:

        def count(shard: TableShard, _: int) -> Result[Put, int]:
            number = shard.table.get("n", 0) + 1
            return Result([Put("n", number)], number)

        answers: list[list[int]] = [[] for _ in range(8)]

        def work(index: int) -> None:
            for number in range(50):
                answers[index].append(used.runtime.submit(number % PARTITIONS, count).result(WAIT_SECONDS))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        written = [used.read(partition) for partition in range(PARTITIONS)]
        assert [table["n"] for table in written] == [104, 104, 96, 96]
        assert sorted(number for part in answers for number in part) == sorted(
            [*range(1, 105)] * 2 + [*range(1, 97)] * 2
        ), "each number once"
    if store_kind == "disk":
        with library(store_kind, tmp_path) as again:
            wait_until_active(again.runtime)
            assert [again.read(partition) for partition in range(PARTITIONS)] == written


def wait_until_active(runtime: Runtime[TableShard]) -> None:
    deadline = threading.Event()
    for _ in range(20_000):
        if set(runtime.states().values()) == {State.ACTIVE}:
            return
        deadline.wait(0.001)
    raise AssertionError(runtime.states())


def test_one_thread_takes_turns_with_itself(tmp_path: Path) -> None:
    with library("memory", tmp_path, threads=1) as used:
        chain: list[int] = []
        ended = threading.Event()

        def again(response: int) -> None:
            chain.append(response)
            if len(chain) == 5:
                ended.set()
                return
            assert used.runtime.write(0, lambda _, __: Result([Put("n", len(chain))], len(chain)), again, _fail) is None

        used.runtime.write(0, lambda _, __: Result([Put("n", 0)], 0), again, _fail)
        assert ended.wait(WAIT_SECONDS)
        assert chain == [0, 1, 2, 3, 4]


def _fail(error: Exception) -> int:
    raise error


def test_errors_arrive_where_the_answer_would(tmp_path: Path) -> None:
    with library("memory", tmp_path) as used:

        def refuse(_: TableShard, __: int) -> Result[Put, int]:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)

        with pytest.raises(CoordinatorError) as caught:
            used.runtime.submit(0, refuse).result(WAIT_SECONDS)
        assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(CoordinatorError) as caught:
            used.runtime.query(9, lambda shard, _: shard.partition)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR
        with pytest.raises(ZeroDivisionError):
            used.runtime.query(0, lambda shard, _: 1 // shard.partition)


def test_who_runs_events_cannot_wait_for_one(tmp_path: Path) -> None:
    with library("memory", tmp_path) as used:

        def wait(_: TableShard, __: int) -> Result[Put, int]:
            used.read(1)
            raise AssertionError

        with pytest.raises(InvariantError, match="cannot wait"):
            used.runtime.submit(0, wait).result(WAIT_SECONDS)


def test_deadlines_run_and_write(tmp_path: Path) -> None:  # [28, 30]
    with library("memory", tmp_path) as used:
        fired = threading.Event()

        def heard(_shard: TableShard, _now_ms: int) -> Result[Put, None]:
            fired.set()
            return Result()

        def arm(_shard: TableShard, _: int) -> Result[Put, str]:
            def expire(_shard: TableShard, _now_ms: int) -> Result[Put, None]:
                return Result([Put("fired", 1)], then=Operation(heard))

            delays = {"later": 5, "never": 1, "much later": 3_600_000}
            deadlines = [Deadline((key,), delay_ms, Operation(expire)) for key, delay_ms in delays.items()]
            return Result((), "armed", deadlines=[*deadlines, Deadline(("never",))])

        assert used.runtime.submit(0, arm).result(WAIT_SECONDS) == "armed"
        assert fired.wait(WAIT_SECONDS)
        used.runtime.submit(0, lambda shard, _: shard.put("settled")).result(WAIT_SECONDS)
        assert used.read(0) == {"fired": 1}


def test_transactions_end_as_they_do_inline(tmp_path: Path) -> None:  # [16, 18]
    with library("memory", tmp_path) as used:
        done: list[Any] = []
        ended = threading.Event()
        wait_until_active(used.runtime)

        def reply(error: Exception | None) -> None:
            done.append(error)
            ended.set()

        used.runtime.write_transactional(
            0, Producer("t", 9, 0), lambda shard, _: shard.put("ok", ("x", 1)), done.append, repr
        )
        used.runtime.end_transaction(0, EndTransaction(9, 0, coordinator_epoch=1, committed=True), reply)
        assert ended.wait(WAIT_SECONDS)
        assert done == ["ok", None]
        assert used.read(0) == {"x": 1}


def test_read_all_gathers_from_all_threads(tmp_path: Path) -> None:  # [25]
    with library("memory", tmp_path) as used:
        for partition in range(4):
            used.runtime.submit(partition, lambda shard, _: shard.put("ok", ("x", shard.partition))).result(
                WAIT_SECONDS
            )
        assert used.runtime.read_all(lambda shard, offset: shard.table.get_at("x", offset), repr) == [0, 1, 2, 3]


def test_close_answers_who_waits_and_refuses_who_comes_late(tmp_path: Path) -> None:  # [26]
    used = Library("memory", tmp_path, 2)
    used.load()
    started, may_end = threading.Event(), threading.Event()

    def slow(shard: TableShard, _: int) -> Result[Put, str]:
        started.set()
        may_end.wait(WAIT_SECONDS)
        return Result((), "slow")

    running = used.runtime.submit(0, slow)
    assert started.wait(WAIT_SECONDS)
    queued = used.runtime.submit(0, lambda shard, _: shard.put("ok", ("x", 1)))
    closing = threading.Thread(target=used.close)
    closing.start()
    while used.runtime.submit(1, lambda shard, _: shard.put("ok")).exception(WAIT_SECONDS) is None:
        """The close has not begun yet."""
    may_end.set()
    closing.join(WAIT_SECONDS)
    assert running.result(0) == "slow", "what runs ends as if nothing had happened"
    with pytest.raises(CoordinatorError) as caught:
        queued.result(0)
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert all(shard.is_unloaded for shard in used.shards)
    with pytest.raises(CoordinatorError):
        used.runtime.query(0, lambda shard, _: 1)
    used.runtime.close()


def test_load_and_unload_keep_their_order(tmp_path: Path) -> None:  # [4, 5]
    with library("memory", tmp_path) as used:
        log = used.owner.share(used.store.open(TopicPartition("state", 0), UUID(int=7), LogConfig()))
        loads = []
        for epoch in range(1, 20):
            used.runtime.unload(0, 2 * epoch)
            loads.append(used.runtime.load(0, log, 2 * epoch + 1))
            used.runtime.submit(0, lambda shard, _: shard.put("ok", ("x", 1)))
        loads[-1].result(WAIT_SECONDS)
        assert sum(shard.partition == 0 for shard in used.shards) == 20


def test_an_unload_behind_a_queued_load_is_not_lost(tmp_path: Path) -> None:
    running, may_run, unloading, may_unload = (threading.Event() for _ in range(4))

    def slow(_: TableShard, __: int) -> Result[Put, str]:
        running.set()
        may_run.wait(WAIT_SECONDS)
        return Result((), "slow")

    def on_unloaded() -> None:
        unloading.set()
        may_unload.wait(WAIT_SECONDS)

    with library("memory", tmp_path) as used:
        log = used.owner.share(used.store.open(TopicPartition("state", 0), UUID(int=7), LogConfig()))
        used.shards[0].on_unloaded = on_unloaded  # type: ignore[method-assign]
        used.runtime.submit(0, slow)
        assert running.wait(WAIT_SECONDS)
        used.runtime.unload(0, 2)
        loaded = used.runtime.load(0, log, 3)
        may_run.set()
        assert unloading.wait(WAIT_SECONDS)
        used.runtime.unload(0, 4)
        may_unload.set()
        loaded.exception(WAIT_SECONDS)
        with pytest.raises(CoordinatorError) as caught:
            used.runtime.submit(0, lambda shard, _: shard.put("ok", ("x", 1))).result(WAIT_SECONDS)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_events_are_measured(tmp_path: Path) -> None:
    started, may_end = threading.Event(), threading.Event()

    def slow(_: TableShard, __: int) -> Result[Put, str]:
        started.set()
        may_end.wait(WAIT_SECONDS)
        return Result((), "slow")

    with library("memory", tmp_path) as used:
        used.runtime.submit(0, lambda shard, _: shard.put("ok", ("x", 1))).result(WAIT_SECONDS)
        running = used.runtime.submit(1, slow)
        assert started.wait(WAIT_SECONDS)
        before = used.runtime.metrics()
        waiting = [used.runtime.submit(1, lambda shard, _: shard.put("ok", ("x", 1))) for _ in range(3)]
        assert used.runtime.metrics().event_queue_size == before.event_queue_size + 3
        may_end.set()
        for future in (running, *waiting):
            future.result(WAIT_SECONDS)
    metrics = used.runtime.metrics()
    assert metrics.event_queue_size == len(used.processor) == 0
    assert metrics["event_queue_time"].count == metrics["event_processing_time"].count
    assert metrics["event_queue_time"].count >= before["event_queue_time"].count + 4
    assert metrics["batch_flush_time"].count >= 2
    assert 0.0 <= metrics.thread_idle_ratio <= 1.0


# -- a shared processor --------------------------------------------------------------------------------------------


class Slow:
    """An operation that runs until it may end."""

    def __init__(self) -> None:
        self.started, self.may_end = threading.Event(), threading.Event()

    def __call__(self, shard: TableShard, _: int) -> Result[Put, str]:
        self.started.set()
        assert self.may_end.wait(WAIT_SECONDS)
        return shard.put("slow", ("x", 1))


def table_runtime(processor: ThreadedProcessor, verify: Verify = skip_verification) -> Runtime[TableShard]:
    """One partition over a log in memory."""
    runtime: Runtime[TableShard] = Runtime(
        make_shard=TableShard, serde=PutSerde(), clock=processor.clock, processor=processor, verify=verify
    )
    owner = LogOwner(processor)
    with owner.lock:
        log = MemoryStore(owner.defer).open(TopicPartition("state", 0), UUID(int=7), LogConfig())
    runtime.load(0, owner.share(log), 1).result(WAIT_SECONDS)
    return runtime


def test_a_deadline_of_the_timer_thread_is_called_once() -> None:
    called: list[str] = []
    ended = threading.Event()
    clock = SystemClock()
    thread = DeadlineThread(clock)
    now_ms = clock.now_ms()
    thread.set((0, 0), now_ms + 60_000, lambda: called.append("replaced"))
    thread.set((0, 1), now_ms + 60_000, lambda: called.append("removed"))
    thread.remove([(0, 1)])
    thread.set((0, 0), now_ms, lambda: called.append("first"))
    thread.set((0, 2), now_ms + 5, ended.set)
    assert ended.wait(WAIT_SECONDS)
    assert called == ["first"]
    thread.close()


def test_a_log_of_threads_is_used_under_its_lock() -> None:
    lock = threading.RLock()
    held: list[bool] = []

    class Watched(FaultyLog):
        def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
            held.append(lock._is_owned())  # type: ignore[attr-defined]
            return super().read(offset, bytes_max=bytes_max, up_to=up_to)

    log = SharedLog(Watched(), lock)
    assert log.end_offset == 0
    assert log.read(0, bytes_max=1) == b""
    assert held == [True]


def test_two_runtimes_on_one_processor_do_not_wait_for_each_other() -> None:
    """The same partition number of two coordinators is two queues: one's slow operation does not hold up the other."""
    with ThreadedProcessor(2) as processor:
        one, other, slow = table_runtime(processor), table_runtime(processor), Slow()
        running = one.submit(0, slow)
        assert slow.started.wait(WAIT_SECONDS)
        assert other.submit(0, lambda shard, _: Result((), shard.partition)).result(WAIT_SECONDS) == 0
        slow.may_end.set()
        assert running.result(WAIT_SECONDS) == "slow"
        sizes = [len(runtime._metrics) for runtime in (one, other)]
        assert sizes == [1, 1]
        counts = [runtime.metrics()["event_processing_time"].count for runtime in (one, other)]
        assert all(counts)
        one.close()
        other.close()


def test_a_closed_runtime_leaves_the_processor_to_the_others() -> None:
    with ThreadedProcessor(2) as processor:
        one, other, slow = table_runtime(processor), table_runtime(processor), Slow()
        running = one.submit(0, slow)
        assert slow.started.wait(WAIT_SECONDS)
        queued = one.submit(0, lambda shard, _: shard.put("ok", ("y", 1)))
        closing = threading.Thread(target=one.close)
        closing.start()
        assert isinstance(queued.exception(WAIT_SECONDS), CoordinatorError), "rejected before the running one has ended"
        slow.may_end.set()
        closing.join(WAIT_SECONDS)
        assert not closing.is_alive()
        assert running.done()
        assert other.submit(0, lambda shard, _: shard.put("ok", ("z", 1))).result(WAIT_SECONDS) == "ok"
        assert other.query(0, lambda shard, offset: dict(shard.table.items_at(offset))) == {"z": 1}
        late = one.load(0, FaultyLog(), 9)
        assert isinstance(late.exception(WAIT_SECONDS), CoordinatorError)
        assert one.metrics().event_queue_size == 0
        other.close()


def test_a_runtime_cannot_be_closed_by_its_own_operation(tmp_path: Path) -> None:
    with library("memory", tmp_path) as used:

        def close(_: TableShard, __: int) -> Result[Put, str]:
            used.runtime.close()
            raise AssertionError

        with pytest.raises(InvariantError, match="cannot close"):
            used.runtime.submit(0, close).result(WAIT_SECONDS)
        assert used.runtime.submit(0, lambda shard, _: shard.put("ok", ("x", 1))).result(WAIT_SECONDS) == "ok"


# -- the verification of a transaction -----------------------------------------------------------------------------


@pytest.mark.parametrize("answers", ["within the call", "while the call returns", "after the call"])
@pytest.mark.parametrize("error", [None, CoordinatorError(ErrorCode.INVALID_TXN_STATE)])
def test_a_verification_may_answer_on_any_thread_at_any_time(answers: str, error: Exception | None) -> None:
    """Every answer goes through the reply, exactly once; none is returned and none is lost."""
    in_on_error, returned, replied = threading.Event(), threading.Event(), threading.Event()
    replies: list[Any] = []
    answering: list[threading.Thread] = []

    def verify(_partition: int, _producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        def answer() -> None:
            if answers == "after the call":
                assert returned.wait(WAIT_SECONDS)
            verified(error)

        answering.append(threading.Thread(target=answer))
        answering[0].start()
        if answers == "within the call":
            answering[0].join(WAIT_SECONDS)
        elif answers == "while the call returns" and error is not None:
            assert in_on_error.wait(WAIT_SECONDS)

    def put(shard: TableShard, _: int) -> Result[Put, str]:
        return shard.put("ok", ("x", 1))

    def on_error(failure: Exception) -> str:
        in_on_error.set()
        if answers == "while the call returns":
            assert returned.wait(WAIT_SECONDS)
        return type(failure).__name__

    def reply(response: str) -> None:
        replies.append(response)
        replied.set()

    with ThreadedProcessor(2) as processor:
        runtime = table_runtime(processor, verify)
        assert runtime.write_transactional(0, Producer("t", 9, 0), put, reply, on_error) is None
        returned.set()
        assert replied.wait(WAIT_SECONDS)
        answering[0].join(WAIT_SECONDS)
        runtime.close()
    assert replies == (["ok"] if error is None else ["CoordinatorError"])


def test_a_load_that_fails_is_tried_again() -> None:
    loaded = threading.Event()

    class Told(TableShard):
        def on_loaded(self, image: ClusterImage, now_ms: int, /) -> None:
            super().on_loaded(image, now_ms)
            loaded.set()

    log = FaultyLog()
    log.append(batch_of([(b"x", b"7")]), leader_epoch=0)
    log.commit()
    log.fail_next_read = UnavailableError("no disk")
    processor = ThreadedProcessor(2)
    runtime: Runtime[TableShard] = Runtime(
        make_shard=Told, serde=PutSerde(), clock=processor.clock, processor=processor
    )
    try:
        with pytest.raises(CoordinatorError):
            runtime.load(0, log, 1).result(WAIT_SECONDS)
        assert loaded.wait(WAIT_SECONDS)
        assert runtime.query(0, lambda shard, offset: dict(shard.table.items_at(offset))) == {"x": 7}
    finally:
        runtime.close()
        processor.close()
