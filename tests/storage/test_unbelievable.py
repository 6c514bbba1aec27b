"""Numbers and names in files that cannot be right: they are bounded before anything is done by them, and said in a sentence."""

import struct
from pathlib import Path

import pytest

from kohort.model.errors import ConfigError, CorruptError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.epochs import EpochCache
from kohort.storage.files.checkpoint_formats import read_offsets
from kohort.storage.files.directory import offset_of, partition_of
from kohort.storage.log import LogConfig
from kohort.storage.producer_states import AbortedTxn
from kohort.storage.segments.aborted import AbortedIndex, to_bytes
from kohort.storage.segments.index import OffsetIndex, TimeIndex
from kohort.storage.segments.snapshots import find_snapshots
from kohort.storage.segments.swap import finish_swaps
from kohort.storage.tools.dump import dump
from kohort.storage.tools.verify import Verified, verify
from kohort.wire.batches import BatchRecord, build_batch, read_records
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

LOG_CONFIG = LogConfig()
BASE_OFFSET_BYTES = 8


def stopped(path: Path, *values: str) -> Path:
    """A data directory with one batch per value, cleanly stopped; its only segment."""
    store = Owner().disk(path)
    log = store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    for value in values:
        log.append(batch(value), leader_epoch=0)
    store.flush()
    store.close()
    return path / str(PARTITION) / f"{0:020d}.log"


# fmt: off
NAMES = {
    "orders-0":            TopicPartition("orders", 0),
    "orders-2147483647":   TopicPartition("orders", (1 << 31) - 1),
    "a-b-12":              TopicPartition("a-b", 12),
    "orders-2147483648":   None,
    "orders-9999999999":   None,
    "orders-00":           None,  # its files would be looked for in orders-0
    "orders-07":           None,
    "orders-٣":            None,
    "orders":              None,
    "orders-":             None,
    "or ders-0":           None,
}
OFFSETS = {
    "00000000000000000000.log":           0,
    "00000000000000000007.log.swap":      7,
    "09223372036854775807.log":           (1 << 63) - 1,
    "09223372036854775808.log":           None,
    "99999999999999999999.log":           None,
    "7.log":                              None,
    "0000000000000000000٣.log":           None,
    "backup.log":                         None,
    "-0000000000000000007.log":           None,
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_directories_of_partitions(name: str) -> None:
    assert partition_of(name) == NAMES[name]


@pytest.mark.parametrize("name", OFFSETS)
def test_files_of_segments(name: str) -> None:
    assert offset_of(name) == OFFSETS[name]


@pytest.mark.parametrize("name", ["orders-9999999999", "orders-00", "orders-2147483648"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_that_is_no_partition_is_left_alone(base: Path, name: str, is_clean: bool) -> None:
    stopped(base / "data", "a")
    other = base / "data" / name
    other.mkdir()
    (other / f"{0:020d}.log").write_bytes(b"of somebody else")
    if not is_clean:
        (base / "data" / ".kafka_cleanshutdown").unlink()
    store = Owner().disk(base / "data")
    assert list(store.partitions()) == [PARTITION]
    store.close()
    assert (other / f"{0:020d}.log").read_bytes() == b"of somebody else"


@pytest.mark.parametrize("name", ["backup.log", "7.log", "99999999999999999999.log"])
def test_a_log_that_is_no_segment_is_named(base: Path, name: str) -> None:
    """After an unclean stop by the start, after a clean one by whoever wants the partition; the data stays as it is."""
    segment = stopped(base / "data", "a")
    segment.with_name(name).write_bytes(b"x")
    store = Owner().disk(base / "data")
    for _ in range(2):  # the second time it must not be taken for a partition that was never there
        with pytest.raises(UnavailableError, match=f"{name} is no segment.*move it away"):
            store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    store.close()
    (base / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=f"{name} is no segment.*move it away"):
        Owner().disk(base / "data")
    segment.with_name(name).unlink()
    store = Owner().disk(base / "data")
    assert store.open(PARTITION, TOPIC_ID, LOG_CONFIG).end_offset == 1
    store.close()


def test_other_files_are_left_alone(base: Path) -> None:
    segment = stopped(base / "data", "a")
    names = ["backup.index", "notes.snapshot", "7.snapshot", "old.deleted", "old.cleaned", "old.log.swap"]
    for name in names:
        segment.with_name(name).write_bytes(b"x")
    assert find_snapshots(segment.parent) == [1]
    (base / "data" / ".kafka_cleanshutdown").unlink()
    store = Owner().disk(base / "data")
    assert store.open(PARTITION, TOPIC_ID, LOG_CONFIG).end_offset == 1
    store.close()
    assert [segment.with_name(name).exists() for name in names] == [True] * len(names)


# fmt: off
CHECKPOINTS = ["-1", "9223372036854775808", "1e3", "9" * 5000]
PARTITIONS = ["-1", "2147483648"]
EPOCHS = [("-1", "0"), ("2147483648", "0"), ("0", "-1"), ("0", "9223372036854775808")]
# fmt: on


@pytest.mark.parametrize("offset", CHECKPOINTS)
def test_an_offset_of_a_checkpoint_is_one(base: Path, offset: str) -> None:
    (base / "checkpoint").write_text(f"0\n1\norders 0 {offset}\n")
    with pytest.raises(CorruptError):
        read_offsets(base / "checkpoint")


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_of_a_checkpoint_is_one(base: Path, partition: str) -> None:
    (base / "checkpoint").write_text(f"0\n1\norders {partition} 0\n")
    with pytest.raises(CorruptError):
        read_offsets(base / "checkpoint")


@pytest.mark.parametrize(("leader_epoch", "start_offset"), EPOCHS)
def test_a_leader_epoch_is_one(leader_epoch: str, start_offset: str) -> None:
    with pytest.raises(CorruptError):
        EpochCache.from_text(f"0\n1\n{leader_epoch} {start_offset}\n")


def test_positions_before_the_file_are_no_index(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "index", 0, bytes_max=1 << 20)
    for entries, is_plausible in (([(3, 100), (5, 200)], True), ([(3, -100), (5, 200)], False)):
        index.path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
        assert index.load()
        assert index.is_plausible(1000) is is_plausible


def test_offsets_before_the_segment_are_no_index(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "index", 0, bytes_max=1 << 20)
    for entries, is_plausible in (([(1000, 3), (1001, 5)], True), ([(1000, -3), (1001, 5)], False)):
        index.path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
        assert index.load()
        assert index.is_plausible(1000) is is_plausible


def test_an_index_that_is_larger_than_it_can_be_is_not_read(base: Path) -> None:
    segment = stopped(base / "data", "a")
    with segment.with_suffix(".index").open("wb") as file:
        file.truncate(1 << 40)
    store = Owner().disk(base / "data")
    assert store.open(PARTITION, TOPIC_ID, LOG_CONFIG).end_offset == 1
    store.close()


# fmt: off
ABORTED = {
    "as it is":          ([(3, 4, 5), (6, 8, 9)], True),
    "before":            ([(0, 1, 5)], False),
    "behind":            ([(3, 1 << 40, 1 << 41)], False),
    "end before begin":  ([(8, 7, 9)], False),
    "not rising":        ([(3, 8, 9), (4, 8, 9)], False),
    "a negative offset": ([(-1, 8, 9)], False),
}
# fmt: on


@pytest.mark.parametrize("case", ABORTED)
def test_aborted_transactions_lie_in_their_segment(tmp_path: Path, case: str) -> None:
    entries, is_plausible = ABORTED[case]
    path = tmp_path / "txnindex"
    path.write_bytes(b"".join(to_bytes(AbortedTxn(1, *entry)) for entry in entries))
    assert AbortedIndex(path).is_plausible(2, 100) is is_plausible


@pytest.mark.parametrize("offset", [1 << 62, 5, -(1 << 62)])
def test_an_offset_of_the_active_segment_is_not_believed(base: Path, offset: int) -> None:
    """No checksum covers it. The end of the log would be where it says, and what is behind it never be read again."""
    segment = stopped(base / "data", "a", "b", "c", "d")
    content = bytearray(segment.read_bytes())
    second = len(content) // 4
    content[second : second + BASE_OFFSET_BYTES] = struct.pack(">q", offset)
    segment.write_bytes(content)
    store = Owner().disk(base / "data")
    place = second if not 0 < offset < 10 else 2 * second
    with pytest.raises(UnavailableError, match=f"{segment} is damaged at byte {place}.*flushed up to offset 4"):
        store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    assert segment.read_bytes() == content
    store.close()


def test_the_offset_of_the_last_batch_is_not_believed(base: Path) -> None:
    """A clean stop leaves the end of the log in the recovery point."""
    segment = stopped(base / "data", "a", "b", "c", "d")
    content = bytearray(segment.read_bytes())
    last = len(content) // 4 * 3
    content[last : last + BASE_OFFSET_BYTES] = struct.pack(">q", 7)
    segment.write_bytes(content)
    store = Owner().disk(base / "data")
    with pytest.raises(UnavailableError, match=f"{segment} ends at offset 8, though it was stopped at offset 4"):
        store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    store.close()


def test_a_search_by_time_in_a_log_that_goes_back_ends(base: Path) -> None:
    """The batch that comes last turns into one of an earlier offset, while the broker runs."""
    store = Owner().disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    for number, value in enumerate("abcd"):
        log.append(batch(value, timestamp_ms=1000 + number), leader_epoch=0)
    store.flush()
    log.delete_before(2)
    segment = base / "data" / str(PARTITION) / f"{0:020d}.log"
    last = segment.stat().st_size * 3 // 4
    with segment.open("r+b") as file:
        file.seek(last)
        file.write(struct.pack(">q", 1))
    with pytest.raises(CorruptError, match="offset"):
        log.offset_for_timestamp(1003)
    store.close()


def test_of_two_answers_the_one_that_is_in_the_journal_counts(base: Path) -> None:
    """An offset that leaves out others is damage where none can be missing, and what was acknowledged comes back."""
    owner = Owner()
    store = owner.disk(base / "data")
    log = store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    for value in "abcd":
        log.append(batch(value), leader_epoch=0)
    store.flush()
    killed = base / "killed"
    segment = copy_running(base / "data", killed) / str(PARTITION) / f"{0:020d}.log"
    store.close()
    content = bytearray(segment.read_bytes())
    second = len(content) // 4
    content[second : second + BASE_OFFSET_BYTES] = struct.pack(">q", 2)
    segment.write_bytes(content)
    store = Owner().disk(killed)
    log = store.open(PARTITION, TOPIC_ID, LOG_CONFIG)
    data = log.read(0, bytes_max=1 << 20)
    found = [record.value for at in range(0, len(data), len(data) // 4) for record in read_records(data[at:])]
    assert found == [b"a", b"b", b"c", b"d"]
    store.close()


def copy_running(root: Path, to: Path) -> Path:
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != ".lock":
            (to / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            (to / path.relative_to(root)).write_bytes(path.read_bytes())
    return to


def test_a_swap_removes_nothing_that_it_cannot_replace(base: Path) -> None:
    """The last batch of a cleaned segment says an offset behind the newest segment."""
    for first in (0, 10, 20):
        (base / f"{first:020d}.log").write_bytes(batch_at(first))
    (base / f"{0:020d}.log.swap").write_bytes(batch_at(0) + batch_at(10) + batch_at(1 << 20))
    finish_swaps(base)
    assert sorted(path.name for path in base.iterdir()) == [f"{0:020d}.log", f"{20:020d}.log"]
    assert len((base / f"{0:020d}.log").read_bytes()) == 3 * len(batch_at(0))


def batch_at(offset: int) -> bytes:
    content = bytearray(batch("x"))
    content[:BASE_OFFSET_BYTES] = struct.pack(">q", offset)
    return bytes(content)


def test_dump_and_verify_say_what_a_file_is_not(base: Path) -> None:
    segment = stopped(base / "data", "a")
    epochs = segment.with_name("leader-epoch-checkpoint")
    epochs.write_bytes(b"0\n1\n\xff 0\n")
    (problem,) = dump(epochs)
    assert set(problem) == {"problem"}
    segment.with_name("backup.log").write_bytes(b"x")
    problems = list(verify(base / "data", Verified()))
    assert {found.path.name for found in problems} == {"leader-epoch-checkpoint", "backup.log"}


def test_dump_does_not_take_in_a_file_for_a_length_that_it_states(base: Path) -> None:
    """What cannot be a batch ends the file where it begins."""
    segment = stopped(base / "data", "a")
    with segment.open("r+b") as file:
        file.seek(0, 2)
        end = file.tell()
        file.write(struct.pack(">qiib", 1, (1 << 31) - 1, 0, 2))
        file.truncate(1 << 36)
    *rows, problem = dump(segment)
    assert len(rows) == 1
    assert problem == {"position": end, "problem": f"{(1 << 36) - end} bytes that are no whole batch of magic 2"}


@pytest.mark.parametrize(
    "records", [[(b"", b"")], [(b"\0\0\0\0", b"\0")], [(b"\0\0\0\0", b"\0" * 6)] * 2, [(None, None)]]
)
def test_a_control_record_that_is_none_does_not_end_a_start(
    base: Path, records: list[tuple[bytes | None, bytes | None]]
) -> None:
    """Its checksum is right, so it was written so; by whom, nobody knows."""
    segment = stopped(base / "data", "a")
    pairs = [BatchRecord(key, value) for key, value in records]
    strange = build_batch(
        pairs, timestamp_ms=1, producer_id=5, producer_epoch=0, transactional=True, control=True, base_offset=1
    )
    segment.write_bytes(segment.read_bytes() + strange)
    (base / "data" / ".kafka_cleanshutdown").unlink()
    (base / "data" / "recovery-point-offset-checkpoint").unlink()
    store = Owner().disk(base / "data")
    assert store.open(PARTITION, TOPIC_ID, LOG_CONFIG).end_offset == 1 + len(records)
    store.close()
