"""Past bugs of transactions in logs (`tests/broker/PAST_BUGS.md`) that belong to no other table."""

from contextlib import suppress
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from kohort.model.errors import RecordTooLargeError, UnavailableError
from kohort.storage.cleaning.job import LastRecord
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.memory import MemoryStore
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.snapshots import snapshot_from_bytes, snapshot_to_bytes
from kohort.wire.batches import read_header
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch
from tests.storage.test_compaction_rules import NOW_MS, RETENTION_MS
from tests.storage.test_compaction_rules import Log as CleanedLog
from tests.storage.test_producers import PRODUCER, known, learned, marker, sent

MARKER_MS = 5000
"""The timestamp of `marker`; those of `sent` are about 1000."""


def data(sequence: int = 0, *, producer_id: int = PRODUCER, count: int = 1) -> bytes:
    return sent(sequence, count=count, producer_id=producer_id, transactional=True)


# Markers


def test_a_producer_known_by_a_marker_alone_has_no_batch_after_a_restart() -> None:
    """KAFKA-9144: the snapshot has -1 for the last offset."""
    before = learned(marker(coordinator_epoch=3))
    after = ProducerStateManager(snapshot_from_bytes(snapshot_to_bytes(before)))
    assert known(after) == known(before)
    assert not after.states[PRODUCER].batches
    assert after.states[PRODUCER].coordinator_epoch == 3


def test_a_marker_renews_the_time_of_its_producer() -> None:
    """KAFKA-9144: else the state expires, and an old coordinator could write a marker again."""
    producers = learned(data(), marker(coordinator_epoch=3))
    producers.expire(MARKER_MS + 99, expiration_ms=100)
    assert producers.states[PRODUCER].coordinator_epoch == 3
    producers.expire(MARKER_MS + 100, expiration_ms=100)
    assert producers.states == {}


def test_a_marker_without_a_transaction_leaves_no_trace_for_readers(tmp_path: Path) -> None:
    """KAFKA-10702: neither the last stable offset nor the transaction index knows of it."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    log.append(marker(committed=False), leader_epoch=0)
    assert log.producers.first_unstable_offset is None
    store.flush()
    assert log.last_stable_offset == log.high_watermark == 1
    assert log.aborted_transactions(0, log.read(0, bytes_max=1000)) == []
    assert list(tmp_path.glob("*/*.txnindex")) == []
    store.close()


def test_a_checkpoint_flushes_the_index_of_aborted_transactions_with_its_directory(tmp_path: Path) -> None:
    """Else a consumer that reads committed records gets aborted ones after a power cut."""
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for record in (data(), marker(committed=False)):
        log.append(record, leader_epoch=0)
    store.flush()
    assert log.aborted_transactions(0, log.read(0, bytes_max=1000))
    assert isinstance(log, DiskLog)
    files = log.begin_checkpoint()
    assert log.directory in files
    assert {path.suffix for path in files} >= {".log", ".txnindex"}
    log.end_checkpoint()
    store.close()


# Appends that fail


def test_a_refused_append_leaves_the_producers_as_they_were() -> None:
    """KAFKA-6683."""
    owner = Owner()
    store = MemoryStore(owner.defer, clock=owner.clock)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(max_message_bytes=200))
    log.append(data(), leader_epoch=0)
    before = known(log.producers)
    with pytest.raises(RecordTooLargeError):
        log.append(data(1, count=100), leader_epoch=0)
    assert (known(log.producers), log.end_offset) == (before, 1)
    log.append(data(1), leader_epoch=0)


@pytest.mark.parametrize("is_marker", [False, True])
def test_a_failed_write_leaves_the_producers_as_they_were(tmp_path: Path, *, is_marker: bool) -> None:
    """KAFKA-6683. The partition is offline, and the next start knows the producers as they were."""
    owner = Owner()
    with FaultyFiles(tmp_path) as files:
        store = owner.disk(tmp_path)
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        log.append(data(), leader_epoch=0)
        store.flush()
        before = known(log.producers)
        files.refuse = fail_on("write", ".log", code=ENOSPC)
        log.append(marker(committed=False) if is_marker else data(1), leader_epoch=0)
        store.flush()
        with pytest.raises(UnavailableError):
            log.append(data(1), leader_epoch=0)
        assert (log.high_watermark, log.last_stable_offset) == (1, 0)
        files.refuse = lambda _call, _path: None
        abandon(store)
        store = owner.disk(tmp_path)
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        assert (known(log.producers), log.end_offset, log.last_stable_offset) == (before, 1, 0)
        store.close()


def test_a_transaction_index_that_cannot_be_written_takes_the_partition_offline(tmp_path: Path) -> None:
    """
    KAFKA-7866: no offset is given out twice, and readers of committed records do not pass the transaction. The next start
    rebuilds the index.
    """
    owner = Owner()
    with FaultyFiles(tmp_path) as files:
        store = owner.disk(tmp_path)
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        log.append(data(), leader_epoch=0)
        log.append(batch("plain"), leader_epoch=0)
        store.flush()
        assert log.last_stable_offset == 0
        files.refuse = fail_on("open", ".txnindex", code=EIO)
        log.append(marker(committed=False), leader_epoch=0)
        store.flush()
        assert log.refusal is not None
        with pytest.raises(UnavailableError):
            log.append(batch("later"), leader_epoch=0)
        with suppress(UnavailableError):
            store.flush()
        owner.run_posted()
        assert log.last_stable_offset == 0
        files.refuse = lambda _call, _path: None
        abandon(store)
    again = Owner().disk(tmp_path)
    found = again.get(PARTITION)
    assert found is not None
    assert (found.end_offset, found.last_stable_offset) == (3, 3)
    assert found.aborted_transactions(0, found.read(0, bytes_max=1000)) == [AbortedTxn(PRODUCER, 0, 2, 3)]
    again.close()


# Truncation


def test_an_open_transaction_that_a_crash_cut_off_is_not_open(tmp_path: Path) -> None:
    """KAFKA-12153: the last stable offset is that of what is left."""
    owner = Owner()
    store = owner.disk(tmp_path, flush="os")
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    log.append(batch("plain"), leader_epoch=0)
    store.flush()
    size = log.size_bytes
    log.append(data(), leader_epoch=0)
    log.append(batch("behind"), leader_epoch=0)
    store.flush()
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    abandon(store)
    path = next(tmp_path.glob("*/*.log"))
    path.write_bytes(path.read_bytes()[: size + 10])
    again = Owner().disk(tmp_path, flush="os")
    found = again.get(PARTITION)
    assert found is not None
    assert (found.end_offset, found.high_watermark, found.last_stable_offset) == (1, 1, 1)
    assert not found.producers.has_transaction(PRODUCER)
    again.close()


# The cleaner


@pytest.mark.parametrize("key", ["\0\0\0\0", "\0\0\0\1"], ids=["abort", "commit"])
def test_a_key_that_looks_like_that_of_a_marker(key: str) -> None:
    """KAFKA-14055: records and markers do not compact each other."""
    log = CleanedLog()
    log.put((key, "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.put_marker(5)
    log.put((key, "2"))
    log.put(("other", "3"), producer_id=6, producer_epoch=0, base_sequence=0, transactional=True)
    log.put_marker(6)
    log.clean()
    assert log.values() == [(2, "2"), (3, "3")]
    assert [read_header(batch).is_control for batch in log.batches].count(True) == 2


def test_the_last_of_a_coordinators_batches_is_found_by_its_offset() -> None:
    """KAFKA-8335: all of them have sequence 0."""
    log = CleanedLog()
    for value in ("1", "2"):
        log.put(("k", value), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        log.put_marker(5)
    log.put(("k", "3"))
    log.last_records = {5: LastRecord(2, 0)}
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + RETENTION_MS):
        log.clean(now_ms)
    left = [(read_header(batch).base_offset, read_header(batch).record_count) for batch in log.batches]
    assert left == [(2, 0), (3, 1), (4, 1)], "the batch at 0 is gone, and so is its marker"
