"""A state machine that is easy to check: a table of names and numbers, and what transactions hold back."""

from typing import Any

import msgspec

from kohort.machine.shard import Deadlines, PlainShard, Result
from kohort.machine.steps import Wait, Wake
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.model.image import ClusterImage, ImageDelta


class Put(msgspec.Struct, frozen=True):
    """`name` is now `number`; None takes it away."""

    name: str
    number: int | None


class PutSerde:
    def encode(self, record: Put, /) -> tuple[bytes, bytes | None]:
        return record.name.encode(), None if record.number is None else str(record.number).encode()

    def decode(self, key: bytes, value: bytes | None, /) -> Put:
        if key.startswith(b"\xff"):
            raise UnknownRecordTypeError(key[0])
        try:
            return Put(key.decode(), None if value is None else int(value))
        except ValueError as error:
            raise CorruptError(str(error)) from error


POISONED_PRODUCER_ID = 666
"""The end of its transactions cannot be replayed."""


class TableShard(PlainShard[Put]):
    """Keeps what was put; fails on replaying the name "poison" and when it is told to say goodbye as "rude"."""

    def __init__(self, partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> None:
        self.partition = partition
        self.registry = registry
        self.deadlines = deadlines
        self.table: TimelineDict[str, int] = TimelineDict(registry)
        self.pending: TimelineDict[int, tuple[Put, ...]] = TimelineDict(registry)
        self.producers: list[tuple[int, int]] = []
        self.parked: TimelineDict[int, None] = TimelineDict(registry)
        self.images: list[Any] = []
        self.deltas: list[ImageDelta] = []
        self.coordinator_epochs: list[int] = []
        self.replayed_under: list[int] = []
        """The coordinator epoch that the shard knew at each replay."""
        self.loaded_at: int | None = None
        self.is_unloaded = False

    # What the runtime calls.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: Put, /) -> None:
        if record.name == "poison":
            raise RuntimeError("poison")
        self.replayed_under.append(self.coordinator_epochs[-1] if self.coordinator_epochs else -1)
        if producer_id != -1:
            self.producers.append((producer_id, producer_epoch))
            self.pending.put(producer_id, (*self.pending.get(producer_id, ()), record))
        elif record.number is None:
            self.table.remove(record.name)
        else:
            self.table.put(record.name, record.number)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, /, *, committed: bool) -> None:
        if producer_id == POISONED_PRODUCER_ID:
            raise RuntimeError("poison")
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self.replay(0, -1, -1, record)

    def on_loaded(self, image: ClusterImage, now_ms: int, /) -> None:
        self.loaded_at = now_ms
        self.images.append(image)

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        self.coordinator_epochs.append(coordinator_epoch)

    def on_image(self, image: ClusterImage, delta: ImageDelta, now_ms: int, /) -> Result[Put, None]:
        self.images.append(image)
        self.deltas.append(delta)
        return Result([Put(topic.name, None) for topic in delta.deleted])

    def on_unloaded(self) -> None:
        self.is_unloaded = True
        if self.table.get("rude"):
            raise RuntimeError("rude")

    # Operations and queries.

    def put(self, response: str, *puts: tuple[str, int | None], is_atomic: bool = True) -> Result[Put, str]:
        return Result([Put(name, number) for name, number in puts], response, is_atomic=is_atomic)

    def park(self) -> Result[Put, str]:
        """Let the request wait."""
        number = len(self.parked)
        self.parked.put(number, None)
        return Result((), Wait(("parked", str(number)), None, None, None))

    def release(self, response: str, *puts: tuple[str, int | None]) -> Result[Put, str]:
        """Answer all that wait."""
        wakes = [Wake(("parked", str(number)), response) for number in self.parked]
        self.parked.clear()
        return Result([Put(name, number) for name, number in puts], response, wakes=wakes)
