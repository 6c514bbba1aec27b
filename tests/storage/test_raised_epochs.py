"""
A leader epoch that began is never forgotten, though nothing was appended in it: clients may have seen it. Where they may have
seen records that are gone, a new one begins.
"""

import re
import shutil
from pathlib import Path

import pytest

from kohort.model.errors import UnavailableError
from kohort.storage.batchset import iter_spans, read_front
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batch_header import LEADER_EPOCH_AT
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("appended", [0, 2])
@pytest.mark.parametrize("flush", ["commit", "os"])
def test_an_epoch_without_records_is_there_after_a_start(
    tmp_path: Path, flush: str, appended: int, is_clean: bool
) -> None:
    owner = Owner()
    store = owner.disk(tmp_path / "data", flush=flush)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(appended):
        log.append(batch("x"), leader_epoch=0)
    log.become_leader(7)
    store.flush()
    done: list[bool] = []
    store._flush_coordinator.submit(lambda: owner.call_soon_threadsafe(lambda: done.append(True)))
    owner.wait_for(lambda: bool(done))
    if not is_clean:
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    store.close()
    store = Owner().disk(tmp_path / ("data" if is_clean else "killed"), flush=flush)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    newest = 8 if flush == "os" and not is_clean else 7
    assert (log.leader_epoch, log.end_offset) == (newest, appended)
    assert log.end_offset_for_epoch(newest) == (newest, appended)
    assert log.end_offset_for_epoch(3)[1] == appended
    log.append(batch("y"), leader_epoch=newest)
    assert log.epoch_for_offset(appended) == newest
    store.close()


def lose_the_last_record(log: DiskLog, data_dir: Path) -> None:
    """A power cut: of three batches the first two are there."""
    path = data_dir / log.directory.name / log.segments[-1].path.name
    spans = list(log.segments[-1].walk())
    with path.open("r+b") as file:
        file.truncate(spans[-1][0])


@pytest.mark.parametrize("starts", [1, 2])
def test_what_readers_saw_and_a_power_cut_took_is_told_apart_from_what_follows(tmp_path: Path, starts: int) -> None:
    """
    `--flush os` acknowledges what the operating system holds. A reader at offset 3 who is not told would miss what gets offset
    2 next, or read on in the middle of something else. Source: KIP-320; a start of Apache Kafka is an election.
    """
    store = Owner().disk(tmp_path / "data", flush="os")
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(3):
        log.append(batch("seen"), leader_epoch=0)
    store.flush()
    assert log.high_watermark == 3
    shutil.copytree(tmp_path / "data", tmp_path / "0")
    lose_the_last_record(log, tmp_path / "0")
    store.close()
    for start in range(starts):
        store = Owner().disk(tmp_path / str(start), flush="os" if start else "commit")
        shutil.copytree(tmp_path / str(start), tmp_path / str(start + 1))
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        assert log.leader_epoch == 1
        assert log.end_offset_for_epoch(0) == (0, 2)
        log.append(batch("other"), leader_epoch=1)
        store.close()


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_who_lost_nothing_goes_on_as_before(tmp_path: Path, flush: str) -> None:
    """A process that was killed may have written what nobody saw; after a clean stop there is nothing to part with at all."""
    store = Owner().disk(tmp_path / "data", flush=flush)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(3):
        log.append(batch("seen"), leader_epoch=0)
    store.flush()
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    store.close()
    for data_dir in ("data", "killed") if flush == "commit" else ("data",):
        store = Owner().disk(tmp_path / data_dir, flush=flush)
        log = store.open(PARTITION, TOPIC_ID, LogConfig())
        assert (log.leader_epoch, log.end_offset) == (0, 3)
        store.close()


def test_a_log_without_flushed_data_is_not_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The journal cannot restore it. Other partitions are served, and the next start does not forget it."""
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(3):
        log.append(batch("seen"), leader_epoch=0)
    lost_from = log.segments[-1].size_bytes * 2 // 3
    make_durable(owner, store)
    shutil.copytree(tmp_path / "data", tmp_path / "damaged")
    store.close()
    segment = tmp_path / "damaged" / str(PARTITION) / f"{0:020d}.log"
    with segment.open("r+b") as file:
        file.truncate(lost_from + 5)
    for path in (tmp_path / "damaged" / "journal").iterdir():
        path.unlink()
    reason = f"{segment} is damaged at byte {lost_from}.*flushed up to offset 3 and the valid batches end at 2"
    for _ in range(2):
        caplog.clear()
        store = Owner().disk(tmp_path / "damaged")
        assert re.search(f"log.damaged partition=orders-0.*{reason}", caplog.text)
        other = store.open(PARTITION._replace(partition=1), TOPIC_ID, LogConfig())
        other.append(batch("x"), leader_epoch=0)
        for _ in range(2):
            with pytest.raises(UnavailableError, match=f"{reason}.*kohort log repair --dry-run"):
                store.open(PARTITION, TOPIC_ID, LogConfig())
        store.close()
    assert segment.stat().st_size == lost_from + 5


def test_journaled_data_of_a_log_that_is_not_loaded_is_kept(tmp_path: Path) -> None:
    """The journal has lost the data of earlier checkpoints, and the later data does not fit. A start removes the journal."""
    owner = Owner()
    store = owner.disk(tmp_path / "data")
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for _ in range(3):
        log.append(batch("seen"), leader_epoch=0)
    lost_from = log.segments[-1].size_bytes * 2 // 3
    for _ in range(8):
        log.append(batch("x" * 40_000), leader_epoch=0)
        make_durable(owner, store)
    log.append(batch("seen"), leader_epoch=0)
    store.flush()
    owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    shutil.copytree(tmp_path / "data", tmp_path / "damaged")
    store.close()
    with (tmp_path / "damaged" / str(PARTITION) / f"{0:020d}.log").open("r+b") as file:
        file.truncate(lost_from)
    for _ in range(2):
        store = Owner().disk(tmp_path / "damaged")
        with pytest.raises(UnavailableError, match=r"orders-0 cannot be loaded: .*ends at offset 2"):
            store.open(PARTITION, TOPIC_ID, LogConfig())
        store.close()
    (kept,) = (tmp_path / "damaged" / str(PARTITION)).glob("*.journaled")
    spans = list(iter_spans(kept.read_bytes()))
    assert int(kept.stem) == spans[0][2] > 2
    assert spans[-1][3] == 11


@pytest.mark.parametrize("wrong", [0, 1, 2, 7, 1 << 20])
@pytest.mark.parametrize("number", [0, 3, 4, 7, 8, 11])
def test_a_recovery_takes_leader_epochs_from_the_journal(base: Path, number: int, wrong: int) -> None:
    """No checksum covers the leader epoch in the header of a batch. Here two epochs begin behind the last checkpoint."""
    store = Owner().disk(base)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    for each in range(12):
        log.append(batch(f"value {each}"), leader_epoch=each // 4)
    store.flush()
    abandon(store)
    (path,) = (base / str(PARTITION)).glob("*.log")
    content = bytearray(path.read_bytes())
    at = list(iter_spans(bytes(content)))[number][0] + LEADER_EPOCH_AT
    content[at : at + 4] = wrong.to_bytes(4, "big")
    path.write_bytes(content)
    store = Owner().disk(base)
    log = store.open(PARTITION, TOPIC_ID, LogConfig())
    epochs = [entry for entry in log.epochs.entries if entry[0] < 3]
    assert epochs == [(0, 0), (1, 4), (2, 8)]
    assert [read_front(log.read(offset, bytes_max=1))[2] for offset in range(12)] == [each // 4 for each in range(12)]
    store.close()
