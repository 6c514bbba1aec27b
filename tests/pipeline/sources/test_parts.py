"""Large segments are read in parts, which give what the whole segment gives."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.sources import directory
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import read_task
from tests.pipeline.logbytes import batch, offset_key, offset_value

Row = dict[str, Any]
SEGMENTS, BATCHES = 2, 60


def written(target: Path, seed: int, *, is_indexed: bool = True, has_damage: bool = False) -> Path:
    """A log of two segments of 60 batches, with an index entry about every third batch, as Kafka writes them."""
    chance = random.Random(seed)
    log = target / "__consumer_offsets-0"
    log.mkdir(parents=True)
    at = 0
    for _ in range(SEGMENTS):
        base, raw, entries = at, bytearray(), []
        for number in range(BATCHES):
            count = chance.randint(1, 5)
            pairs = [(offset_key("g", "t" * chance.randint(1, 60), 0), offset_value(at + one)) for one in range(count)]
            if number % 3 == 2:
                entries.append((at + count - 1 - base, len(raw)))
            raw += batch(at, pairs)
            at += count
            if has_damage and number % 6 == 1:  # before a batch of the index
                raw[-5] ^= 1
        if has_damage:
            for _ in range(4):
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            raw += b"torn"
        path = log / f"{base:020}.log"
        path.write_bytes(raw)
        if is_indexed:
            path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *one) for one in entries) + bytes(800))
    return target


def read(logs: Path, **asked: str) -> tuple[list[Row], int]:
    """The rows of all tasks, and the number of tasks."""
    options = SourceOptions.parse({"path": str(logs), **asked})
    tasks = tasks_of(options)
    return [row for task in tasks for part in read_task(options, task) for row in part.to_pylist()], len(tasks)


def by_place(rows: list[Row]) -> list[Row]:
    """Damage follows the rows of its part."""
    return sorted(rows, key=lambda row: (row["segment"], row["position"] or 0, row["log_offset"] or 0))


@pytest.mark.parametrize("has_damage", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_parts_give_the_rows_and_the_damage_of_the_whole(tmp_path: Path, seed: int, *, has_damage: bool) -> None:
    written(tmp_path, seed, has_damage=has_damage)
    whole, tasks = read(tmp_path)
    assert tasks == 1
    in_parts, tasks = read(tmp_path, minPartitions="12")
    assert 6 <= tasks <= 14
    assert by_place(in_parts) == by_place(whole)
    assert any(row["kind"] == "damage" for row in whole) is has_damage


def test_a_segment_without_an_index_and_the_end_of_a_segment_are_read_as_a_whole(tmp_path: Path) -> None:
    rows, tasks = read(written(tmp_path / "one", 1, is_indexed=False), minPartitions="12")
    assert (len(rows) > 2 * BATCHES, tasks) == (True, SEGMENTS)
    rows, tasks = read(written(tmp_path / "two", 1), minPartitions="12", kinds="offset_commit,segment")
    assert [row["kind"] for row in rows].count("segment") == tasks == SEGMENTS


def test_parts_of_a_segment_that_compaction_replaced_or_retention_deleted(tmp_path: Path) -> None:
    """The positions of the plan are no more those of batches."""
    written(tmp_path, 2)
    options = SourceOptions.parse({"path": str(tmp_path), "minPartitions": "8"})
    tasks = tasks_of(options)
    expected = {row["log_offset"] for row in read(tmp_path)[0]}
    first, second = sorted((tmp_path / "__consumer_offsets-0").glob("*.log"))
    raw = first.read_bytes()
    (size,) = struct.unpack_from(">i", raw, 8)
    gone = struct.unpack_from(">i", raw, 23)[0] + 1
    merged = tmp_path / "merged"
    merged.write_bytes(raw[12 + size :] + second.read_bytes())
    merged.replace(first)
    second.unlink()
    found = [row["log_offset"] for task in tasks for part in read_task(options, task) for row in part.to_pylist()]
    assert found == sorted(expected - set(range(gone)))
    first.unlink()
    assert not [part for task in tasks for part in read_task(options, task)]


def test_the_number_of_parts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tasks = read(written(tmp_path, 3), bytesPerTask="1")
    assert tasks > SEGMENTS * 4
    monkeypatch.setattr(directory, "_PARTS_MAX", 4)
    _, tasks = read(tmp_path, bytesPerTask="1")
    assert tasks == SEGMENTS * 4
