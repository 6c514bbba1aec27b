"""The first unread record by lookups in logs is that of the table over all batches, and inside a batch the record itself."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.log_starts import CHECKPOINT
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.first_unread import Produced, UnreadOf, find_unread
from kohort.pipeline.sources.options import SourceOptions
from kohort.wire.batch_header import CONTROL, LAST_OFFSET_DELTA_AT, TRANSACTIONAL
from kohort.wire.compression import Codec
from tests.pipeline.logbytes import batch, decode_directory, sealed

SEGMENT_BATCHES = 12
END = [(struct.pack(">hh", 0, control), struct.pack(">hi", 0, 0)) for control in (0, 1)]


def write_log(directory: Path, rng: random.Random) -> None:
    """Plain batches and transactions of three producers in segments with an index; each record has its own millisecond."""
    directory.mkdir(parents=True)
    offset = at_ms = 100
    for number in range(4):
        log, index, base = b"", b"", offset
        for _ in range(SEGMENT_BATCHES):
            at_ms += rng.randrange(1, 400)
            attributes = rng.choice((0, TRANSACTIONAL, TRANSACTIONAL, TRANSACTIONAL | CONTROL))
            is_end, count = attributes & CONTROL, rng.randrange(1, 4)
            pairs = [END[rng.randrange(2)]] if is_end else [(b"k", b"v")] * count
            count = len(pairs)
            producer_id = rng.randrange(3) if attributes else -1
            one = batch(offset, pairs, timestamp_ms=at_ms, producer_id=producer_id, attributes=attributes)
            if log and rng.random() < 0.4:
                index += struct.pack(">ii", offset + count - 1 - base, len(log))
            log, offset = log + one, offset + count
        path = directory / f"{base:020}.log"
        path.write_bytes(log)
        if number % 2 == 0:
            path.with_suffix(".index").write_bytes(index + bytes(64))


def brute_force(rows: list[dict[str, Any]], offset: int) -> Produced | None:
    """By the rules of `time_lag`, from all batches."""
    for at, row in enumerate(rows):
        if row["next_offset"] <= offset or row["is_control"]:
            continue
        ends = (one["control"] for one in rows[at:] if one["is_control"] and one["producer_id"] == row["producer_id"])
        if row["transactional"] and next(ends, None) == schemas.ABORT:
            continue
        return Produced(row["first_timestamp_ms"] + max(offset - row["log_offset"], 0))
    return None


def test_lookups_in_a_directory(tmp_path: Path, rng: random.Random) -> None:
    for partition in range(4):
        write_log(tmp_path / f"t-{partition}", rng)
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / f"{7:020}.log").touch()
    rows = decode_directory(list_segments(tmp_path), Decoder(kinds=(schemas.BATCH,))).to_pylist()
    committed = {("t", partition): range(90, 250) for partition in range(4)} | {("empty", 0): [7], ("gone", 0): [1]}
    found = find_unread(SourceOptions.parse({"path": str(tmp_path)}), committed)
    assert found.pop(("empty", 0)) == UnreadOf(7, has_batch=False)
    for (_, partition), one in found.items():
        mine = [row for row in rows if row["log_partition"] == partition]
        expected = {offset: brute_force(mine, offset) for offset in range(90, 250)}
        assert {offset: one.produced.get(offset) for offset in expected} == expected
        assert (one.start_offset, one.has_batch) == (100, True)
    assert len(found) == 4


def found_in(directory: Path, log: bytes, *offsets: int) -> UnreadOf:
    (directory / "t-0").mkdir(exist_ok=True)
    (directory / "t-0" / f"{10:020}.log").write_bytes(log)
    return find_unread(SourceOptions.parse({"path": str(directory)}), {("t", 0): offsets})["t", 0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_the_record_inside_a_batch_is_read(tmp_path: Path, codec: Codec) -> None:
    log = batch(10, [(b"k", b"v")] * 5, timestamp_ms=1_000, codec=codec)
    assert found_in(tmp_path, log, 13).produced == {13: Produced(1_003)}


def test_of_a_record_that_cannot_be_read_the_batch_tells_the_time(tmp_path: Path) -> None:
    raw = bytearray(batch(10, [(b"k", b"v")] * 5, timestamp_ms=1_000, codec=Codec.GZIP))
    raw[-12:] = bytes(12)
    assert found_in(tmp_path, sealed(raw), 10, 13).produced == {
        10: Produced(1_000),
        13: Produced(1_004, is_exact=False),
    }


def test_a_batch_whose_rest_was_compacted_away_has_no_unread_record(tmp_path: Path) -> None:
    raw = bytearray(batch(10, [(b"k", b"v")] * 2, timestamp_ms=1_000))
    struct.pack_into(">i", raw, LAST_OFFSET_DELTA_AT, 7)
    log = sealed(raw) + batch(18, [(b"k", b"v")], timestamp_ms=2_000)
    assert found_in(tmp_path, log, 11, 13).produced == {11: Produced(1_001), 13: Produced(2_000)}


# the log start offset of a log whose first local offset is 10
STARTS = {
    13: UnreadOf(13, True, {0: Produced(1_003), 11: Produced(1_003), 14: Produced(1_004)}),
    # Records from 7 on are in remote storage (KIP-405), and those before were deleted.
    7: UnreadOf(7, True, {0: Produced(1_000, False), 11: Produced(1_001), 14: Produced(1_004)}),
    15: UnreadOf(15, True),
    None: UnreadOf(10, True, {0: Produced(1_000), 11: Produced(1_001), 14: Produced(1_004)}),
}


@pytest.mark.parametrize("start", STARTS)
def test_who_stands_before_the_log_start_gets_the_record_there(tmp_path: Path, start: int | None) -> None:
    if start is not None:
        (tmp_path / CHECKPOINT).write_text(f"0\n2\nother 0 99\nt 0 {start}\n")
    log = batch(10, [(b"k", b"v")] * 5, timestamp_ms=1_000)
    assert found_in(tmp_path, log, 0, 11, 14) == STARTS[start]


def test_the_directory_of_a_partition_may_be_a_link(tmp_path: Path) -> None:
    """Several log.dirs are read through one directory of links; the checkpoint is in the directory of the broker."""
    broker, links = tmp_path / "broker", tmp_path / "links"
    (broker / "t-0").mkdir(parents=True)
    links.mkdir()
    (links / "t-0").symlink_to(broker / "t-0")
    (broker / CHECKPOINT).write_text("0\n1\nt 0 12\n")
    assert found_in(links, batch(10, [(b"k", b"v")] * 5), 0).start_offset == 12


@pytest.mark.parametrize("text", ["", "0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\n1\nt x 12\n", "\0\xff"])
def test_a_damaged_checkpoint_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / CHECKPOINT).write_text(text)
    assert found_in(tmp_path, batch(10, [(b"k", b"v")]), 0).start_offset == 10
