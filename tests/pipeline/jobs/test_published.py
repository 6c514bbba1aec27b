"""Published tables change all at once, and are read without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline.commands import app
from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import published
from kohort.pipeline.jobs.pointer import POINTER, Published
from kohort.pipeline.tables.contract import COLUMNS

PLACE = {"log_partition": 0, "group": "g", "topic": "t", "partition": 0, "leader_epoch": 1, "metadata": ""}
SCHEMA = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("tombstone", pa.bool_()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp_ms", pa.int64()),
        ("fate", pa.string()),
        ("visible_at_ms", pa.int64()),
    ]
)


def commit(log_offset: int, at_ms: int | None, offset: int | None, **other: Any) -> dict[str, Any]:
    row = {"log_offset": log_offset, "offset": offset, "visible_at_ms": at_ms, "tombstone": offset is None}
    return {**PLACE, "commit_timestamp_ms": at_ms, "fate": "plain", **row, **other}


HISTORY = [
    commit(0, 10, 3),
    commit(1, 15, 4, group="other"),
    commit(2, None, 8, fate="aborted"),
    commit(3, 20, 5),
    commit(4, 30, None),
    commit(5, 40, 9),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "logs" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"")
    return tmp_path / "logs"


def write(directory: Path, name: str = "offset_commits", rows: list[dict[str, Any]] | None = None) -> None:
    (directory / name).mkdir()
    pq.write_table(pa.Table.from_pylist(HISTORY if rows is None else rows, SCHEMA), directory / name / "part-0.parquet")


def publish(out: Path, source: Path, **options: Any) -> Published:
    return published.publish(out, source, lambda directory: write(directory, **options), made_of={"any": "thing"})


def test_nothing_is_published_at_first(tmp_path: Path) -> None:
    assert not published.is_published(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"does not say which tables are current"):
        published.rows(tmp_path / "out", "offsets")


def test_a_version_counts_once_it_is_whole(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    publish(out, source, rows=HISTORY[:1])

    def breaks(directory: Path) -> None:
        write(directory)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        published.publish(out, source, breaks, made_of=[])
    assert published.current(out).version == 1
    assert [row["log_offset"] for row in published.rows(out, "offset_commits")] == [0]
    publish(out, source)
    assert published.current(out).version == 2
    assert len(published.rows(out, "offset_commits")) == len(HISTORY)


def test_the_version_before_stays_for_those_who_read_it(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    for _ in range(3):
        publish(out, source)
    assert sorted(path.name for path in (out / "versions").iterdir()) == ["2", "3"]


def test_what_it_was_made_of_is_told(tmp_path: Path, source: Path) -> None:
    publish(tmp_path, source)
    assert published.current(tmp_path).fingerprint == {"any": "thing"}
    assert published.current(tmp_path).source == str(source)


def test_a_newer_format_is_refused(tmp_path: Path, source: Path) -> None:
    publish(tmp_path, source)
    told = json.loads((tmp_path / POINTER).read_text())
    (tmp_path / POINTER).write_text(json.dumps(told | {"format": 99}))
    with pytest.raises(ConfigError, match=r"written by a newer release"):
        published.current(tmp_path)


# fmt: off
INSTANTS = [
    (5,    []),
    (10,   [("g", 3)]),
    (25,   [("g", 5), ("other", 4)]),
    (30,   [("other", 4)]),
    (99,   [("g", 9), ("other", 4)]),
]
# fmt: on


@pytest.mark.parametrize(("at_ms", "expected"), INSTANTS)
def test_offsets_as_of_an_instant(tmp_path: Path, source: Path, at_ms: int, expected: list[tuple[str, int]]) -> None:
    publish(tmp_path / "out", source)
    rows = published.offsets_as_of(tmp_path / "out", at_ms).to_pylist()
    assert [(row["group"], row["offset"]) for row in rows] == expected


def test_only_one_group(tmp_path: Path, source: Path) -> None:
    publish(tmp_path / "out", source)
    rows = published.rows(tmp_path / "out", "offset_commits", where={"group": "other", "transactional_id": "x"})
    assert [row["log_offset"] for row in rows] == [1]
    assert [published.has_group(tmp_path / "out", name) for name in ("g", "other", "nobody")] == [True, True, False]


def test_the_command_line_reads_published_tables(tmp_path: Path, source: Path) -> None:
    out = str(tmp_path / "out")
    publish(tmp_path / "out", source)
    told = CliRunner().invoke(app, ["offsets", out, "--as-of", "1970-01-01T00:00:00.025Z", "--json"])
    assert [(row["group"], row["offset"]) for row in json.loads(told.output)] == [("g", 5), ("other", 4)]
    assert CliRunner().invoke(app, ["export-offsets", out, "--as-of", "99"]).output == "g,t,0,9\nother,t,0,4\n"
    assert CliRunner().invoke(app, ["export-offsets", out, "--as-of", "99", "--group", "g"]).output == "t,0,9\n"


# fmt: off
REFUSED = {
    ("offsets",):                               "holds no table offsets",
    ("status", "--history"):                    "holds no table status_history; `kohort pipeline run --history` writes it",
    ("lag", "--as-of", "12"):                   "published tables support --as-of for offsets only",
    ("offsets", "--as-of", "yesterday"):        "is not a time; write 2026-11-21T09:30:00",
    ("offsets", "--as-of", "99", "--group", "h"): "has no group 'h' up to 99",
    ("offsets", "--out", "x"):                  "contains published tables",
}
# fmt: on


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_published_tables_cannot_answer_is_a_sentence(
    tmp_path: Path, source: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    publish(tmp_path / "out", source)
    command, *options = arguments
    done = CliRunner().invoke(app, [command, str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert REFUSED[arguments] in capfd.readouterr().err


def test_tables_of_another_release_are_recognised(tmp_path: Path) -> None:
    made, columns = Published(tmp_path, 1, "/logs", None), {name: [1] for name in COLUMNS["lag_over_time"]}
    for name, written in (("lag_over_time", columns), ("lag", columns)):
        (made.path / name).mkdir(parents=True)
        pq.write_table(pa.table(written), made.path / name / "part.parquet")
    assert published.is_of_this_release(made, ["lag_over_time"])
    assert not published.is_of_this_release(made, ["lag_over_time", "lag"])
    assert not published.is_of_this_release(made, ["lag_over_time", "members"])
