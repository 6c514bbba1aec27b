"""`kohort log`: dumps and checks of files that a broker left."""

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.main import run
from kohort.model.limits import DECOMPRESSED_BYTES_MAX, UNORDERED_RECORDS_MAX
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.compression import Codec, compress
from kohort_lab.crashed_disk import read_tree
from tests.records import kafka_logs
from tests.storage.owner import PARTITION, Owner
from tests.storage.test_recorded import unpack
from tests.storage.test_repair import flip, left_behind
from tests.wire.hostile_batches import batch_of, corpus, equal_between_ends


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("main", tmp_path_factory.mktemp("recorded"))


def segment(directory: Path, partition: str) -> str:
    return str(directory / partition / "00000000000000000000.log")


def test_batches_with_their_records(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", segment(recorded, "d-txn-0")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " producer_id=3 " in lines[0]
    assert lines[1].startswith('  offset=0 timestamp_ms=1795252819439 sequence=0 key="a" value="a-0-0"')
    assert any('marker="ABORT"' in line for line in lines)


@pytest.mark.parametrize(
    "partition", ["__consumer_offsets-0", "__consumer_offsets-1", "__transaction_state-0", "__share_group_state-0"]
)
def test_coordinator_records_are_decoded(recorded: Path, capsys: pytest.CaptureFixture[str], partition: str) -> None:
    assert run(["log", "dump", "--json", segment(recorded, partition)]) == 0
    rows = json.loads(capsys.readouterr().out)
    records = [record for row in rows if not row["is_control"] for record in row["records"]]
    assert records
    assert all("record_type" in record and "problem" not in record for record in records)
    # In the form of Kafka's converters, committed offsets and classic groups like every other record.
    for record in records:
        assert record["tombstone"] == (record["value"] is None)
        if record["record_type"] == "OffsetCommit":
            assert list(record["key"]) == ["group", "topic", "partition"]


@pytest.mark.parametrize("run_name", kafka_logs.RUNS)
def test_every_record_is_what_kafka_reads(run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs of 4.4.0: topic ids, times and epochs of assignments, previous producer ids, dead letters on their way."""
    logs = kafka_logs.unpack(run_name, tmp_path)
    for topic in kafka_logs.TOPICS:
        for partition, batches in kafka_logs.batches(run_name, topic).items():
            segments = sorted(map(str, (logs / f"{topic}-{partition}").glob("*.log")))
            assert run(["log", "dump", "--json", *segments]) == 0
            rows = json.loads(capsys.readouterr().out)
            assert [fields(row) for row in rows] == [expected_fields(batch) for batch in batches]


def fields(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("record_type", "key", "value")
    records = [
        (record["offset"], record["timestamp_ms"], record.get("marker"), *map(record.get, names))
        for record in row["records"]
    ]
    return row["base_offset"], row["last_offset"], row["producer_id"], row["producer_epoch"], records


def expected_fields(batch: dict[str, Any]) -> tuple[Any, ...]:
    records = []
    for record in batch["records"]:
        decoded = record.get("decoded") or {}
        name = decoded["key_name"].removesuffix("Key") if decoded else None
        told = (record.get("control_type"), name, decoded.get("key"), decoded.get("value"))
        records.append((record["offset"], record["timestamp"], *told))
    return batch["base_offset"], batch["last_offset"], batch["producer_id"], batch["producer_epoch"], records


def test_without_records(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", "--json", "--no-records", segment(recorded, "orders-0")]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["count"], "records" in row) == (6, False)


def test_hostile_batches_are_rows_with_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some kB that decompress to 4 MB of no records, or to 26 MB of equal ones, which as rows would take a gigabyte."""
    batches = [batch_of(hostile.packed, hostile.codec, 1) for hostile in corpus()]
    chunks = 40
    equal = compress(equal_between_ends(chunks, UNORDERED_RECORDS_MAX), Codec.ZSTD)
    batches.append(batch_of(equal, Codec.ZSTD, chunks * UNORDERED_RECORDS_MAX))
    good = build_batch([BatchRecord(b"key", b"value")], timestamp_ms=1)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join([*batches, good]))
    tracemalloc.start()
    try:
        assert run(["log", "dump", "--json", str(path)]) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rows = json.loads(capsys.readouterr().out)
    assert ["problem" in row for row in rows] == [True] * len(batches) + [False]
    assert rows[-2]["problem"].startswith("offsets do not rise")
    assert peak < DECOMPRESSED_BYTES_MAX


def test_rows_are_printed_as_they_are_read(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A segment may be larger than the memory. What comes before a file that cannot be read is whole, and valid JSON."""
    good = segment(recorded, "d-txn-0")
    assert run(["log", "dump", "--json", good]) == 0
    whole = capsys.readouterr().out
    assert run(["log", "dump", "--json", good, str(recorded / "nothing.log")]) == 2
    captured = capsys.readouterr()
    assert captured.out == whole == json.dumps(json.loads(whole), indent=2, ensure_ascii=False) + "\n"
    assert "nothing.log cannot be read" in captured.err


def test_an_empty_file_is_an_empty_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"")
    assert run(["log", "dump", "--json", str(path)]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_a_part_of_a_segment(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the batch that holds an offset on, and so many bytes: as `--max-bytes` of Kafka's DumpLogSegments."""

    def dumped(*options: str) -> list[dict[str, int]]:
        assert run(["log", "dump", "--json", "--no-records", *options, segment(recorded, "d-txn-0")]) == 0
        rows: list[dict[str, int]] = json.loads(capsys.readouterr().out)
        return rows

    whole = dumped()
    third = whole[2]
    assert dumped("--offset", str(third["last_offset"])) == whole[2:]
    assert dumped("--offset", "1000000") == []
    assert dumped("--max-bytes", "1") == whole[:1]
    assert dumped("--max-bytes", str(whole[0]["size"] + whole[1]["size"])) == whole[:2]
    assert dumped("--offset", str(third["base_offset"]), "--max-bytes", str(third["size"] + 1)) == whole[2:3]


def test_a_sound_directory(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(recorded)]) == 0
    assert capsys.readouterr().out.startswith("56 partitions, 67 segments, ")


def test_a_damaged_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = unpack("main", tmp_path)
    path = Path(segment(directory, "orders-0"))
    path.write_bytes(path.read_bytes()[:-3])
    assert run(["log", "verify", "--json", str(directory)]) == 1
    assert json.loads(capsys.readouterr().out)[0]["path"] == str(path)


def test_a_directory_stands_for_its_segments(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dumped(*paths: Path) -> list[dict[str, Any]]:
        assert run(["log", "dump", "--json", *map(str, paths)]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    by_numbers = sorted(
        (path for path in recorded.rglob("*.log")),
        key=lambda path: (path.parent.name.rpartition("-")[0], int(path.parent.name.rpartition("-")[2]), path.name),
    )
    assert len(by_numbers) > 5
    assert dumped(recorded) == dumped(*by_numbers)
    assert dumped(recorded / "d-txn-0") == dumped(Path(segment(recorded, "d-txn-0"))) != []
    for name in ("t-10", "t-2"):
        shutil.copytree(recorded / "d-txn-0", tmp_path / "two" / name)
    assert list(dict.fromkeys(Path(row["file"]).parent.name for row in dumped(tmp_path / "two"))) == ["t-2", "t-10"]
    assert run(["log", "dump", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"kohort: {tmp_path} has no segments: it is neither a data directory nor the directory of a partition\n"
    )


@pytest.mark.parametrize("words", [["dump", "nothing.log"], ["dump", "notes.txt"], ["verify", "nowhere"]])
def test_what_cannot_be_read(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert run(["log", words[0], str(tmp_path / words[1])]) == 2
    told = capsys.readouterr().err
    assert "cannot be read" in told
    assert ("no such file" in told.lower()) == (words[1] != "notes.txt")


def test_a_repair_shows_then_mends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = left_behind(tmp_path, "stopped")
    path = min((root / str(PARTITION)).glob("*.log"))
    flip(path, 2)
    line = f"{PARTITION}: {path}, byte {2 * (path.stat().st_size // 5)}: offset 2 is lost\n"
    content = read_tree(root)
    assert run(["log", "repair", "--dry-run", str(root)]) == 1
    assert capsys.readouterr().out == line + "1 partition to repair (--dry-run: nothing was changed), 1 offset lost\n"
    assert read_tree(root) == content
    assert run(["log", "repair", "--json", str(root)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["partition"], row["reason"]) == (str(PARTITION), None)
    assert [(lost["path"], lost["offset"], lost["next_offset"]) for lost in row["lost"]] == [(str(path), 2, 3)]
    assert run(["log", "repair", "--dry-run", str(root)]) == 0
    assert capsys.readouterr().out == "0 partitions to repair (--dry-run: nothing was changed), 0 offsets lost\n"


def test_a_repair_needs_a_data_directory_that_nobody_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "repair", str(tmp_path)]) == 2
    assert "is no data directory" in capsys.readouterr().err
    store = Owner().disk(tmp_path / "data")
    assert run(["log", "repair", str(tmp_path / "data")]) == 2
    assert "is in use by another process" in capsys.readouterr().err
    assert run(["log", "repair", "--dry-run", str(tmp_path / "data")]) == 0
    store.close()
