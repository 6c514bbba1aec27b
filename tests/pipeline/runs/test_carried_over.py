"""Which rows of a version become rows of the next one, and how."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.pipeline.runs import carried_over
from kohort.pipeline.runs.carried_over import carry_over

Row = dict[str, Any]


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    """The directory of a table in a version and in the next one."""
    before, after = tmp_path / "1" / "t", tmp_path / "2" / "t"
    before.mkdir(parents=True)
    after.mkdir(parents=True)
    return before, after


def write(directory: Path, **files: list[Row]) -> None:
    for name, rows in files.items():
        pq.write_table(pa.Table.from_pylist(rows), directory / f"{name}.parquet")


def rows_of(directory: Path) -> list[Row]:
    return sorted(pq.read_table(directory).to_pylist(), key=str)


def row(group: str, value: int = 0) -> Row:
    return {"group": group, "value": value}


def test_files_of_others_are_linked_and_mixed_ones_are_copied_in_part(versions: tuple[Path, Path]) -> None:
    before, after = versions
    write(before, rests=[row("a"), row("b")], mixed=[row("c", 1), row("new", 1), row("c", 2)], gone=[row("new", 3)])
    carry_over("offsets", before, after, {"new"}, at_ms=0)
    assert rows_of(after) == [row("a"), row("b"), row("c", 1), row("c", 2)]
    assert (after / "rests.parquet").stat().st_ino == (before / "rests.parquet").stat().st_ino
    assert len(list(after.iterdir())) == 2


def test_files_stay_few(versions: tuple[Path, Path]) -> None:
    before, after = versions
    write(before, **{f"f{at}": [row(f"g{at:03}")] for at in range(carried_over.FILES_MAX + 1)})
    carry_over("offsets", before, after, {"new"}, at_ms=0)
    assert len(list(after.iterdir())) == 1
    assert len(rows_of(after)) == carried_over.FILES_MAX + 1


def test_a_table_without_rows_leaves_none(versions: tuple[Path, Path]) -> None:
    before, after = versions
    pq.write_table(pa.table({"group": pa.array([], pa.string())}), before / "empty.parquet")
    carry_over("offsets", before, after, {"new"}, at_ms=0)
    assert list(after.iterdir()) == []


def test_what_lasts_has_lasted_longer(versions: tuple[Path, Path]) -> None:
    before, after = versions
    gaps = [(5, None, 10), (5, 9, 4), (30, None, 0)]
    write(before, gaps=[row("g") | dict(zip(("since_ms", "until_ms", "unowned_ms"), gap, strict=True)) for gap in gaps])
    carry_over("time_without_owner", before, after, {"new"}, at_ms=25)
    lasted = {(one["since_ms"], one["until_ms"]): one["unowned_ms"] for one in rows_of(after)}
    # Who lost its owner after the instant of the tables has waited for nothing yet.
    assert lasted == {(5, None): 20, (5, 9): 4, (30, None): 0}


def test_who_has_read_all_waits_for_nothing_still(versions: tuple[Path, Path]) -> None:
    before, after = versions
    waits = [(None, 0), (5, 10), (None, None)]
    write(before, waits=[row("g") | {"next_produced_at_ms": since, "time_lag_ms": told} for since, told in waits])
    carry_over("time_lag", before, after, {"new"}, at_ms=25)
    told = [(one["next_produced_at_ms"], one["time_lag_ms"]) for one in rows_of(after)]
    assert sorted(told, key=str) == [(5, 20), (None, 0), (None, None)]
