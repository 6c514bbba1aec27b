"""
A runtime over a log on disk or in memory, in three lines:

    with hosted(CounterShard, CountSerde(), data_dir="counters", partitions=4) as host:
        host.write(key="visits", operation=lambda shard, now_ms: shard.increment("visits"))
        host.query(key="visits", query=lambda shard, offset: shard.count("visits", offset))
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload
from uuid import NAMESPACE_OID, UUID, uuid5

from kohort.machine.shard import Deadlines, RecordSerde, Result, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition, coordinator_partition
from kohort.runtime.loop import Loop
from kohort.runtime.runtime import Runtime
from kohort.runtime.threaded.processor import ThreadedProcessor
from kohort.runtime.threaded.shared_log import LogOwner
from kohort.storage.disk import DiskStore
from kohort.storage.files.checkpoint_formats import read_partition_metadata
from kohort.storage.files.directory import find_partitions
from kohort.storage.files.foreign import refuse_kafka
from kohort.storage.log import NO_TOPIC_ID, LogConfig, LogStore
from kohort.storage.memory import MemoryStore

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

TIMEOUT_MS: Final = 60_000
_NODE_ID: Final = 1


class Host(Generic[S]):
    """
    A runtime whose callers wait for their answers.

    Attributes:
        runtime: the runtime itself, for replies and futures.
    """

    def __init__(self, runtime: Runtime[S], owner: Loop | LogOwner, timeout_ms: int = TIMEOUT_MS) -> None:
        self.runtime = runtime
        self._owner = owner
        self._timeout_ms = timeout_ms

    def partition_of(self, key: str) -> int:
        """
        The partition of a key, the same at every start with as many partitions; `hash` of a text differs from start to start.

        Source: Kafka GroupCoordinatorService.partitionFor, which finds the partition of a group in this way.
        """
        return coordinator_partition(key, self.runtime.partition_count)

    @overload
    def write(self, partition: int, operation: Callable[[S, int], Result[Any, T]]) -> T: ...
    @overload
    def write(self, *, key: str, operation: Callable[[S, int], Result[Any, T]]) -> T: ...
    def write(self, partition: int | None = None, operation: Any = None, *, key: str | None = None) -> Any:
        """
        Run `operation(shard, now_ms)` on a partition, or on the partition of a key, and return its response once its records
        are committed.

        Raises:
            ValueError: there is no such partition.
            CoordinatorError: the partition is not active, or its log takes no records.
            TimeoutError: the response did not come in time.
            Exception: raised by the operation.
        """
        return self.wait(self.runtime.submit(self._partition(partition, key), operation))

    @overload
    def query(self, partition: int, query: Callable[[S, int], T]) -> T: ...
    @overload
    def query(self, *, key: str, query: Callable[[S, int], T]) -> T: ...
    def query(self, partition: int | None = None, query: Any = None, *, key: str | None = None) -> Any:
        """
        Return `query(shard, offset)` of a partition, or of the partition of a key; the state as of `offset` is committed.

        Raises:
            ValueError: there is no such partition.
            CoordinatorError: the partition is not active.
            Exception: raised by the query.
        """
        return self.runtime.query(self._partition(partition, key), query)

    def _partition(self, partition: int | None, key: str | None) -> int:
        if key is not None:
            return self.partition_of(key)
        count = self.runtime.partition_count
        if partition is None or not 0 <= partition < count:
            known = "0 is the only one" if count == 1 else f"they are 0 to {count - 1}"
            raise ValueError(f"there is no partition {partition}: {known}")
        return partition

    def wait(self, future: "Future[T]") -> T:
        """
        Return the result of a future of the runtime.

        Raises:
            TimeoutError: the future was not done in time.
            Exception: the exception of the future.
        """
        if isinstance(self._owner, Loop):
            return self._owner.wait(future, timeout_ms=self._timeout_ms)
        return future.result(self._timeout_ms / 1000)


@contextmanager
def hosted(
    make_shard: Callable[[int, SnapshotRegistry, Deadlines], S],
    serde: RecordSerde[Any],
    *,
    data_dir: str | Path | None = None,
    topic: str = "state",
    partitions: int = 1,
    threads: int = 0,
    timeout_ms: int = TIMEOUT_MS,
    checks_state: bool = False,
) -> Iterator[Host[S]]:
    """
    Load the shards of a topic, and serve them until the end of the `with` block.

    Args:
        make_shard: returns a new shard for (partition, registry, deadlines).
        data_dir: the directory of the logs, which is created if it is missing; None keeps them in memory.
        topic: the name of the logs' directories.
        partitions: how many there are. More than at the last start move keys to other partitions; fewer are refused.
        threads: how many threads run the operations. With 0 they run on the calling thread, while it waits for an answer.
        timeout_ms: the longest wait for an answer or a load.
        checks_state: whether an operation that changes state outside of `replay` fails, for tests
            (`PlainShard.soft_state` names what it may change).

    Raises:
        ConfigError: the data directory belongs to another process or cluster, a broker has written it, or it has more
            partitions.
        StorageError: a log cannot be read.
        CoordinatorError: a partition could not be loaded.
    """
    owner = LogOwner(ThreadedProcessor(threads)) if threads else Loop()
    runtime: Runtime[S] = Runtime(
        make_shard=make_shard,
        serde=serde,
        clock=owner.clock,
        processor=owner.processor,
        partition_count=partitions,
        checks_state=checks_state,
    )
    store: LogStore | None = None
    try:
        store = _open_store(data_dir, owner)
        _check_partitions(data_dir, topic, partitions)
        host = Host(runtime, owner, timeout_ms)
        for partition in range(partitions):
            with owner.lock:
                log = store.open(TopicPartition(topic, partition), _topic_id(topic), LogConfig())
            host.wait(runtime.load(partition, owner.share(log), log.leader_epoch + 1))
        yield host
    finally:
        runtime.close()
        if store is not None:
            store.close()
        owner.close()


def _open_store(data_dir: str | Path | None, owner: Loop | LogOwner) -> LogStore:
    if data_dir is None:
        return MemoryStore(owner.defer)
    return DiskStore(
        Path(data_dir),
        defer=owner.defer,
        call_soon_threadsafe=owner.call_soon_threadsafe,
        flush="commit",
        node_id=_NODE_ID,
        clock=owner.clock,
        check=_check_directory,
    )


def _check_directory(data_dir: Path) -> None:
    """
    Raises:
        ConfigError: a broker has written the directory.
    """
    partitions = find_partitions(data_dir)
    own = {topic_partition for topic_partition, path in partitions.items() if _is_own(topic_partition, path)}
    refuse_kafka(data_dir, partitions, is_owned=bool(own))
    foreign = sorted(partitions.keys() - own)
    if foreign:
        raise ConfigError(
            f"{data_dir} has partitions of a broker (the first is {foreign[0]}). Nothing was changed. Choose another directory."
        )


def _check_partitions(data_dir: str | Path | None, topic: str, partitions: int) -> None:
    """
    Raises:
        ConfigError: there are more partitions on the disk, whose state nobody would see.
    """
    if data_dir is not None:
        count = 1 + max((each.partition for each in find_partitions(Path(data_dir)) if each.topic == topic), default=-1)
        if count > partitions:
            raise ConfigError(f"{data_dir} has {count} partitions of {topic}, and {partitions} are asked for")


def _is_own(topic_partition: TopicPartition, path: Path) -> bool:
    """Whether the partition has the topic id that `hosted` gives; a power cut may leave one without an id."""
    return read_partition_metadata(path) in (NO_TOPIC_ID, _topic_id(topic_partition.topic))


def _topic_id(topic: str) -> UUID:
    """The same id at every start: the data directory holds it."""
    return uuid5(NAMESPACE_OID, topic)


__all__ = ["Host", "hosted"]
