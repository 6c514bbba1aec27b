"""A runtime of two partitions over logs that are committed by hand, and what its tests say over and over."""

from collections.abc import Callable
from typing import Any

from kohort.machine.shard import EndTransaction, Producer, Result
from kohort.model.errors import CoordinatorError
from kohort.runtime.ports import Defer, Verify
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime, skip_verification
from kohort.runtime.states import State
from kohort.testing import FaultyLog, FixedImage, VirtualNode
from kohort.wire.batches import BatchRecord, build_batch, read_records
from kohort.wire.compression import Codec
from tests.runtime.shards import Put, PutSerde, TableShard

Operation = Callable[[TableShard, int], Result[Put, str]]


class Bench:
    """A runtime of two partitions over logs that are committed by hand."""

    def __init__(
        self,
        *,
        batch_bytes_max: int = 1_048_588,
        linger_ms: int = -1,
        codec: Codec = Codec.NONE,
        verify: Verify = skip_verification,
        kind: type[TableShard] = TableShard,
        log_kind: type[FaultyLog] = FaultyLog,
        background: Defer | None = None,
    ) -> None:
        self.node = VirtualNode()
        self.kind = kind
        self.logs = [log_kind("state", partition, batch_bytes_max=batch_bytes_max) for partition in (0, 1)]
        self.shards: list[TableShard] = []
        self.image = FixedImage()
        self.runtime = Runtime(
            partition_count=2,
            make_shard=self.make_shard,
            serde=PutSerde(),
            image=self.image,
            clock=self.node.clock,
            processor=InlineProcessor(
                self.node.wheel,
                self.node.defer,
                self.node.call_soon,
                background=background,
                call_soon_threadsafe=self.node.call_soon,
            ),
            verify=verify,
            linger_ms=linger_ms,
            codec=codec,
        )
        self.answers: dict[str, list[Any]] = {}

    @property
    def log(self) -> FaultyLog:
        return self.logs[0]

    @property
    def shard(self) -> TableShard:
        return self.shards[-1]

    def make_shard(self, partition: int, registry: Any, deadlines: Any) -> TableShard:
        self.shards.append(self.kind(partition, registry, deadlines))
        return self.shards[-1]

    def load(self, partition: int = 0, leader_epoch: int = 0) -> "Bench":
        self.runtime.load(partition, self.logs[partition], leader_epoch)
        self.node.settle()
        return self

    def write(self, name: str, operation: Operation, partition: int = 0) -> None:
        """Run an operation; what it is answered, at once or later, is noted under `name`."""
        noted = self.answers.setdefault(name, [])
        response = self.runtime.write(partition, operation, noted.append, explain)
        if response is not None:
            noted.append(response)

    def put(self, name: str, *puts: tuple[str, int | None]) -> None:
        self.write(name, lambda shard, _: shard.put("ok", *puts))

    def put_in_transaction(self, name: str, producer: Producer, *puts: tuple[str, int | None]) -> None:
        noted = self.answers.setdefault(name, [])
        response = self.runtime.write_transactional(
            0, producer, lambda shard, _: shard.put("ok", *puts), noted.append, explain
        )
        if response is not None:
            noted.append(response)

    def end(self, name: str, end: EndTransaction, timeout_ms: int | None = None) -> None:
        """End a transaction; "ended" or the error is noted under `name`."""
        noted = self.answers.setdefault(name, [])
        self.runtime.end_transaction(
            0, end, lambda error: noted.append("ended" if error is None else explain(error)), timeout_ms
        )

    def epochs(self) -> tuple[int, ...]:
        """Where the first partition's snapshots are."""
        return self.shard.registry.epochs

    def read(self) -> Any:
        def query(shard: TableShard, offset: int) -> Any:
            return dict(shard.table.items_at(offset))

        return self.runtime.read(0, query, explain)

    def state(self) -> State | None:
        return self.runtime.states().get(0)

    def written(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(it.key, it.value) for batch in self.log.batches for it in read_records(batch)]


def batch_of(pairs: list[tuple[bytes, bytes | None]], producer_id: int = -1) -> bytes:
    """A batch of the state topic; with a producer id one of a transaction."""
    is_transactional = producer_id != -1
    return build_batch(
        [BatchRecord(key, value) for key, value in pairs],
        timestamp_ms=0,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )


def explain(error: Exception) -> str:
    return error.code.name if isinstance(error, CoordinatorError) else f"{type(error).__name__}: {error}"
