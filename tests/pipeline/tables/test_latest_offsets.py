"""Where groups stand is the same in one pass over what a source folded as out of the whole table of commits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.offsets.latest_offsets import (
    INPUT_COLUMNS,
    damage_of,
    last_records,
    latest_offsets,
    offsets_of,
)
from kohort_lab.history import History
from tests.pipeline import frames
from tests.pipeline.tables.test_offset_commits import LATEST, commit, committed, spread

KEY = ("group", "topic", "partition")


def test_the_latest_offset_that_counts(engine: Any) -> None:
    rows = [
        {**row, "group": name} if row["kind"] == "offset_commit" else row for name in LATEST for row in spread(name)
    ]
    got = frames.rows_of(offsets_of(last_records(frames.records(engine, INPUT_COLUMNS, known(rows)))), "group")
    assert {row["group"]: row["offset"] for row in got} == {
        name: offset for name, (_, offset) in LATEST.items() if offset is not None
    }


def test_damage_is_kept_beside_them(engine: Any) -> None:
    place = {"kind": "damage", "log_topic": "__consumer_offsets", "log_partition": 0, "segment": "0.log"}
    damage = [place | {"position": at, "size_bytes": 9, "problem": "zero bytes"} for at in (61, 7)]
    damage += [place | {"position": 61, "size_bytes": 9, "log_offset": 3, "problem": "CRC does not match"}]
    rows = [commit(0, 5), *damage, commit(1, 6, pid=8), committed(2, 8)]
    last = last_records(frames.records(engine, INPUT_COLUMNS, known(rows)))
    assert frames.tuples(offsets_of(last), *KEY, "offset") == [("g", "t", 0, 6)]
    assert frames.tuples(damage_of(last), "position", "size_bytes", "log_offset", "problem") == [
        (7, 9, None, "zero bytes"),
        (61, 9, 3, "CRC does not match"),
        (61, 9, None, "zero bytes"),
    ]


@pytest.mark.parametrize("run", ["main", "unclean-torn"])
def test_recorded_logs_say_the_same(engine: Any, recorded: Callable[[str], Path], run: str) -> None:
    assert_same(engine, recorded(run) / "logs")


def test_histories_say_the_same(engine: Any, tmp_path: Path) -> None:
    """With transactions, compaction, a torn end and small segments; also at an instant of the past."""
    History(11).write(tmp_path)
    written = pc.min(Reading(engine, tmp_path).records.toArrow()["timestamp_ms"]).as_py()
    ends = Reading(engine, tmp_path).at_ms
    for as_of_ms in (None, (written + ends) // 2):
        assert_same(engine, tmp_path, as_of_ms=as_of_ms)


def assert_same(engine: Any, logs: Path, **asked: Any) -> None:
    whole, quick = Reading(engine, logs, **asked), Reading(engine, logs, is_latest_only=True, **asked)
    expected = frames.rows_of(latest_offsets(whole.offset_commits), *KEY)
    assert expected
    assert frames.rows_of(Tables(quick).offsets, *KEY) == expected
    assert frames.rows_of(quick.damage(), "log_partition", "position") == frames.rows_of(
        whole.damage(), "log_partition", "position"
    )


def known(rows: list[frames.Row]) -> list[frames.Row]:
    """Rows with the columns alone that latest offsets are made of."""
    return [{name: value for name, value in row.items() if name in INPUT_COLUMNS} for row in rows]
