"""`verify` and `dump` on directories of Apache Kafka 4.2.1, sound and damaged."""

import gzip
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.records.serde import encode_record
from kohort.records.values import OffsetCommit
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN
from kohort.storage.log import LogConfig
from kohort.storage.tools.dump import dump
from kohort.storage.tools.verify import Problem, Verified, verify
from kohort.wire.batches import BatchRecord, build_batch, stamp
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch
from tests.storage.test_recorded import unpack

SEGMENT = "00000000000000000000"


def problems(directory: Path) -> list[Problem]:
    return list(verify(directory, Verified()))


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("run", ["main", "expiry", "unclean"])
def test_directories_of_kafka_are_in_order(run: str, tmp_path: Path) -> None:
    directory = unpack(run, tmp_path)
    before = contents(directory)
    summary = Verified()
    assert list(verify(directory, summary)) == []
    assert summary.partitions > 10
    assert contents(directory) == before


def test_what_a_start_mends(tmp_path: Path) -> None:
    directory = unpack("unclean-torn", tmp_path)
    found = problems(directory)
    assert {problem.path.parent.name for problem in found} == {
        "__consumer_offsets-2",
        "u-data-0",
        "u-data-1",
        "u-txn-0",
    }
    assert all(problem.is_repaired for problem in found)
    Owner().disk(directory).close()
    assert problems(directory) == []


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("main", tmp_path_factory.mktemp("recorded")) / "d-txn-0"


def damaged(partition: Path, to: Path, name: str, change: Callable[[bytearray], None]) -> Path:
    directory = to / partition.name
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(partition, directory)
    content = bytearray((directory / name).read_bytes())
    change(content)
    (directory / name).write_bytes(content)
    return directory


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None
)
@example(place=0.4261136338496306, bit=7)  # The last offset of a batch becomes negative.
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_segment_is_found(partition: Path, tmp_path: Path, place: float, bit: int) -> None:
    """All but those of base offsets and leader epochs, which no checksum covers: a gap in the offsets may be right."""

    def flip(content: bytearray) -> None:
        content[int(place * len(content))] ^= 1 << bit

    at = int(place * (partition / f"{SEGMENT}.log").stat().st_size)
    directory = damaged(partition, tmp_path, f"{SEGMENT}.log", flip)
    begins = [row["position"] for row in dump(partition / f"{SEGMENT}.log", has_records=False)]
    within = at - max(position for position in begins if position <= at)
    if 8 <= within < 12 or within >= 16:
        found = problems(directory)
        assert found
        assert not found[0].is_repaired


@pytest.mark.parametrize("name", [f"{SEGMENT}.index", f"{SEGMENT}.timeindex", f"{SEGMENT}.txnindex"])
def test_a_wrong_index_is_found(partition: Path, tmp_path: Path, name: str) -> None:
    def swap_entries(content: bytearray) -> None:
        size = {"index": 8, "timeindex": 12, "txnindex": 34}[name.rpartition(".")[2]]
        content[:size], content[size : 2 * size] = content[size : 2 * size], content[:size]

    (problem,) = problems(damaged(partition, tmp_path, name, swap_entries))
    assert problem.path.name == name
    (problem,) = problems(damaged(partition, tmp_path, name, lambda content: content.__delitem__(-1)))
    assert problem.path.name == name


def test_what_is_not_there(partition: Path, tmp_path: Path) -> None:
    directory = damaged(partition, tmp_path, "partition.metadata", bytearray.clear)
    (directory / f"{SEGMENT}.timeindex").unlink()
    assert [(problem.path.name, problem.is_repaired) for problem in problems(directory)] == [
        ("partition.metadata", True),
        (f"{SEGMENT}.timeindex", True),
    ]
    assert problems(tmp_path)[0].path.name == "meta.properties"


def test_damage_below_the_recovery_point_is_not_mended(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, log_config())
    for value in "abc":
        log.append(batch(value), leader_epoch=0)
    store.close()
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    path = tmp_path / "orders-0" / f"{SEGMENT}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert [problem.is_repaired for problem in problems(tmp_path) if problem.path == path] == [False]


def log_config() -> LogConfig:
    return LogConfig()


# Dumps, against what Kafka's DumpLogSegments prints of the same files.

DUMPS = Path(__file__).parents[1] / "data" / "dumps"
FIELDS = {
    "index": {"offset": "offset", "position": "position"},
    "timeindex": {"timestamp": "timestamp_ms", "offset": "offset"},
    "txnindex": {
        "producerId": "producer_id",
        "firstOffset": "first_offset",
        "lastOffset": "last_offset",
        "lastStableOffset": "last_stable_offset",
    },
    "batches": {
        "baseOffset": "base_offset",
        "lastOffset": "last_offset",
        "count": "count",
        "baseSequence": "base_sequence",
        "lastSequence": "last_sequence",
        "producerId": "producer_id",
        "producerEpoch": "producer_epoch",
        "partitionLeaderEpoch": "leader_epoch",
        "isTransactional": "is_transactional",
        "isControl": "is_control",
        "position": "position",
        "size": "size",
        "compresscodec": "codec",
        "crc": "crc",
        "isvalid": "is_valid",
    },
}


def printed(kind: str) -> dict[str, list[dict[str, str]]]:
    """By file: the fields of each line."""
    files: dict[str, list[dict[str, str]]] = {}
    rows: list[dict[str, str]] = []
    for line in gzip.decompress((DUMPS / f"{kind}.txt.gz").read_bytes()).decode().splitlines():
        words = line.split()
        if words[0] == "Dumping":
            rows = files.setdefault(words[1], [])
        elif words[0].endswith(":") and not line.startswith("Log starting"):
            rows.append(dict(zip((word[:-1] for word in words[::2]), words[1::2], strict=False)))
    return files


@pytest.mark.parametrize("kind", FIELDS)
def test_dumps_say_what_kafka_says(kind: str, partition: Path) -> None:
    files = printed(kind)
    assert sum(map(len, files.values())) > 10
    for name, rows in files.items():
        ours = [
            {theirs: _as_printed(row[field]) for theirs, field in FIELDS[kind].items()}
            for row in dump(partition.parent / name, has_records=False)
        ]
        assert ours == [{field: row[field] for field in FIELDS[kind]} for row in rows], name


def _as_printed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_what_cannot_be_dumped(partition: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="none of"):
        list(dump(partition / "partition.metadata"))
    torn = tmp_path / f"{SEGMENT}.log"
    torn.write_bytes((partition / torn.name).read_bytes()[:-1])
    *_, last = dump(torn)
    assert "no whole batch" in last["problem"]


def test_the_journal_can_be_dumped(tmp_path: Path) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, log_config())
    log.append(batch("a", "b"), leader_epoch=0)
    owner.wait_for(lambda: log.high_watermark == 2)
    log.delete_before(1)
    store.flush()
    rows = [row for path in sorted((tmp_path / "journal").iterdir()) for row in dump(path)]
    assert [(row["kind"], row["partition"]) for row in rows] == [("append", "orders-0"), ("start", "orders-0")]
    assert (rows[0]["last_offset"], rows[1]["start_offset"]) == (1, 1)
    store.close()


def test_a_running_broker_has_no_problems(tmp_path: Path) -> None:
    """The indexes of the segments that appends go to are in its memory."""
    store = Owner().disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, LogConfig(segment_bytes=200))
    for number in range(5):
        log.append(batch(f"value {number}"), leader_epoch=0)
    store.flush()
    assert problems(tmp_path) == []
    store.close()
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "entry", "what"),
    [
        ("index", (0, 7), "no batch begins"),
        ("index", (1 << 20, 1 << 30), "no batch begins"),
        ("index", (1 << 20, 0), "is the next to be written"),
        ("timeindex", (1 << 60, 0), "where the largest so far is"),
        ("timeindex", (5, 1 << 20), "which is not there"),
    ],
)
def test_an_entry_that_speaks_of_what_is_not_so(
    name: str, entry: tuple[int, int], what: str, partition: Path, tmp_path: Path
) -> None:
    form = {"index": ">ii", "timeindex": ">qi"}[name]

    def only(content: bytearray) -> None:
        content[:] = struct.pack(form, *entry)

    (problem,) = problems(damaged(partition, tmp_path, f"{SEGMENT}.{name}", only))
    assert what in problem.what


def test_a_segment_of_many_batches_takes_no_more_memory_than_one_of_few(tmp_path: Path) -> None:
    """Nothing is kept of a batch or of an index entry when the next one is looked at."""
    few, many = (_held_by_verify(tmp_path / f"orders-{count}", count) for count in (1_000, 10_000))
    assert many < few + 500_000


def _held_by_verify(directory: Path, count: int) -> int:
    """At most, in bytes, of a segment with so many batches that has an entry for each in both indexes."""
    directory.mkdir()
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    log, offsets, times = bytearray(), bytearray(), bytearray()
    for number in range(count):
        one = bytearray(batch("value", timestamp_ms=number))
        stamp(one, base_offset=number, leader_epoch=0)
        offsets += struct.pack(">ii", number, len(log)) if number else b""
        times += struct.pack(">qi", number, number)
        log += one
    for suffix, content in (("log", log), ("index", offsets), ("timeindex", times)):
        (directory / f"{SEGMENT}.{suffix}").write_bytes(content)
    summary = Verified()
    tracemalloc.start()
    try:
        assert list(verify(directory, summary)) == []
        assert summary.batches == count
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def undecodable(directory: Path, topic: str, *records: BatchRecord) -> list[str]:
    """The problems of a log of one batch."""
    store = Owner().disk(directory)
    log = store.open(TopicPartition(topic, 0), TOPIC_ID, LogConfig())
    log.append(build_batch(records, timestamp_ms=1000), leader_epoch=0)
    store.close()
    return [problem.what for problem in problems(directory)]


GOOD = encode_record(OffsetCommit("g", "t", 0, 5, -1, "", 1000))


def test_a_coordinator_record_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    """As the load sets it aside: a record of an unknown type is skipped and no problem."""
    key, value = GOOD
    found = undecodable(
        tmp_path,
        "__consumer_offsets",
        BatchRecord(key, value),
        BatchRecord(key, b"\x00\x63" + (value or b"")[2:]),
        BatchRecord(key, None),
        BatchRecord(key[:-2], value),
        BatchRecord(b"\x00\x02" + b"k" * 70, b"\x00\x03"),
        BatchRecord(b"\x7f\x00", b"x"),
    )
    assert [what.partition(":")[0] for what in found] == [f"at offset {offset}" for offset in (1, 3, 4)]
    assert f"a record with key {key.hex()} cannot be decoded: " in found[0]
    assert "version 99" in found[0]
    assert f"a record with key {key[:-2].hex()} cannot be decoded: malformed OffsetCommit record" in found[1]
    assert f"key 0002{(b'k' * 62).hex()} cannot" in found[2]


def test_records_of_transactions_are_decoded_too(tmp_path: Path) -> None:
    (found,) = undecodable(tmp_path, "__transaction_state", BatchRecord(b"\x00\x00\x00\x02i", b""))
    assert "key 00000002" in found


def test_records_of_other_topics_are_not_decoded(tmp_path: Path) -> None:
    assert undecodable(tmp_path, "orders", BatchRecord(b"\x7f\x00", b"x")) == []


def test_many_records_that_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    found = undecodable(tmp_path, "__consumer_offsets", *[BatchRecord(b"", b"x")] * 250)
    assert len(found) == 101
    assert found[-1] == "150 more records or batches cannot be decoded"
