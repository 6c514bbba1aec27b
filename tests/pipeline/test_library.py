"""The documented tour runs, and the functions need no Spark to be imported."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline import (
    assignments,
    commits,
    lag,
    members,
    offsets,
    read,
    rebalances,
    share_state,
    spark_session,
    topic_names,
)
from kohort.pipeline.decode import schemas
from kohort.pipeline.engines.dispatch import is_local
from kohort.pipeline.front import METHODS
from kohort.pipeline.jobs import published
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.tables.contract import columns_of
from tests.pipeline import frames

DOCS = Path(__file__).parents[2] / "docs" / "pipeline.md"
README = Path(__file__).parents[2] / "README.md"


def test_importing_imports_no_spark() -> None:
    code = "import sys, kohort.pipeline; sys.exit(bool({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_kind_option_and_table_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    options = re.findall(r"^    \| `(\w+)`", SourceOptions.__doc__ or "", re.MULTILINE)
    assert options
    for name in (*schemas.KINDS, *published.TABLES, *options):
        assert f"`{name}`" in text, name


def test_published_tables_have_the_documented_columns(engine: Any, recorded: Callable[[str], Path]) -> None:
    from kohort.pipeline.jobs.reading import Reading
    from kohort.pipeline.jobs.tables import Tables

    tables = Tables(Reading(engine, recorded("tv1") / "logs"))
    text = DOCS.read_text(encoding="utf-8").split("## The tables")[1]
    rows = {
        name: re.findall(r"`(\w+)`", rest)
        for name, rest in re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", text, re.MULTILINE)
    }
    rows["lag"] = rows["offsets"] + rows["lag"]
    rows["time_lag"] = rows["lag"] + rows["time_lag"]
    rows["rebalance_costs"] = rows["rebalances"] + rows["rebalance_costs"]
    assert set(rows) == set(published.TABLES)
    for name in published.TABLES:
        frame = getattr(tables, name)
        assert set(frame.columns) == set(rows[name]), name
        if is_local(frame):
            continue
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        assert types == {column.name: column.sql for column in columns_of(name)}, name


def test_the_tour_without_spark_runs(recorded: Callable[[str], Path]) -> None:
    *_, code, _, _ = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    logs = str(recorded("main") / "logs")
    found: dict[str, Any] = {}
    code = (
        code.replace("kafka://localhost:9092", logs).replace("/var/lib/kafka", logs).replace("orders", "classic-three")
    )
    exec(code, found)
    assert found["behind"].num_rows == 94
    assert set(found["changes"]["group"].to_pylist()) == {"classic-three"}
    assert found["members"].num_rows == 3


@pytest.mark.spark
def test_the_tour_runs(
    spark: Any,
    recorded: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = str(recorded("main") / "logs")
    monkeypatch.setattr(spark_session, "session", lambda: nullcontext(spark))
    blocks = [
        block.replace("/var/lib/kafka", logs).replace("kafka://localhost:9092", logs).replace("/srv/", f"{tmp_path}/")
        for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    ]
    front, stored, table, _, tour, stream = blocks
    names = {"spark": spark, "directory": logs, "target": str(tmp_path / "target")}
    names["checkpoint"] = str(tmp_path / "of-target")
    for block in (front, stored, table, tour, stream):
        exec(block, names)
    assert "hold-open" in capsys.readouterr().out
    of_lag = spark.read.parquet(str(tmp_path / "lag"))
    assert of_lag.where("group = 'classic-three' and topic = 'orders'").count() == 4
    assert spark.read.parquet(str(tmp_path / "offsets")).count() == read(spark, logs).offsets().count() > 4
    assert names["query"].awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "target")).where("group = 'classic-three'").count() > 10


@pytest.mark.spark
def test_the_methods_of_a_read_are_the_tables_of_the_commands(spark: Any, recorded: Callable[[str], Path]) -> None:
    logs = read(spark, str(recorded("main") / "logs"))
    assert f"`{'`, `'.join(sorted(METHODS))}`".replace(", `transactions`", " and `transactions`") in re.sub(
        r"\s+", " ", DOCS.read_text(encoding="utf-8")
    )
    assert {
        getattr(logs, name)().columns == [each.name for each in columns_of(table)] for name, table in METHODS.items()
    } == {True}
    assert logs.lag() is logs.lag(), "one read serves all"
    assert not hasattr(logs.where("kind = 'marker'"), "_kohort_source")
    assert logs.select("kind").distinct().count() > 3


@pytest.mark.spark
def test_a_stream_is_refused_with_the_way_that_works(spark: Any, recorded: Callable[[str], Path]) -> None:
    stream = spark.readStream.format("kohort").load(str(recorded("main") / "logs"))
    for table in (offsets, commits, rebalances, members, assignments, share_state):
        with pytest.raises(ConfigError, match=r"this frame is a stream: .*foreachBatch.*pipeline follow"):
            table(stream)
    with pytest.raises(ConfigError, match="this frame is a stream"):
        lag(read(spark, str(recorded("main") / "logs")).offsets(), stream, at_ms=1)


@pytest.mark.spark
def test_the_lines_of_the_readme_run(
    spark: Any, recorded: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code for Spark in README, as it is printed; its session is the one of the tests."""
    monkeypatch.setattr(spark_session, "session", lambda: nullcontext(spark))
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "spark" in block)
    assert code.count('"./data"') == 1
    exec(code.replace("./data", str(recorded("main") / "logs")), {})
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert ["group", "partition", "offset", "end_offset", "lag"] in lines
    of_group = [line for line in lines if line[0] == "classic-three"]
    assert of_group[:4] == [["classic-three", str(partition), "6", "6", "0"] for partition in range(4)]
    # Then the number of its rebalances.
    assert [len(line) for line in of_group[4:]] == [2]


@pytest.mark.spark
def test_frames_out_of_one_read(spark: Any, recorded: Callable[[str], Path]) -> None:
    logs = str(recorded("main") / "logs")
    records = spark.read.format("kohort").load(logs).persist()
    batches = spark.read.format("kohort").option("topics", "orders").option("kinds", "batch").load(logs)
    at_ms = 1_795_252_990_000
    latest = offsets(records, as_of_ms=at_ms).where("topic = 'orders'")
    behind = frames.rows_of(lag(latest, batches, at_ms=at_ms), "group", "partition")
    assert all(row["end_offset"] == 6 for row in behind)
    assert {row["time_lag_ms"] > 0 for row in behind if row["lag"]} == {True}
    assert commits(records).count() > 150
    owners = frames.tuples(
        assignments(records).where("group = 'classic-three' and partition = 0"), "since_ms", "until_ms"
    )
    # One owner after the other, and nobody twice at a time.
    assert all(until == since for (_, until), (since, _) in pairwise(owners))
    assert members(records).where("group = 'classic-three'").count() == 3
    # Changes up to an instant are those of all the time up to it.
    changes = frames.tuples(rebalances(records).where("group = 'classic-three'"), "completed_at_ms", "event")
    middle_ms = changes[len(changes) // 2][0]
    past = rebalances(records, as_of_ms=middle_ms).where("group = 'classic-three'")
    assert frames.tuples(past, "completed_at_ms", "event") == [one for one in changes if one[0] <= middle_ms]


@pytest.mark.spark
def test_functions_return_what_the_commands_print(spark: Any, recorded: Callable[[str], Path]) -> None:
    """Names of topics, ends of logs without a record, lag of share groups."""
    from kohort.pipeline.jobs.reading import Reading
    from kohort.pipeline.jobs.tables import Tables

    logs = str(recorded("main") / "logs")
    printed = Tables(Reading(spark, logs))
    reader = spark.read.format("kohort")
    records = reader.load(logs).persist()
    data = reader.option("topics", "*").option("kinds", "batch,segment").load(logs).persist()
    names = topic_names(records, logs)
    for name, mine, by in (
        (
            "time_lag",
            lag(offsets(records), data, at_ms=printed.reading.at_ms, owned=assignments(records, names=names)),
            ("group", "topic", "partition"),
        ),
        ("share_state", share_state(records, data, names=names), ("group", "topic_id", "partition")),
        ("assignments", assignments(records, names=names), ("group", "first_log_offset", "member_id", "partition")),
    ):
        theirs = getattr(printed, name)
        assert mine.columns == theirs.columns
        rows, expected = frames.rows_of(mine, *by), frames.rows_of(theirs, *by)
        # The commands read the record inside a batch, the functions its header.
        inside = [at for at, row in enumerate(rows) if row.get("is_exact") is False]
        assert [row for at, row in enumerate(rows) if at not in inside] == [
            row for at, row in enumerate(expected) if at not in inside
        ]
        assert all(rows[at]["time_lag_ms"] <= expected[at]["time_lag_ms"] for at in inside)
        assert len(inside) < len(rows)
    assert share_state(records).columns == printed.share_state.columns
    spark.catalog.clearCache()


@pytest.mark.spark
def test_the_example_finds_groups_on_a_log_that_retention_has_emptied(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(README.parent / "examples"))
    from stuck_groups import stuck

    shutil.copytree(recorded("odd") / "deleted-records", tmp_path / "logs")
    emptied = tmp_path / "logs" / "trimmed-2"
    for file in emptied.glob("0*"):
        file.unlink()
    (emptied / f"{100:020d}.log").touch()
    found = frames.rows_of(stuck(spark, str(tmp_path / "logs"), minutes=0), "group")
    assert [(row["group"], row["lag"]) for row in found if row["partition"] == 2] == [("late-for-all", 70)]
