"""The first unread record by lookups in logs is that of the table over all batches."""

import random
import struct
from pathlib import Path
from typing import Any

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.first_unread import UnreadOf, find_unread
from kohort.pipeline.sources.options import SourceOptions
from kohort.wire.batch_header import CONTROL, TRANSACTIONAL
from tests.pipeline.logbytes import batch, decode_directory

AT_MS = 10_000
SEGMENT_BATCHES = 12
END = [(struct.pack(">hh", 0, control), struct.pack(">hi", 0, 0)) for control in (0, 1)]


def write_log(directory: Path, rng: random.Random) -> None:
    """Plain batches and transactions of three producers in segments with an index; some batches are later than `AT_MS`."""
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


def brute_force(rows: list[dict[str, Any]], offset: int) -> int | None:
    """By the rules of `time_lag`, from all batches."""
    past = [row for row in rows if row["timestamp_ms"] <= AT_MS]
    for at, row in enumerate(past):
        if row["next_offset"] <= offset or row["is_control"]:
            continue
        ends = (one["control"] for one in past[at:] if one["is_control"] and one["producer_id"] == row["producer_id"])
        if row["transactional"] and next(ends, None) == schemas.ABORT:
            continue
        return int(row["first_timestamp_ms"] if row["log_offset"] >= offset else row["timestamp_ms"])
    return None


def test_lookups_in_a_directory(tmp_path: Path, rng: random.Random) -> None:
    for partition in range(4):
        write_log(tmp_path / f"t-{partition}", rng)
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "empty-0" / f"{7:020}.log").touch()
    rows = decode_directory(list_segments(tmp_path), Decoder(kinds=(schemas.BATCH,))).to_pylist()
    committed = {("t", partition): range(90, 250) for partition in range(4)} | {("empty", 0): [7], ("gone", 0): [1]}
    found = find_unread(SourceOptions.parse({"path": str(tmp_path)}), committed, at_ms=AT_MS)
    assert found.pop(("empty", 0)) == UnreadOf(None, has_batch=False)
    for (_, partition), one in found.items():
        mine = [row for row in rows if row["log_partition"] == partition]
        expected = {offset: brute_force(mine, offset) for offset in range(90, 250)}
        assert {offset: one.produced_at_ms.get(offset) for offset in expected} == expected
        assert (one.start_offset, one.has_batch) == (100, True)
    assert len(found) == 4


def test_a_log_of_later_batches_only_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(batch(0, [(b"k", b"v")], timestamp_ms=AT_MS + 1))
    options = SourceOptions.parse({"path": str(tmp_path)})
    assert find_unread(options, {("t", 0): [0, 1]}, at_ms=AT_MS) == {("t", 0): UnreadOf(None, has_batch=True)}
