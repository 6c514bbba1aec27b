"""
Cost of the storage without a network: `python -m bench.storage [--megabytes 1024] [--record-bytes 1000,100]`.

- compaction of a log in which one record of ten is the newest of its key: seconds, and peak memory of the cleaner process
- recovery of a log after an unclean stop without a checkpoint: MB/s
- the start on a directory of cleanly closed partitions: seconds

The page cache is warm, as after writing. Each figure is from one run.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.disk import DiskStore
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN, LOG_START_OFFSETS, RECOVERY_POINTS
from kohort.storage.log import CleanerConfig, LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.testing import VirtualNode
from kohort.wire.batches import encode_batch

MIB = 1 << 20
TOPIC = TopicPartition("bench", 0)
TOPIC_ID = UUID(int=7)
BATCH_BYTES = 16 * 1024
LIVE_SHARE = 10
SEGMENT_BYTES = 100 * MIB
START_PARTITIONS = 1000
WAIT_SECONDS = 600.0


class StorageFigures(msgspec.Struct, frozen=True):
    """
    Attributes:
        compaction: per size of a record, in bytes.
        recovery_mb_per_s: of 10^6 bytes.
    """

    megabytes: int
    compaction: dict[int, "CompactionFigures"]
    recovery_mb_per_s: float
    start_partitions: int
    start_s: float


class CompactionFigures(msgspec.Struct, frozen=True):
    """`memory_bytes`: the peak resident memory of the cleaner process; -1 if unknown."""

    records: int
    live_keys: int
    elapsed_s: float
    memory_bytes: int
    left_bytes: int


class Owner:
    """The thread that owns a store."""

    def __init__(self) -> None:
        self.node = VirtualNode()
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def open(self, directory: Path) -> DiskStore:
        return DiskStore(
            directory,
            defer=self.node.defer,
            call_soon_threadsafe=self.posted.put,
            clock=self.node.clock,
            flush="os",
            node_id=1,
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self.node.run_turn()
        while not condition():
            try:
                self.posted.get(timeout=WAIT_SECONDS)()
            except Empty:
                raise TimeoutError(f"nothing happened for {WAIT_SECONDS} s") from None
            self.node.run_turn()


def fill(log: DiskLog, owner: Owner, *, size_bytes: int, record_bytes: int) -> tuple[int, int]:
    """Write records of random keys; returns the number of records and of keys."""
    chance = random.Random(record_bytes)
    count = size_bytes // record_bytes
    keys = max(count // LIVE_SHARE, 1)
    per_batch = max(BATCH_BYTES // record_bytes, 1)
    value = bytes(chance.randrange(256) for _ in range(max(record_bytes - 26, 1)))
    written = 0
    while written < count:
        pairs = [(b"key-%012d" % chance.randrange(keys), value) for _ in range(per_batch)]
        log.append(encode_batch(pairs, 1_700_000_000_000 + written, base_sequence=-1), leader_epoch=0)
        written += per_batch
        owner.node.run_turn()
    return written, keys


@contextmanager
def watched_memory(pid: Callable[[], int | None]) -> Iterator[list[int]]:
    """Sample the peak resident memory of a process, if there is a /proc; it becomes the only entry of the list."""
    peak, stop = [-1], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            try:
                status = Path(f"/proc/{pid()}/status").read_text()
            except OSError:
                continue
            found = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
            peak[0] = max(peak[0], *found, -1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def compaction(directory: Path, *, size_bytes: int, record_bytes: int) -> CompactionFigures:
    """Seconds from the decision to clean until the last segment is in place and the first dirty offset is written."""
    owner = Owner()
    store = owner.open(directory)
    config = LogConfig(
        segment_bytes=min(SEGMENT_BYTES, max(size_bytes // 8, MIB)), cleanup_policy="compact", retention_ms=-1
    )
    log = store.open(TOPIC, TOPIC_ID, config)
    records, keys = fill(log, owner, size_bytes=size_bytes, record_bytes=record_bytes)
    store.close()
    store = owner.open(directory)
    log = store.open(TOPIC, TOPIC_ID, config)
    cleaner = store.cleaner
    with watched_memory(cleaner.process_id) as peak:
        started = perf_counter()
        store.clean(CleanerConfig())
        owner.wait_for(lambda: cleaner.counters.passes > 0 and not cleaner.in_progress)
        elapsed_s = perf_counter() - started
    left_bytes = log.size_bytes
    store.close()
    return CompactionFigures(records, keys, elapsed_s, peak[0], left_bytes)


def recovery(directory: Path, *, size_bytes: int) -> float:
    """MB/s of a start that reads all data."""
    owner = Owner()
    store = owner.open(directory)
    log = store.open(TOPIC, TOPIC_ID, LogConfig(segment_bytes=SEGMENT_BYTES))
    fill(log, owner, size_bytes=size_bytes, record_bytes=1000)
    written_bytes = log.size_bytes
    store.close()
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS, LOG_START_OFFSETS):
        (directory / name).unlink(missing_ok=True)
    started = perf_counter()
    store = owner.open(directory)
    elapsed_s = perf_counter() - started
    found = store.get(TOPIC)
    assert found is not None
    assert found.size_bytes == written_bytes
    store.close()
    return written_bytes / elapsed_s / 1e6


def start(directory: Path, *, partitions: int) -> float:
    """Seconds until every partition of a cleanly closed directory is open."""
    owner = Owner()
    store = owner.open(directory)
    for index in range(partitions):
        log = store.open(TopicPartition("bench", index), TOPIC_ID, LogConfig())
        for number in range(3):
            log.append(encode_batch([(b"key", b"value %d" % number)], 1_700_000_000_000), leader_epoch=0)
    store.close()
    started = perf_counter()
    store = owner.open(directory)
    for index in range(partitions):
        assert store.get(TopicPartition("bench", index)) is not None
    elapsed_s = perf_counter() - started
    store.close()
    return elapsed_s


def measure(
    *,
    megabytes: int,
    record_bytes: tuple[int, ...],
    partitions: int = START_PARTITIONS,
    directory: Path | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> StorageFigures:
    """Run all measurements in a temporary directory under `directory`."""
    compacted = {}
    for size in record_bytes:
        with _scratch(directory) as path:
            compacted[size] = figures = compaction(path, size_bytes=megabytes * MIB, record_bytes=size)
        tell(
            f"compaction of {megabytes} MiB, records of {size} bytes, {figures.live_keys} of {figures.records} live:"
            f" {figures.elapsed_s:.1f} s, {figures.memory_bytes / MIB:.0f} MiB of memory,"
            f" {figures.left_bytes / MIB:.0f} MiB left"
        )
    with _scratch(directory) as path:
        mb_per_s = recovery(path, size_bytes=megabytes * MIB)
    tell(f"recovery of {megabytes} MiB: {mb_per_s:.0f} MB/s")
    with _scratch(directory) as path:
        start_s = start(path, partitions=partitions)
    tell(f"start on {partitions} cleanly closed partitions: {start_s:.2f} s")
    return StorageFigures(megabytes, compacted, mb_per_s, partitions, start_s)


@contextmanager
def _scratch(directory: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kohort-bench-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description="What the storage costs by itself.")
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the log that is compacted and recovered")
    parser.add_argument("--record-bytes", default="1000,100", help="sizes of records, separated by commas")
    parser.add_argument("--partitions", type=int, default=START_PARTITIONS, help="partitions of the start")
    parser.add_argument("--directory", type=Path, help="where to write; the system's temporary directory by default")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.record_bytes.split(","))
    figures = measure(
        megabytes=options.megabytes,
        record_bytes=sizes,
        partitions=options.partitions,
        directory=options.directory,
        tell=lambda line: print(line, file=sys.stderr if options.json else sys.stdout, flush=True),
    )
    if options.json:
        print(json.dumps(msgspec.to_builtins(figures, str_keys=True)))


if __name__ == "__main__":
    main()
