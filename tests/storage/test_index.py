"""The indexes of a segment: what they answer, and that they are Kafka's byte for byte."""

import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.epochs import CHECKPOINT_NAME
from kohort.storage.files.checkpoint_formats import PARTITION_METADATA, read_partition_metadata
from kohort.storage.files.checksums import read_sealed
from kohort.storage.log import LogConfig
from kohort.storage.segments.index import OffsetIndex, TimeIndex
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX
from kohort.storage.segments.snapshots import snapshot_from_bytes
from tests.storage.owner import Owner

LOGS = Path(__file__).parents[1] / "data" / "logs"
BROKER = LogConfig(index_interval_bytes=256, segment_index_bytes=8192)
"""What the broker that wrote the recorded logs was set to."""


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 500)), max_size=40), st.integers(0, 300))
def test_an_offset_is_found_by_the_greatest_entry_not_above_it(steps: list[tuple[int, int]], asked: int) -> None:
    index = OffsetIndex(Path("unused"), 100, bytes_max=8192)
    entries, offset, position = [(-1, 0)], 99, 0
    for offsets, size in steps:
        offset, position = offset + offsets, position + size
        entries.append((offset, position))
        index.append(offset, position)
    assert index.position_for(asked) == max(entry for entry in entries if entry[0] <= asked or entry[0] < 0)[1]
    assert index.position_at_most(asked * 10) == max(position for _, position in entries if position <= asked * 10)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=40), st.integers(0, 60))
def test_a_time_is_found_by_the_greatest_entry_not_above_it(steps: list[tuple[int, int]], asked: int) -> None:
    index = TimeIndex(Path("unused"), 100, bytes_max=8192)
    entries, offset = [(-1, 100)], 100
    for timestamp_ms, offsets in steps:
        offset += offsets
        if timestamp_ms > entries[-1][0]:
            entries.append((timestamp_ms, offset))
        index.maybe_append(timestamp_ms, offset)
    assert index.count == len(entries) - 1
    assert index.last == entries[-1]
    assert index.offset_for(asked) == max(entry for entry in entries if entry[0] <= asked)[1]


def test_the_last_place_of_a_time_index_is_kept_for_the_roll() -> None:
    offsets, times = OffsetIndex(Path("unused"), 0, bytes_max=24), TimeIndex(Path("unused"), 0, bytes_max=24)
    fullness = [times.is_full]
    times.maybe_append(1, 1)
    fullness.append(times.is_full)
    assert fullness == [False, True]
    for offset in range(3):
        fullness.append(offsets.is_full)
        offsets.append(offset, offset)
    assert [*fullness[2:], offsets.is_full] == [False, False, False, True]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recorded")
    with tarfile.open(LOGS / "main.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "main"


def contents(directory: Path) -> dict[str, object]:
    """
    Files by name, without what Kohort adds; snapshots decoded, for Kafka writes their entries in the order of a Java map.
    """
    return {
        path.name: sorted(snapshot_from_bytes(path.read_bytes()), key=lambda state: state.producer_id)
        if path.suffix == ".snapshot"
        else read_sealed(path)
        if path.name == CHECKPOINT_NAME
        else read_partition_metadata(directory)
        if path.name == PARTITION_METADATA
        else path.read_bytes()
        for path in directory.iterdir()
        if path.suffix != CHECKSUMS_SUFFIX
    }


ONE_BY_ONE = [
    "__consumer_offsets-0",
    "__consumer_offsets-3",
    "__transaction_state-3",
    "__share_group_state-0",
    "d-gzip-0",
    "d-logappend-0",
    "d-lz4-0",
    "d-none-0",
    "d-snappy-0",
    "d-txn-0",
    "d-txn-1",
    "d-zstd-0",
    "d-idempotent-0",
    "jobs-0",
    "orders-1",
    "payments-0",
]
"""Recorded partitions of one segment; nothing was compacted in them."""


@pytest.mark.parametrize("name", ONE_BY_ONE)
@pytest.mark.parametrize("is_one_set", [False, True])
def test_appending_the_recorded_batches_gives_the_recorded_files(
    recorded: Path, tmp_path: Path, name: str, is_one_set: bool
) -> None:
    """Also as one set: Kafka 4 decides about index entries batch by batch."""
    topic, _, partition = name.rpartition("-")
    content = (recorded / name / "00000000000000000000.log").read_bytes()
    store = Owner().disk(tmp_path)
    log = store.open(TopicPartition(topic, int(partition)), read_partition_metadata(recorded / name), BROKER)
    if is_one_set:
        log.append(content, leader_epoch=0)
    else:
        for start, size, *_ in iter_spans(content):
            log.append(content[start : start + size], leader_epoch=0)
    store.close()
    written = contents(tmp_path / name)
    assert set(written) > {"leader-epoch-checkpoint", "partition.metadata", "00000000000000000000.index"}
    assert written == {file: content for file, content in contents(recorded / name).items() if file in written}


def test_segments_rolled_where_kafka_rolled_them_have_its_indexes(recorded: Path, tmp_path: Path) -> None:
    name = "d-segments-0"
    store = Owner().disk(tmp_path)
    # The topic was rolled by time; a size that ends each segment at the same batch has the same effect on the indexes.
    files = sorted((recorded / name).glob("*.log"))
    config = LogConfig(
        index_interval_bytes=1, segment_index_bytes=8192, segment_bytes=files[0].stat().st_size, segment_ms=1 << 60
    )
    log = store.open(TopicPartition("d-segments", 0), read_partition_metadata(recorded / name), config)
    for file in files:
        content = file.read_bytes()
        for start, size, *_ in iter_spans(content):
            log.append(content[start : start + size], leader_epoch=0)
    store.close()
    written = contents(tmp_path / name)
    assert sum(file.endswith(".log") for file in written) == len(files)
    assert written == {file: content for file, content in contents(recorded / name).items() if file in written}
