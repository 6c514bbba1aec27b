"""Logs in memory whose records become durable by hand, and that lose the others in a crash."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from uuid import UUID

from kohort.machine.shard import EndTransaction
from kohort.model.errors import StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock, Defer
from kohort.storage.log import LogConfig
from kohort.storage.memory import MemoryStore
from kohort.storage.memory.log import MemoryLog, Watermarks
from kohort.wire.batches import BatchHeader, iter_batches


class _Held(Watermarks):
    """Leaves high watermarks where they are."""

    def add(self, _log: object) -> None:
        """Wait for `SimulatedLog.commit`."""


class SimulatedLog(MemoryLog):
    """
    One partition. An append raises `fail_next_append`, and a read `fail_next_read`, if it is set.

    Attributes:
        before_append: called before each append; it may raise.
        appends_before_failure: the number of appends that succeed before one raises `fail_next_append`.
    """

    fail_next_append: StorageError | None = None
    fail_next_read: StorageError | None = None
    appends_before_failure = 0
    before_append: Callable[[], None] | None = None

    def append(self, batch: bytes | bytearray, *, leader_epoch: int, end: EndTransaction | None = None) -> int:
        if self.before_append is not None:
            self.before_append()
        if self.appends_before_failure > 0:
            self.appends_before_failure -= 1
        else:
            error, self.fail_next_append = self.fail_next_append, None
            if error is not None:
                raise error
        return super().append(batch, leader_epoch=leader_epoch, end=end)

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        error, self.fail_next_read = self.fail_next_read, None
        if error is not None:
            raise error
        return super().read(offset, bytes_max=bytes_max, up_to=up_to)

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """All batches with their headers."""
        data = super().read(self.log_start_offset, bytes_max=1 << 30)
        return [(header, data[at : at + header.size_bytes]) for at, header in iter_batches(data)]

    def uncommitted_ends(self) -> list[int]:
        """The end offset of each batch above the high watermark."""
        if self.high_watermark == self.end_offset:
            return []
        return [header.next_offset for header, _ in self.batches() if header.next_offset > self.high_watermark]

    def commit(self, share: float = 1.0) -> None:
        """Advance the high watermark by that share of the batches above it, one batch at least."""
        ends = self.uncommitted_ends()
        if ends:
            self.advance(ends[max(int(len(ends) * share), 1) - 1])


class SimulatedStore(MemoryStore):
    """
    The logs of one node.

    Args:
        is_held: whether the high watermark of a partition waits for `SimulatedLog.commit`; otherwise the records of a turn are
            durable at its end.

    Attributes:
        appends_left: the number of appends to held partitions before the node dies, after which they fail; None if it does not
            die.
    """

    def __init__(self, defer: Defer, clock: Clock, is_held: Callable[[TopicPartition], bool]) -> None:
        super().__init__(defer, clock=clock)
        self._defer = defer
        self._is_held = is_held
        self._log_clock = clock
        self._held: list[SimulatedLog] = []
        self.appends_left: int | None = None

    @property
    def is_dead(self) -> bool:
        return self.appends_left is not None and self.appends_left <= 0

    def open(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> SimulatedLog:
        log = self._logs.get(topic_partition)
        if isinstance(log, SimulatedLog) and log.topic_id == topic_id:
            log.config = config
            return log
        return self._add_log(topic_partition, topic_id, config)

    def _add_log(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> SimulatedLog:
        is_held = self._is_held(topic_partition)
        log = self._logs[topic_partition] = SimulatedLog(
            topic_partition,
            topic_id,
            config,
            watermarks=_Held(self._defer) if is_held else Watermarks(self._defer),
            clock=self._log_clock,
            on_roll=lambda _: None,
        )
        if is_held:
            log.before_append = self._count_append
            self._held.append(log)
            self._held.sort(key=lambda each: each.topic_partition)
        return log

    def _count_append(self) -> None:
        if self.appends_left is None:
            return
        if self.appends_left <= 0:
            raise UnavailableError("the node has died")
        self.appends_left -= 1

    def held_logs(self) -> list[SimulatedLog]:
        """The logs whose high watermark waits for `SimulatedLog.commit`, in the order of their partitions."""
        return self._held

    def after_crash(self, chance: Random, defer: Defer, clock: Clock) -> SimulatedStore:
        """
        Return the store as the node finds it at its next start. Each log has lost a random number of its newest batches, and
        none below its high watermark.
        """
        survivor = SimulatedStore(defer, clock, self._is_held)
        for topic_partition, old in sorted(self._logs.items()):
            assert isinstance(old, SimulatedLog)
            end = chance.choice([old.high_watermark, *old.uncommitted_ends()])
            new = survivor._add_log(topic_partition, old.topic_id, old.config)
            for header, batch in old.batches():
                if header.next_offset <= end:
                    new.append(batch, leader_epoch=header.partition_leader_epoch)
            new.advance(new.end_offset)
            old.refusal = "the node has crashed"
        return survivor
