"""A data directory as the source or the target of a copy of all logs (`storage/logs/copied.py`)."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition, uuid_text
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.batchset import iter_spans
from kohort.storage.cleaning.cleaner import CLEANER_OFFSETS
from kohort.storage.disk.store import CLEAN_SHUTDOWN_TEXT, DiskStore
from kohort.storage.durability.checkpoints import CheckpointFiles
from kohort.storage.epochs import CHECKPOINT_NAME, EpochCache
from kohort.storage.files import syscalls
from kohort.storage.files.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    COPYING,
    META_PROPERTIES,
    DirectoryLock,
    offsets_to_text,
    read_properties,
    write_atomically,
    write_partition_metadata,
)
from kohort.storage.files.checksums import comment, seal
from kohort.storage.log import AppendLimits, LogConfig
from kohort.storage.logs.copied import CopiedLog, LogSource, StoredBatch
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.snapshots import write_snapshot

_CHUNK_BYTES: Final = 1 << 20


class DirectorySource:
    """
    The logs of a data directory, which is opened as by a node: what a crash has left is recovered.

    Raises:
        ConfigError: there is no data directory of Kohort, it is in use, or cannot be loaded.
    """

    def __init__(self, data_dir: Path) -> None:
        properties = read_properties(data_dir / META_PROPERTIES) if data_dir.is_dir() else None
        node_id = (properties or {}).get("node.id", "")
        if not node_id.isdigit():
            raise ConfigError(f"{data_dir} is no data directory of Kohort: it has no {META_PROPERTIES} with a node.id")
        self._clock: Final = SystemClock()
        self.store: Final = DiskStore(
            data_dir,
            defer=_ignore,
            call_soon_threadsafe=_ignore,
            flush="commit",
            node_id=int(node_id),
            clock=self._clock,
        )

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    def logs(self) -> Iterable[CopiedLog]:
        for topic_partition in self.store.partitions():
            log = self._log(topic_partition)
            yield CopiedLog(
                topic_partition=topic_partition,
                topic_id=log.topic_id,
                leader_epoch=log.leader_epoch,
                start_offset=log.log_start_offset,
                end_offset=log.end_offset,
                clean_offset=self._clean_offset(log),
                epochs=log.epochs.entries,
                producers=list(log.producers.states.values()),
                aborted=[
                    entry
                    for segment in log.segments
                    for entry in segment.aborted.entries
                    if entry.last_offset >= log.log_start_offset
                ],
                size_bytes=log.size_bytes,
            )

    def _clean_offset(self, log: DiskLog) -> int:
        offset = self.store.cleaner.offsets.get(log.topic_partition, 0)
        return offset if log.log_start_offset <= offset <= log.end_offset else 0

    def _log(self, topic_partition: TopicPartition) -> DiskLog:
        log = self.store.get(topic_partition)
        assert log is not None, "the store has listed it"
        return log

    def batches(self, log: CopiedLog) -> Iterator[list[StoredBatch]]:
        found, offset = self._log(log.topic_partition), log.start_offset
        while offset < log.end_offset and (data := found.read(offset, bytes_max=_CHUNK_BYTES)):
            chunk = [
                (base_offset, last_offset, max_timestamp_ms, data[start : start + size])
                for start, size, base_offset, last_offset, max_timestamp_ms in iter_spans(data)
            ]
            yield chunk
            offset = chunk[-1][1] + 1

    def close(self) -> None:
        self.store.close()


class DirectoryTarget:
    """
    An empty data directory.

    Raises:
        ConfigError: it is not empty, in use, or cannot be made.
    """

    def __init__(self, data_dir: Path, source: str, *, node_id: int) -> None:
        try:
            data_dir.mkdir(syscalls.DIRECTORY_MODE, parents=True, exist_ok=True)
            is_used = any(data_dir.iterdir())
        except OSError as error:
            raise ConfigError(f"{data_dir} cannot be used: {error.strerror}") from None
        if is_used:
            raise ConfigError(f"{data_dir} is not empty: a copy needs an empty directory. Nothing was changed")
        self._path: Final = data_dir
        self._source: Final = source
        self._node_id: Final = node_id
        self._directory_id: Final = uuid_text(uuid4())
        self._cluster_id = ""
        self._clock: Final = SystemClock()
        self._lock: DirectoryLock | None = DirectoryLock(data_dir)
        self._ends: Final[dict[TopicPartition, int]] = {}
        self._starts: Final[dict[TopicPartition, int]] = {}
        self._clean: Final[dict[TopicPartition, int]] = {}
        self._written: DirectorySource | None = None

    def _write_properties(self, mark: str) -> None:
        text = f"version=1\ncluster.id={self._cluster_id}\nnode.id={self._node_id}\ndirectory.id={self._directory_id}\n{mark}"
        write_atomically(self._path / META_PROPERTIES, comment(text))

    def begin(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._write_properties(f"{COPYING}={self._source}\n")

    def write(self, log: CopiedLog, chunks: Iterator[list[StoredBatch]]) -> None:
        directory = self._path / str(log.topic_partition)
        syscalls.ensure_directory(directory)
        write_partition_metadata(directory, log.topic_id, self._directory_id, is_synced=True)
        epochs = EpochCache()
        for leader_epoch, start_offset in log.epochs:
            epochs.assign(leader_epoch, start_offset)
        write_atomically(directory / CHECKPOINT_NAME, seal(epochs.to_text()))
        paths = self._write_segments(directory, log, chunks)
        paths.append(write_snapshot(directory, log.end_offset, ProducerStateManager(log.producers)))
        for path in (*paths, directory, self._path):
            syscalls.sync_directory(path)
        self._ends[log.topic_partition] = log.end_offset
        self._starts[log.topic_partition] = log.start_offset
        if log.clean_offset:
            self._clean[log.topic_partition] = log.clean_offset

    def _write_segments(self, directory: Path, log: CopiedLog, chunks: Iterator[list[StoredBatch]]) -> list[Path]:
        """Write the batches and their aborted transactions; returns the files."""
        config, files, segment = LogConfig(), list[Path](), None
        limits = AppendLimits(config)
        aborted = iter(log.aborted)
        coming = next(aborted, None)
        for base_offset, last_offset, max_timestamp_ms, data in (batch for chunk in chunks for batch in chunk):
            if segment is None or segment.must_roll(len(data), last_offset, max_timestamp_ms, limits, self._clock):
                first = min(base_offset, log.start_offset)  # a compacted log may begin with a gap
                if segment is not None:
                    files += _end(segment)
                    first = base_offset
                segment = self._begin(directory, first, config)
            spans = [(0, len(data), base_offset, last_offset, max_timestamp_ms)]
            segment.append(data, spans, index_interval_bytes=config.index_interval_bytes)
            while coming is not None and coming.last_offset <= last_offset:
                segment.aborted.append(coming)
                coming = next(aborted, None)
        if segment is None:
            segment = self._begin(directory, log.end_offset, config)
        return files + _end(segment)

    def _begin(self, directory: Path, base_offset: int, config: LogConfig) -> Segment:
        segment = Segment(directory, base_offset, config, created_ms=self._clock.now_ms())
        segment.create()
        return segment

    def end(self) -> LogSource:
        CheckpointFiles(self._path).write(self._ends, self._starts)
        write_atomically(self._path / CLEANER_OFFSETS, offsets_to_text(self._clean))
        write_atomically(self._path / CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_TEXT)
        self._write_properties("")
        self.close()
        self._written = DirectorySource(self._path)
        return self._written

    def release(self) -> None:
        """The mark is gone already: the comparison opens the directory."""

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._written is not None:
            self._written.close()
            self._written = None


def _end(segment: Segment) -> list[Path]:
    segment.write_indexes()
    segment.close()
    return [path for path in segment.files() if path.exists()]


def _ignore(_action: Callable[[], None]) -> None:
    """No turn of an event loop follows."""
