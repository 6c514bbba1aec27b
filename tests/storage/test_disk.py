"""What lies in a data directory, who may use it, and what happens when the disk fails."""

import errno
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kohort.model.errors import ConfigError, UnavailableError
from kohort.model.ids import TopicPartition, uuid_text
from kohort.storage.files.checkpoint_formats import read_offsets, read_properties
from kohort.storage.files.checksums import seal
from kohort.storage.log import LogConfig
from kohort_lab.crashed_disk import Made, Synced
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch, no_calls

CONFIG = LogConfig()


@pytest.fixture
def owner() -> Owner:
    return Owner()


def files(data_dir: Path) -> set[str]:
    return {str(path.relative_to(data_dir)) for path in data_dir.rglob("*") if path.is_file()}


def test_files_appear_with_the_first_append(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    log.become_leader(0)
    checkpoints = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint"}
    assert files(tmp_path) == {".lock", "meta.properties", *checkpoints}, "Kafka makes them, too"
    log.append(batch("a"), leader_epoch=0)
    assert log.read(0, bytes_max=1), "nobody waits for the disk thread, which makes the files"
    store.flush()
    assert {"orders-0/00000000000000000000.log", "orders-0/partition.metadata"} <= files(tmp_path)
    store.close()


def test_the_first_append_and_a_roll_flush_nothing_themselves(owner: Owner, tmp_path: Path) -> None:
    """Files are made by the disk thread; what makes them durable is the journal, or the next checkpoint."""
    with FaultyFiles(tmp_path / "data") as files:
        store = owner.disk(tmp_path / "data", flush="os")
        log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=150))
        before = len(files.operations)
        for _ in range(3):
            log.append(batch("x" * 50), leader_epoch=0)
        assert len(files.operations) == before, "the owner makes no call"
        owner.wait_for(lambda: log.high_watermark == 3)
        done = files.operations[before:]
        assert any(isinstance(operation, Made) for operation in done)
        assert not any(isinstance(operation, Synced) for operation in done)
        assert len(log.segments) > 1
        store.close()


def test_a_clean_stop_leaves_what_kafka_leaves(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path, cluster_id="c")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    log.append(batch("a", timestamp_ms=5), leader_epoch=2)
    log.append(batch("b", "c", timestamp_ms=7), leader_epoch=3)
    store.open(TopicPartition("never", 0), TOPIC_ID, CONFIG)
    store.close()
    assert files(tmp_path) == {
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "meta.properties",
        "orders-0/00000000000000000000.checksums",
        "orders-0/00000000000000000000.index",
        "orders-0/00000000000000000000.log",
        "orders-0/00000000000000000000.timeindex",
        "orders-0/00000000000000000003.snapshot",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert not (tmp_path / "journal").exists()  # Apache Kafka starts with no directory that it does not know
    directory = tmp_path / "orders-0"
    assert (directory / "leader-epoch-checkpoint").read_text() == seal("0\n2\n2 0\n3 1\n")
    assert (directory / "00000000000000000000.index").read_bytes() == b""
    assert (directory / "00000000000000000000.timeindex").read_bytes().hex() == "000000000000000700000002"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == seal("0\n1\norders 0 3\n")
    assert (tmp_path / "replication-offset-checkpoint").read_text() == seal("0\n1\norders 0 3\n")
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    properties = read_properties(tmp_path / "meta.properties")
    assert properties is not None
    assert set(properties) == {"version", "cluster.id", "node.id", "directory.id"}
    assert (properties["version"], properties["cluster.id"], properties["node.id"]) == ("1", "c", "1")
    made_in = f"\nkohort.directory.id: {properties['directory.id']}"  # Apache Kafka reads two lines
    assert (directory / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw" + made_in


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_reopening_after_a_clean_stop(owner: Owner, tmp_path: Path, flush: str) -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=100)
    store = owner.disk(tmp_path, flush=flush)
    log = store.open(PARTITION, TOPIC_ID, config)
    for value in "abcdefghij":
        log.append(batch(value), leader_epoch=1)
    everything = log.read(0, bytes_max=100)
    store.close()
    store = owner.disk(tmp_path, flush=flush)
    assert list(store.partitions()) == [PARTITION]
    log = store.open(PARTITION, TOPIC_ID, config)
    assert (log.end_offset, log.high_watermark, log.leader_epoch) == (10, 10, 1)
    assert log.read(0, bytes_max=100) == everything
    assert log.append(batch("k"), leader_epoch=2) == 11
    assert log.end_offset_for_epoch(1) == (1, 10)
    store.close()


def test_from_its_start_until_its_close_a_store_counts_as_unclean(owner: Owner, tmp_path: Path) -> None:
    owner.disk(tmp_path).close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    store = owner.disk(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store.close()


def test_a_directory_in_use_is_refused(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    with pytest.raises(ConfigError, match="in use"):
        owner.disk(tmp_path)
    store.close()
    owner.disk(tmp_path).close()


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("version=0\nbroker.id=1\n", {}, "version 0"),
        ("version=1\ncluster.id=a\nnode.id=1\n", {"cluster_id": "b"}, "belongs to cluster a"),
        ("version=1\ncluster.id=a\nnode.id=2\n", {}, "belongs to node 2"),
    ],
)
def test_a_directory_of_somebody_else_is_refused_and_left_alone(
    owner: Owner, tmp_path: Path, content: str, options: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        owner.disk(tmp_path, **options)
    assert (tmp_path / "meta.properties").read_text() == content
    (tmp_path / "meta.properties").unlink()
    owner.disk(tmp_path).close()


def test_the_cluster_id_is_kept(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    cluster_id = store.cluster_id
    store.close()
    store = owner.disk(tmp_path)
    assert store.cluster_id == cluster_id
    assert len(cluster_id) == 22
    store.close()


def test_a_log_of_another_topic_of_that_name_is_set_aside(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    store.open(PARTITION, TOPIC_ID, CONFIG).append(batch("old"), leader_epoch=0)
    store.close()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, UUID(int=99), CONFIG)
    assert log.end_offset == 0
    log.append(batch("new"), leader_epoch=0)
    store.close()
    (stray,) = [path for path in tmp_path.iterdir() if path.name.endswith("-stray")]
    assert uuid_text(TOPIC_ID) in (stray / "partition.metadata").read_text()
    assert list(owner.disk(tmp_path).partitions()) == [PARTITION]


def test_a_directory_without_a_topic_id_takes_that_of_the_topic(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    store.open(PARTITION, TOPIC_ID, CONFIG).append(batch("a"), leader_epoch=0)
    store.close()
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    store = owner.disk(tmp_path)
    assert store.get(PARTITION) is not None
    with no_calls():
        assert store.open(PARTITION, UUID(int=5), CONFIG).end_offset == 1
    store.close()
    assert uuid_text(UUID(int=5)) in (tmp_path / "orders-0" / "partition.metadata").read_text()


def test_a_deleted_partition_leaves_no_files(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    store.open(PARTITION, TOPIC_ID, CONFIG).append(batch("a"), leader_epoch=0)
    store.delete(PARTITION)
    assert not (tmp_path / "orders-0").exists()
    store.close()
    assert not [name for name in files(tmp_path) if "orders" in name]
    assert read_offsets(tmp_path / "recovery-point-offset-checkpoint") == {}


def test_a_deletion_that_was_interrupted_is_finished_at_the_start(owner: Owner, tmp_path: Path) -> None:
    left = tmp_path / f"orders-0.{UUID(int=1).hex}-delete"
    left.mkdir(parents=True)
    (left / "00000000000000000000.log").write_bytes(batch("a"))
    store = owner.disk(tmp_path)
    assert list(store.partitions()) == []
    assert not left.exists()
    store.close()


def test_segments_roll_by_size_time_and_full_indexes(owner: Owner, tmp_path: Path) -> None:
    def bases(name: str, config: LogConfig, timestamps: list[int]) -> list[int]:
        log = store.open(TopicPartition(name, 0), TOPIC_ID, config)
        for timestamp_ms in timestamps:
            log.append(batch("v", timestamp_ms=timestamp_ms), leader_epoch=0)
        store.flush()
        return sorted(int(path.stem) for path in (tmp_path / f"{name}-0").glob("*.log"))

    store = owner.disk(tmp_path)
    size = len(batch("v"))
    assert bases("size", LogConfig(segment_bytes=2 * size), [1] * 5) == [0, 2, 4]
    assert bases("size-under", LogConfig(segment_bytes=2 * size - 1), [1] * 3) == [0, 1, 2]
    assert bases("time", LogConfig(segment_ms=100), [0, 100, 101, 5, 202]) == [0, 2, 4]
    assert bases("index", LogConfig(index_interval_bytes=1, segment_index_bytes=48), list(range(9))) == [0, 4, 8]
    store.close()


def test_a_jitter_spreads_the_rolls_of_partitions_and_is_less_than_the_time_itself(
    owner: Owner, tmp_path: Path
) -> None:
    """Source: Kafka LogConfig.randomSegmentJitter: below the smaller of jitter and time, another one for each segment."""

    def age_at_roll(partition: int, jitter_ms: int) -> int:
        log = store.open(
            TopicPartition(f"j{jitter_ms}", partition),
            TOPIC_ID,
            LogConfig(segment_ms=1000, segment_jitter_ms=jitter_ms),
        )
        log.append(batch("first", timestamp_ms=0), leader_epoch=0)
        for timestamp_ms in range(0, 1100, 20):
            log.append(batch("v", timestamp_ms=timestamp_ms), leader_epoch=0)
            if len(log.segments) > 1:
                return timestamp_ms
        raise AssertionError("it never rolled")

    store = owner.disk(tmp_path)
    assert age_at_roll(0, 0) == 1020
    for jitter_ms in (500, 1000, 5000):
        ages = [age_at_roll(partition, jitter_ms) for partition in range(12)]
        assert len(set(ages)) > 6, "all at once is what the jitter is there against"
        assert all(max(1000 - jitter_ms, 0) < age <= 1020 for age in ages)
    store.close()


def test_a_batch_without_time_is_no_reason_to_roll_where_others_have_one(owner: Owner, tmp_path: Path) -> None:
    """Source: Kafka LogSegment.timeWaitedForRoll: the clock counts only where the first batch has no timestamp."""
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_ms=1000))
    log.append(batch("a", timestamp_ms=5), leader_epoch=0)
    owner.clock.set(owner.clock.now_ms() + 5000)
    log.append(batch("b", timestamp_ms=-1), leader_epoch=0)
    assert len(log.segments) == 1
    store.close()


def test_records_without_time_age_by_the_clock(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_ms=1000))
    log.append(batch("a", timestamp_ms=-1), leader_epoch=0)
    owner.clock.set(owner.clock.now_ms() + 1000)
    log.append(batch("b", timestamp_ms=-1), leader_epoch=0)
    owner.clock.set(owner.clock.now_ms() + 1)
    log.append(batch("c", timestamp_ms=-1), leader_epoch=0)
    assert len(log.segments) == 2
    store.close()


class FailingSync:
    """A disk that flushes until it is told not to."""

    def __init__(self) -> None:
        self.is_broken = False

    def __call__(self, fd: int) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "the disk is gone")
        os.fdatasync(fd)


def test_a_flush_that_failed_acknowledges_nothing_and_ends_the_store(owner: Owner, tmp_path: Path) -> None:
    reasons: list[str] = []
    sync = FailingSync()
    store = owner.disk(tmp_path, sync=sync, on_offline=reasons.append)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    log.append(batch("a"), leader_epoch=0)
    store.flush()
    sync.is_broken = True
    log.append(batch("b"), leader_epoch=0)
    owner.wait_for(lambda: store.offline_reason is not None)
    sync.is_broken = False
    assert log.high_watermark == 1
    assert len(reasons) == 1
    assert "the disk is gone" in reasons[0]
    for refused in (
        lambda: log.append(batch("c"), leader_epoch=0),
        lambda: log.read(0, bytes_max=10),
        lambda: store.open(TopicPartition("other", 0), TOPIC_ID, CONFIG),
        store.flush,
    ):
        with pytest.raises(UnavailableError, match="offline"):
            refused()
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    store = owner.disk(tmp_path)
    assert store.open(PARTITION, TOPIC_ID, CONFIG).end_offset >= 1
    store.close()


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_failed_flush_at_the_end_is_no_clean_stop(owner: Owner, tmp_path: Path, flush: str) -> None:
    sync = FailingSync()
    store = owner.disk(tmp_path, sync=sync, flush=flush)
    store.open(PARTITION, TOPIC_ID, CONFIG).append(batch("a"), leader_epoch=0)
    sync.is_broken = True
    store.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_failed_checkpoint_ends_the_store(owner: Owner, tmp_path: Path) -> None:
    sync = FailingSync()
    store = owner.disk(tmp_path, sync=sync, flush="os")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    sync.is_broken = True
    owner.clock.set(owner.clock.now_ms() + 60_000)
    log.append(batch("a"), leader_epoch=0)
    owner.wait_for(lambda: store.offline_reason is not None)
    store.close()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond: what a write meets on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_takes_only_the_partition_offline(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path, flush="os")
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    other = store.open(TopicPartition("other", 0), TOPIC_ID, CONFIG)
    log.append(batch("a" * 5000), leader_epoch=0)
    store.flush()
    offline: list[bool] = []
    log.when_offline(lambda: offline.append(True))
    with file_size_limit(8192):
        log.append(batch("b" * 5000), leader_epoch=0)
        store.flush()
    assert (log.high_watermark, offline) == (1, [True])
    with pytest.raises(UnavailableError, match="offline"):
        log.append(batch("c"), leader_epoch=0)
    assert other.append(batch("d"), leader_epoch=0) == 1
    store.flush()
    assert other.high_watermark == 1
    store.close()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert log.end_offset == 1
    assert log.append(batch("e"), leader_epoch=log.leader_epoch) == 2
    store.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_full_index_ends_a_segment_after_a_start_too(owner: Owner, tmp_path: Path, is_clean: bool) -> None:
    """The segment is taken up before the topic's configuration is known."""
    config = LogConfig(segment_index_bytes=48, index_interval_bytes=1)
    store = owner.disk(tmp_path / "data")
    store.open(PARTITION, TOPIC_ID, config).append(batch("first"), leader_epoch=0)
    store.flush()
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    store.close()
    store = owner.disk(tmp_path / ("data" if is_clean else "killed"))
    log = store.open(PARTITION, TOPIC_ID, config)
    for number in range(10):
        log.append(batch(f"value {number}"), leader_epoch=0)
    assert len(log.segments) > 1
    store.close()


def test_a_search_by_time_reads_no_records_that_are_too_old(owner: Owner, tmp_path: Path, monkeypatch: Any) -> None:
    """
    The newest was deleted, and its segment is there still: all that follows would be read, and nobody be served meanwhile.
    """
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=20_000))
    log.append(batch("newest", timestamp_ms=9000), leader_epoch=0)
    for number in range(40):
        log.append(batch("x" * 5000, timestamp_ms=number), leader_epoch=0)
    store.flush()
    log.delete_before(1)
    assert len(log.segments) > 10
    pread, read_bytes = os.pread, [0]

    def counted(fd: int, size: int, position: int) -> bytes:
        read_bytes[0] += size
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    assert log.offset_for_timestamp(8000) is None
    assert read_bytes[0] <= log.segments[0].size_bytes + 3 * 8192
    found = log.offset_for_timestamp(39)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (40, 39)
    store.close()
