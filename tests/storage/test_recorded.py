"""Directories that Apache Kafka 4.2.1 left behind: stopped, killed, and damaged afterwards."""

import json
import tarfile
from pathlib import Path

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.files.checkpoint_formats import read_offsets
from kohort.wire.batches import check_crc
from tests.storage.owner import Owner

LOGS = Path(__file__).parents[1] / "data" / "logs"
RUNS = ("main", "expiry", "unclean", "unclean-torn")
BEFORE_THE_START = {"d-trimmed-0": 5}
"""Batches whose records were deleted by DeleteRecords, while their segment is there."""


def unpack(run: str, to: Path) -> Path:
    with tarfile.open(LOGS / f"{run}.tar.gz") as archive:
        archive.extractall(to, filter="data")
    return to / run


@pytest.mark.parametrize("run", RUNS)
def test_a_recorded_directory_is_read_whole(run: str, tmp_path: Path) -> None:
    expected = json.loads((LOGS / f"{run}.json").read_text())
    store = Owner().disk(unpack(run, tmp_path))
    assert [str(topic_partition) for topic_partition in store.partitions()] == sorted(expected)
    for topic_partition in store.partitions():
        log = store.get(topic_partition)
        assert log is not None
        offset, batches = log.log_start_offset, BEFORE_THE_START.get(str(topic_partition), 0)
        while data := log.read(offset, bytes_max=300):
            assert all(check_crc(data, start) for start, *_ in iter_spans(data))
            spans = list(iter_spans(data))
            offset, batches = spans[-1][3] + 1, batches + len(spans)
        wanted = expected[str(topic_partition)]
        assert (batches, offset) == (wanted["batches"], wanted["next_offset"] or log.end_offset), topic_partition
        assert log.high_watermark == log.end_offset == offset
    store.close()


@pytest.mark.parametrize("run", RUNS[:2])
def test_a_clean_directory_that_is_only_read_stays_as_it_was(run: str, tmp_path: Path) -> None:
    directory, before = unpack(run, tmp_path / "opened"), unpack(run, tmp_path / "before")
    store = Owner().disk(directory)
    for topic_partition in store.partitions():
        assert store.get(topic_partition) is not None
    store.close()
    changed = {
        str(path.relative_to(before))
        for path in before.rglob("*")
        if path.is_file() and not path.name.endswith(".deleted")
        if (directory / path.relative_to(before)).read_bytes() != path.read_bytes()
    }
    # An empty log that is loaded forgets epochs that begin at its end; the checkpoints get checksums and another order.
    assert changed <= {
        ".kafka_cleanshutdown",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "words-0/leader-epoch-checkpoint",
        "words-1/leader-epoch-checkpoint",
    }
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        assert read_offsets(directory / name) == read_offsets(before / name)


def test_the_log_start_lies_inside_a_segment(tmp_path: Path) -> None:
    store = Owner().disk(unpack("main", tmp_path))
    log = store.get(TopicPartition("d-trimmed", 0))
    assert log is not None
    assert log.log_start_offset == 13
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 13
    store.close()
    assert read_offsets(tmp_path / "main" / "log-start-offset-checkpoint") == {TopicPartition("d-trimmed", 0): 13}


def test_log_append_time_is_every_records_time(tmp_path: Path) -> None:
    store = Owner().disk(unpack("main", tmp_path))
    log = store.get(TopicPartition("d-logappend", 0))
    assert log is not None
    first, second, *_ = list(iter_spans(log.read(0, bytes_max=1 << 20)))
    for span in (first, second):
        found = log.offset_for_timestamp(span[4])
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (span[2], span[4])
    store.close()
