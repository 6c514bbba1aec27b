"""
A copy of all logs of a stopped store into an empty one of another kind, and the comparison of both at the end.

A source and a target are a data directory (`storage/disk/copying.py`) or a database (`storage/postgres/tools/copying.py`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.producer_states import AbortedTxn, ProducerStateEntry

StoredBatch: TypeAlias = tuple[int, int, int, bytes]
"""Base offset, last offset, largest timestamp, bytes."""


class CopiedLog(msgspec.Struct):
    """
    A log without its batches.

    Attributes:
        clean_offset: below it the log is compacted.
        epochs: leader epochs and their start offsets.
        size_bytes: of its batches, or a little more.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    start_offset: int
    end_offset: int
    clean_offset: int
    epochs: list[tuple[int, int]]
    producers: list[ProducerStateEntry]
    aborted: list[AbortedTxn]
    size_bytes: int


class LogSource(Protocol):
    @property
    def cluster_id(self) -> str: ...
    def logs(self) -> Iterable[CopiedLog]:
        """All logs, by partition."""

    def batches(self, log: CopiedLog) -> Iterator[list[StoredBatch]]:
        """The batches from the one that holds the log start, some at a time."""


class LogTarget(Protocol):
    def begin(self, cluster_id: str) -> None:
        """Mark the target, so that no node starts on it."""

    def write(self, log: CopiedLog, chunks: Iterator[list[StoredBatch]]) -> None: ...
    def end(self) -> LogSource:
        """Complete the target, and read it anew. The mark stays."""

    def release(self) -> None:
        """Remove the mark: nodes may start."""


class Copied(msgspec.Struct):
    """What was copied, and compared."""

    logs: int = 0
    batches: int = 0
    size_bytes: int = 0


class _Sum:
    """Number, bytes and digest of batches that pass."""

    def __init__(self) -> None:
        self.batches = self.size_bytes = 0
        self._digest = hashlib.blake2b()

    def passing(
        self, chunks: Iterable[list[StoredBatch]], on_bytes: Callable[[int], None]
    ) -> Iterator[list[StoredBatch]]:
        for chunk in chunks:
            for batch in chunk:
                self._digest.update(batch[3])
                self.size_bytes += len(batch[3])
            self.batches += len(chunk)
            on_bytes(sum(len(batch[3]) for batch in chunk))
            yield chunk

    def found(self) -> tuple[int, int, str]:
        return self.batches, self.size_bytes, self._digest.hexdigest()


def copy_logs(source: LogSource, target: LogTarget, on_progress: Callable[[int, int], None]) -> Copied:
    """
    Copy all logs, and compare what was written with what was read.

    Args:
        on_progress: called with the bytes that were read and compared so far, and all that will be, about.

    Raises:
        CorruptError: the target does not have what was written; it keeps its mark.
    """
    target.begin(source.cluster_id)
    logs = list(source.logs())
    total_bytes, done_bytes = 2 * sum(log.size_bytes for log in logs), 0

    def on_bytes(size_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += size_bytes
        on_progress(done_bytes, max(total_bytes, done_bytes))

    sums = []
    for log in logs:
        passed = _Sum()
        target.write(log, passed.passing(source.batches(log), on_bytes))
        sums.append(passed.found())
    written = target.end()
    try:
        _compare(source.cluster_id, logs, sums, written, on_bytes)
    except BaseException:
        target.begin(source.cluster_id)
        raise
    target.release()
    return Copied(len(logs), sum(each[0] for each in sums), sum(each[1] for each in sums))


def _compare(
    cluster_id: str,
    logs: list[CopiedLog],
    sums: list[tuple[int, int, str]],
    written: LogSource,
    on_bytes: Callable[[int], None],
) -> None:
    """
    Raises:
        CorruptError: the copy differs.
    """
    if written.cluster_id != cluster_id:
        raise CorruptError(f"the copy has the cluster id {written.cluster_id} instead of {cluster_id}")
    again = list(written.logs())
    if len(again) != len(logs):
        raise CorruptError(f"the copy has {len(again)} logs instead of {len(logs)}")
    for log, copied, expected in zip(logs, again, sums, strict=True):
        passed = _Sum()
        for _ in passed.passing(written.batches(copied), on_bytes):
            pass
        difference = _difference(log, copied) or ("its batches" if passed.found() != expected else "")
        if difference:
            raise CorruptError(f"the copy of {log.topic_partition} differs from it: {difference}")


def _difference(log: CopiedLog, copied: CopiedLog) -> str:
    """What differs between a log and its copy; empty if nothing does."""
    for name, one, other in (
        ("partition", log.topic_partition, copied.topic_partition),
        ("topic id", log.topic_id, copied.topic_id),
        ("leader epoch", log.leader_epoch, copied.leader_epoch),
        ("log start", log.start_offset, copied.start_offset),
        ("end", log.end_offset, copied.end_offset),
        ("compacted part", log.clean_offset, copied.clean_offset),
        ("leader epochs", log.epochs, copied.epochs),
        ("aborted transactions", log.aborted, copied.aborted),
        ("states of producers", states(log), states(copied)),
    ):
        if one != other:
            return f"its {name}, {other} instead of {one}"
    return ""


def states(log: CopiedLog) -> list[tuple[object, ...]]:
    """The states of the producers as a directory keeps them: with the last batch alone."""
    return sorted(
        (
            *(state.producer_id, state.producer_epoch, state.coordinator_epoch, state.timestamp_ms),
            -1 if state.transaction_offset is None else state.transaction_offset,
            *((last := state.batches[-1]).last_sequence, last.last_offset, last.offset_delta),
        )
        if state.batches
        else (state.producer_id, state.producer_epoch, state.coordinator_epoch, state.timestamp_ms)
        for state in log.producers
    )
