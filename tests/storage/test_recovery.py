"""After a stop that was not clean: nothing acknowledged is missing, nothing torn is served, and twice is as good as once."""

import logging
import shutil
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.model.errors import ConfigError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import BULK_BYTES, CHECKPOINT_INTERVAL_MS
from kohort.storage.files.checkpoint_formats import read_offsets
from kohort.storage.log import Log, LogConfig
from kohort.wire.batches import read_header
from kohort_lab.crashed_disk import Kept, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.compacted import make_durable
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
LOG = "orders-0/00000000000000000000.log"


@pytest.fixture
def owner() -> Owner:
    return Owner()


def crash(store: DiskStore, to: Path) -> Path:
    """
    The data directory as it is at this moment, in another place: what a crash would leave, the page cache included.

    Directories of deleted partitions are left out: a thread removes them while they would be copied.
    """
    shutil.copytree(store.data_dir, to, ignore=shutil.ignore_patterns(".lock", "*.tmp", "*-delete"))
    return to


def everything(log: Log) -> bytes:
    data, offset = b"", log.log_start_offset
    while piece := log.read(offset, bytes_max=1 << 20):
        data += piece
        offset = list(iter_spans(piece))[-1][3] + 1
    return data


def filled(
    owner: Owner, data_dir: Path, *, config: LogConfig = CONFIG, appends: int = 12, flush: str = "commit"
) -> DiskStore:
    """A store with one partition whose appends are all acknowledged, and were not checkpointed."""
    store = owner.disk(data_dir, flush=flush)
    log = store.open(PARTITION, TOPIC_ID, config)
    for number in range(appends):
        log.append(batch(f"value {number}", timestamp_ms=number), leader_epoch=number // 5)
    store.flush()
    return store


def recover(owner: Owner, data_dir: Path) -> tuple[bytes, int]:
    """Start, read everything, stop without a word: the next start recovers again."""
    store = owner.disk(data_dir, sync=lambda _: None)
    log = store.get(PARTITION)
    assert log is not None
    result = everything(log), log.end_offset
    assert log.high_watermark == log.end_offset
    for _, _, base_offset, _, _ in iter_spans(result[0]):
        assert log.read(base_offset, bytes_max=1)
    abandon(store)
    return result


def test_a_tail_torn_at_any_byte_is_cut_back_to_the_last_whole_batch(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data", config=LogConfig(), appends=4, flush="os")
    content = (tmp_path / "data" / LOG).read_bytes()
    spans = list(iter_spans(content))
    for cut in range(spans[-2][0], len(content)):
        at = crash(store, tmp_path / str(cut))
        (at / LOG).write_bytes(content[:cut])
        whole = [span for span in spans if span[0] + span[1] <= cut]
        expected = content[: whole[-1][0] + whole[-1][1]], whole[-1][3] + 1
        assert recover(owner, at) == expected
        assert (at / LOG).read_bytes() == expected[0]
        shutil.rmtree(at)
    store.close()


@pytest.mark.parametrize("flipped", range(5))
def test_a_flipped_byte_cuts_there_and_takes_the_later_segments(owner: Owner, tmp_path: Path, flipped: int) -> None:
    store = filled(owner, tmp_path / "data", flush="os")
    log = store.get(PARTITION)
    assert log is not None
    content = everything(log)
    spans = list(iter_spans(content))
    at = crash(store, tmp_path / "crashed")
    segment = bytearray((at / LOG).read_bytes())
    segment[spans[flipped][0] + 70] ^= 1
    (at / LOG).write_bytes(segment)
    assert recover(owner, at) == (content[: spans[flipped][0]], flipped)
    assert sorted(path.name for path in (at / "orders-0").glob("*.log")) == [Path(LOG).name]
    store.close()


def test_zero_bytes_behind_the_end_are_cut_off(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data", config=LogConfig(), appends=3, flush="os")
    at = crash(store, tmp_path / "crashed")
    content = (at / LOG).read_bytes()
    (at / LOG).write_bytes(content + bytes(5000))
    assert recover(owner, at) == (content, 3)
    store.close()


@pytest.mark.parametrize("gone", range(5))
def test_a_segment_that_is_missing_between_others_is_a_loss(owner: Owner, tmp_path: Path, gone: int) -> None:
    store = filled(owner, tmp_path / "data", appends=30)
    log = store.get(PARTITION)
    assert log is not None
    expected = everything(log), log.end_offset
    at = crash(store, tmp_path / "crashed")
    segments = sorted((at / "orders-0").glob("*.log"))
    assert len(segments) == 5
    segments[gone].unlink()
    assert recover(owner, at) == expected
    store.close()


def test_a_good_batch_in_a_wrong_place_is_cut_off(owner: Owner, tmp_path: Path) -> None:
    """What an earlier use of the disk may have left there."""
    store = filled(owner, tmp_path / "data", config=LogConfig(), appends=3, flush="os")
    at = crash(store, tmp_path / "crashed")
    content = (at / LOG).read_bytes()
    (at / LOG).write_bytes(content + content)
    assert recover(owner, at) == (content, 3)
    assert (at / LOG).read_bytes() == content
    store.close()


@pytest.mark.parametrize("flipped", range(3))
@pytest.mark.parametrize("byte", range(5))
def test_an_offset_beyond_what_a_segment_holds_is_damage(owner: Owner, tmp_path: Path, flipped: int, byte: int) -> None:
    """No checksum covers a base offset. Source: Kafka LogSegment.ensureOffsetInRange."""
    store = filled(owner, tmp_path / "data", config=LogConfig(), appends=3, flush="os")
    at = crash(store, tmp_path / "crashed")
    content = (at / LOG).read_bytes()
    start = list(iter_spans(content))[flipped][0]
    segment = bytearray(content)
    segment[start + byte] ^= 1 if byte < 4 else 0x80
    (at / LOG).write_bytes(segment)
    assert recover(owner, at) == (content[:start], flipped)
    store.close()


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data())
def test_the_journal_puts_back_whatever_the_segments_lost(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    owner, base = Owner(), tmp_path_factory.mktemp("base")
    store = filled(owner, base / "data", appends=30)
    log = store.get(PARTITION)
    assert log is not None
    expected = everything(log), log.end_offset
    at = crash(store, base / "crashed")
    for path in sorted((at / "orders-0").iterdir()):
        kept = data.draw(st.sampled_from(["whole", "cut", "zeroed", "gone"]), label=path.name)
        content = path.read_bytes()
        where = data.draw(st.integers(0, len(content)))
        if kept == "cut":
            path.write_bytes(content[:where])
        elif kept == "zeroed":
            path.write_bytes(content[:where] + bytes(len(content) - where))
        elif kept == "gone":
            path.unlink()
    assert recover(owner, at) == expected
    assert recover(owner, at) == expected
    store.close()


def test_the_journal_brings_back_a_partition_whose_directory_was_lost(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data")
    at = crash(store, tmp_path / "crashed")
    shutil.rmtree(at / "orders-0")
    assert recover(owner, at)[1] == 12
    again = owner.disk(at)
    log = again.open(PARTITION, TOPIC_ID, CONFIG)
    assert (log.end_offset, log.leader_epoch, log.end_offset_for_epoch(1)) == (12, 2, (1, 10))
    again.close()
    store.close()


def test_a_round_that_was_torn_was_never_acknowledged(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data", appends=3)
    log = store.get(PARTITION)
    assert log is not None
    expected = everything(log), 3
    before = (tmp_path / "data" / "journal" / "1.journal").read_bytes()
    log.append(batch("torn"), leader_epoch=2)
    store.flush()
    after = (tmp_path / "data" / "journal" / "1.journal").read_bytes()
    first, last = _changed(before, after)
    for cut in range(first, last, 1 if LONG else 3):
        at = crash(store, tmp_path / "crashed")
        shutil.rmtree(at / "orders-0")
        (at / "journal" / "1.journal").write_bytes(after[:cut] + before[cut:])
        assert recover(owner, at) == expected
        shutil.rmtree(at)
    store.close()


def _changed(before: bytes, after: bytes) -> tuple[int, int]:
    changed = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    return changed[0], changed[-1]


def test_recovery_may_be_interrupted_anywhere(owner: Owner, tmp_path: Path) -> None:
    """Copies are taken at each flush of a recovery; each copy recovers to the same."""
    store = filled(owner, tmp_path / "data")
    log = store.get(PARTITION)
    assert log is not None
    expected = everything(log), log.end_offset
    at = crash(store, tmp_path / "crashed")
    (at / LOG).write_bytes((at / LOG).read_bytes()[:100])
    copies: list[Path] = []

    def copy_then_sync(_: int) -> None:
        to = tmp_path / f"copy{len(copies)}"
        shutil.copytree(at, to, ignore=shutil.ignore_patterns(".lock"))
        copies.append(to)

    abandon(owner.disk(at, sync=copy_then_sync))
    assert len(copies) > 3
    for copy in copies:
        assert recover(owner, copy) == expected
    store.close()


def test_after_a_checkpoint_the_journal_is_not_needed(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path / "data", journal_file_bytes=4096)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(index_interval_bytes=100, segment_bytes=2000))
    points = tmp_path / "data" / "recovery-point-offset-checkpoint"

    def append() -> None:
        """Not while a checkpoint is on its way: if it lasted long, files would be flushed themselves instead."""
        log.append(batch("value"), leader_epoch=0)
        store.flush()
        owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)

    while read_offsets(points).get(PARTITION, 0) < 50:
        append()
    for _ in range(5):
        append()
    recovery_point = read_offsets(points)[PARTITION]
    assert recovery_point == log.end_offset - 5
    assert {path.name for path in (tmp_path / "data" / "journal").iterdir()} == {"0.journal", "1.journal"}
    expected = everything(log), log.end_offset
    at = crash(store, tmp_path / "crashed")
    for path in (at / "orders-0").glob("*.log"):
        _lose_from(path, recovery_point)
    assert recover(owner, at) == expected
    store.close()


def _lose_from(path: Path, offset: int) -> None:
    """Cut a segment file where the batch with this offset begins."""
    content = path.read_bytes()
    start = next((start for start, _, base, _, _ in iter_spans(content) if base >= offset), len(content))
    path.write_bytes(content[:start])


def test_a_bulk_append_is_not_in_the_journal_and_survives_with_all_before_it(owner: Owner, tmp_path: Path) -> None:
    store = owner.disk(tmp_path / "data", journal_file_bytes=8 * BULK_BYTES)  # no checkpoint begins
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=BULK_BYTES))
    other = store.open(TopicPartition("other", 0), TOPIC_ID, LogConfig())
    log.append(batch("small"), leader_epoch=0)
    store.flush()
    for _ in range(3):
        log.append(batch("x" * (BULK_BYTES // 2)), leader_epoch=0)
    other.append(batch("other"), leader_epoch=0)
    store.flush()
    log.append(batch("after"), leader_epoch=0)
    store.flush()
    journal = (tmp_path / "data" / "journal" / "1.journal").read_bytes()
    assert len(journal.rstrip(b"\x00")) < BULK_BYTES * 1.5
    expected = everything(log), log.end_offset
    at = crash(store, tmp_path / "crashed")
    newest = max((at / "orders-0").glob("*.log"))
    _lose_from(newest, 4)
    shutil.rmtree(at / "other-0")
    assert recover(owner, at) == expected
    again = owner.disk(at)
    restored = again.get(TopicPartition("other", 0))
    assert restored is not None
    assert restored.end_offset == 1
    again.close()
    store.close()


def test_a_deleted_partition_does_not_come_back(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data")
    before = crash(store, tmp_path / "before")
    store.delete(PARTITION)
    store.flush()
    log = store.open(PARTITION, UUID(int=77), CONFIG)
    log.append(batch("new"), leader_epoch=0)
    store.flush()
    at = crash(store, tmp_path / "crashed")
    shutil.rmtree(at / "orders-0")
    shutil.copytree(before / "orders-0", at / "orders-0")  # the disk never saw the renaming
    again = owner.disk(at)
    log = again.open(PARTITION, UUID(int=77), CONFIG)
    assert [read_header(everything(log)).record_count, log.end_offset] == [1, 1]
    again.close()
    store.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "torn", "zeros", "falling", "beyond"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_cannot_be_right_is_rebuilt(
    owner: Owner, tmp_path: Path, suffix: str, damage: str, is_clean: bool
) -> None:
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=20_000))
    for number in range(30):
        log.append(batch("v" * 1500, timestamp_ms=number), leader_epoch=0)
    store.close()
    originals = {path: path.read_bytes() for path in (tmp_path / "orders-0").iterdir() if path.suffix == suffix}
    assert len(originals) > 2
    for path, content in originals.items():
        entry = 8 if suffix == ".index" else 12
        if damage == "missing":
            path.unlink()
        else:
            wrong = {
                "torn": content + b"\x00",
                "zeros": content + bytes(10 * entry),
                "falling": content + content[:entry],
                "beyond": content + b"\x7f" * entry * 2,
            }
            path.write_bytes(wrong[damage])
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert [log.read(offset, bytes_max=1) != b"" for offset in range(30)] == [True] * 30
    found = [log.offset_for_timestamp(timestamp_ms) for timestamp_ms in range(31)]
    assert [entry.offset if entry else None for entry in found] == [*range(30), None]
    store.close()
    for path, content in originals.items():
        assert path.read_bytes() == content, path.name


def test_a_torn_tail_in_a_directory_that_claims_a_clean_stop_is_cut_off(owner: Owner, tmp_path: Path) -> None:
    filled(owner, tmp_path, config=LogConfig(), appends=3).close()
    content = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(content + b"garbage")
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert (everything(log), log.end_offset) == (content, 3)
    assert log.append(batch("next"), leader_epoch=2) == 4
    store.close()


def test_a_log_that_ends_below_its_recovery_point_is_not_loaded(owner: Owner, tmp_path: Path) -> None:
    store = filled(owner, tmp_path / "data", flush="os")
    log = store.get(PARTITION)
    assert log is not None
    content = everything(log)
    at = crash(store, tmp_path / "crashed")
    (at / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5000\n")
    with pytest.raises(UnavailableError, match="ends at offset 12, though the log was flushed up to offset 5000"):
        recover(owner, at)
    assert b"".join(path.read_bytes() for path in sorted((at / LOG).parent.glob("*.log"))) == content
    store.close()


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_recovery_points_everything_is_checked_and_nothing_dropped(
    owner: Owner, tmp_path: Path, how: str
) -> None:
    """Nobody knows then from where on a gap would be a loss: the log may begin, and have been cleaned, anywhere."""
    store = filled(owner, tmp_path / "data")
    log = store.get(PARTITION)
    assert log is not None
    log.delete_before(8)
    for _ in range(4):  # both files of the journal are begun anew
        owner.clock.set(owner.clock.now_ms() + CHECKPOINT_INTERVAL_MS)
        log.append(batch("x" * 200), leader_epoch=3)
        store.flush()
        owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    log.append(batch("more"), leader_epoch=3)
    store.flush()
    at = crash(store, tmp_path / "crashed")
    content = everything(log)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (at / name).unlink() if how == "missing" else (at / name).write_bytes(b"")
    restored, end_offset = recover(owner, at)
    assert end_offset == 17
    assert restored.endswith(content)
    store.close()


def test_messages_of_an_old_format_are_refused_and_not_cut_off(owner: Owner, tmp_path: Path) -> None:
    import zlib

    payload = b"\x01\x00" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + (1).to_bytes(4, "big") + b"v"
    message = zlib.crc32(payload).to_bytes(4, "big") + payload
    old = (0).to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
    (tmp_path / "orders-0").mkdir(parents=True)
    (tmp_path / LOG).write_bytes(old)
    with pytest.raises(ConfigError, match="which is not read here"):
        owner.disk(tmp_path)
    assert (tmp_path / LOG).read_bytes() == old


def test_a_recovery_says_how_far_it_is_and_what_it_did(
    owner: Owner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = owner.disk(tmp_path / "data")
    logs = [store.open(TopicPartition("t", number), TOPIC_ID, LogConfig()) for number in range(3)]
    for log in logs:
        log.append(batch("value"), leader_epoch=0)
    store.flush()
    size_bytes = logs[0].size_bytes
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    store.close()
    (tmp_path / "crashed" / "t-1" / f"{0:020d}.log").write_bytes(b"torn")
    told: list[tuple[int, int, int]] = []
    with caplog.at_level(logging.INFO):
        owner.disk(
            tmp_path / "crashed",
            on_recovery=lambda it: told.append((it.partitions, it.partitions_total, it.scanned_bytes)),
        ).close()
    assert told == [(0, 3, 0), (1, 3, size_bytes), (2, 3, size_bytes), (3, 3, 2 * size_bytes)]
    summary = f"store.recovered partitions=3 segments=3 bytes={2 * size_bytes} cut_bytes=4 restored_bytes={size_bytes}"
    assert summary in caplog.text


def test_a_recovery_of_one_large_partition_says_how_far_it_is(owner: Owner, tmp_path: Path) -> None:
    """By bytes, of as many as will be read: what lies below the recovery point is not counted."""
    store = owner.disk(tmp_path / "data", journal_file_bytes=1 << 26)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=1 << 25))
    log.append(batch("x" * 900_000), leader_epoch=0)
    log._roll()
    make_durable(owner, store)
    for _ in range(10):
        log.append(batch("x" * 900_000), leader_epoch=0)
    store.flush()
    size_bytes = sum(segment.size_bytes for segment in log.segments[1:])
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    store.close()
    told: list[tuple[int, int]] = []
    owner.disk(tmp_path / "crashed", on_recovery=lambda it: told.append((it.scanned_bytes, it.bytes_total))).close()
    scanned = [scanned_bytes for scanned_bytes, _ in told]
    assert {total for _, total in told} == {size_bytes + log.segments[0].size_bytes}  # its index may not be durable
    assert len(told) >= 4
    assert scanned == sorted(scanned)
    assert scanned[-1] == told[-1][1]


def test_a_partition_whose_deletion_was_interrupted_is_not_missing_when_the_start_is_interrupted_too(
    tmp_path: Path, owner: Owner
) -> None:
    store = filled(owner, tmp_path / "data")
    make_durable(owner, store)
    root = crash(store, tmp_path / "crashed")
    (root / "orders-0").rename(root / f"orders-0.{UUID(int=1).hex}-delete")
    shutil.rmtree(root / "journal")
    (root / "journal").touch()
    with pytest.raises(ConfigError, match="journal is no directory"):
        owner.disk(root)
    assert not list(root.glob("*-delete"))
    (root / "journal").unlink()
    again = owner.disk(root)
    assert list(again.missing()) == []
    again.close()
    store.close()


def test_a_recovery_leaves_no_checksums_of_a_segment_that_is_written_on(tmp_path: Path, owner: Owner) -> None:
    store = filled(owner, tmp_path / "data")
    recovered = owner.disk(crash(store, tmp_path / "crashed"))
    checksums = sorted((tmp_path / "crashed/orders-0").glob("*.checksums"))
    logs = sorted((tmp_path / "crashed/orders-0").glob("*.log"))
    assert [path.stem for path in checksums] == [path.stem for path in logs[:-1]]
    assert all(path.stat().st_size for path in checksums)
    recovered.close()
    store.close()


def test_a_recovery_that_cuts_a_segment_leaves_nothing_that_states_its_former_size(
    tmp_path: Path, owner: Owner
) -> None:
    """The segment ends then, the power goes, and all that is not flushed is lost."""
    store = filled(owner, tmp_path / "data")
    root = crash(store, tmp_path / "crashed")
    shutil.rmtree(root / "journal")
    first = min((root / "orders-0").glob("*.log"))
    assert first.with_suffix(".checksums").exists()
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 10)
    with FaultyFiles(root) as files:
        recovered = owner.disk(root)
        log = recovered.get(PARTITION)
        assert log is not None
        log.config = CONFIG
        for number in range(12):
            log.append(batch(f"later value {number}", timestamp_ms=number), leader_epoch=9)
        make_durable(owner, recovered)
        kept = everything(log)
        abandon(recovered)
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    write_tree(tmp_path / "again", disk.crash(Random(0), Kept.NONE))
    again = owner.disk(tmp_path / "again")
    found = again.get(PARTITION)
    assert found is not None
    assert everything(found) == kept
    again.close()
    store.close()
