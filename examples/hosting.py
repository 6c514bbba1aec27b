"""What the examples of shards run on: a store, a runtime, and one thread or several."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

from kohort.machine.shard import RecordSerde, Result, Shard, Timers
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.ids import TopicPartition
from kohort.runtime import LogOwner, Loop, Runtime, ThreadedProcessor
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig, LogStore
from kohort.storage.memory import MemoryStore

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

TOPIC_ID = UUID(int=1)
WAIT_MS = 20_000


class Host(Generic[S]):
    """Operations and queries that wait for their answers."""

    def __init__(self, runtime: Runtime[S], owner: Loop | LogOwner) -> None:
        self.runtime = runtime
        self._owner = owner

    def write(self, partition: int, operation: Callable[[S, int], Result[Any, T]]) -> T:
        """The response of an operation, once its records are durable."""
        return self.wait(self.runtime.submit(partition, operation))

    def wait(self, future: "Future[T]") -> T:
        if isinstance(self._owner, Loop):
            return self._owner.wait(future, timeout_ms=WAIT_MS)
        return future.result(WAIT_MS / 1000)

    def query(self, partition: int, query: Callable[[S, int], T]) -> T:
        """The answer to a query of what is durable."""
        return self.runtime.query(partition, query)


@contextmanager
def hosted(
    make_shard: Callable[[int, SnapshotRegistry, Timers], S],
    serde: RecordSerde[Any],
    *,
    data_dir: Path | None = None,
    threads: int = 0,
    partitions: int = 1,
) -> Iterator[Host[S]]:
    """Run shards over logs in a directory, or in memory without one; on so many threads, or on the caller's with 0."""
    owner = LogOwner(ThreadedProcessor(threads)) if threads else Loop()
    store: LogStore = MemoryStore(owner.defer)
    if data_dir is not None:
        store = DiskStore(
            data_dir,
            defer=owner.defer,
            call_soon_threadsafe=owner.call_soon_threadsafe,
            flush="commit",
            node_id=1,
            clock=owner.clock,
        )
    runtime = Runtime(
        make_shard=make_shard,
        serde=serde,
        clock=owner.clock,
        processor=owner.processor,
        partition_count=partitions,
    )
    host = Host(runtime, owner)
    try:
        for partition in range(partitions):
            with owner.lock:
                log = store.open(TopicPartition("state", partition), TOPIC_ID, LogConfig())
            host.wait(runtime.load(partition, owner.share(log), log.leader_epoch + 1))
        yield host
    finally:
        runtime.close()
        store.close()
        if isinstance(owner, LogOwner):
            owner.processor.close()
