"""A report of published tables, without Spark and without logs."""

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.pipeline.jobs import published
from kohort.pipeline.report.build import thinned
from kohort.pipeline.tables import contract
from kohort.pipeline.tables.lag.lag_over_time import CHART_POINTS
from tests.pipeline.report.test_groups import EVIL_TEXT, whole

ALONE = """import sys
from kohort.cli.pipeline.commands import app
app(sys.argv[1:], standalone_mode=False)
print('pyspark' in sys.modules)
"""


def publish(out: Path) -> None:
    data = whole()
    series = [
        {"group": row["group"], "timestamp_ms": row["timestamp_ms"], "lag": row["lag"]} for row in data.lag_picture
    ]
    rows: dict[str, Any] = {
        "time_lag": data.lag,
        "lag_over_time": series,
        "time_lag_over_time": data.time_lag_over_time,
        "rebalance_costs": data.rebalances,
        "status": data.status,
        "members": data.members,
        "assignments": data.assignments,
        "offset_commits": [],
    }

    def write(directory: Path) -> None:
        for name in published.USUAL:
            columns: dict[str, Any] = {
                column: pa.array(
                    [row.get(column) for row in rows.get(name, ())] or [], None if rows.get(name) else pa.string()
                )
                for column in contract.COLUMNS[name]
            }
            (directory / name).mkdir()
            pq.write_table(pa.table(columns), directory / name / "part-0.parquet")

    published.publish(out, "/logs", write, made_of={"known": {"at_ms": data.at_ms}})


def test_a_report_of_published_tables(tmp_path: Path) -> None:
    publish(tmp_path / "out")
    page = tmp_path / "page.html"
    command = [sys.executable, "-c", ALONE, "report", str(tmp_path / "out"), "--report", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    text = page.read_text()
    assert "as of 2026-11-21 09:20:43.123 UTC" in text
    assert f"<h2>{EVIL_TEXT}</h2>" in text
    assert "of coordinator log" not in text
    assert "Time lag of group g: 5.0 s at the end, at most 5.0 s" in text
    done = subprocess.run([*command, "--group", "g"], capture_output=True, text=True, timeout=300, check=True)
    assert (
        EVIL_TEXT not in page.read_text().partition("<section")[0].partition('id="index"')[2].partition("</table>")[0]
    )


def test_a_series_is_thinned_as_spark_does() -> None:
    rng = Random(5)
    rows: list[dict[str, Any]] = [
        {"group": group, "timestamp_ms": at, "lag": rng.randrange(100)}
        for group, count in (("a", 5000), ("b", 7), ("c", 1))
        for at in sorted(rng.sample(range(10_000), count))
    ]
    expected = []
    for group in "abc":
        theirs = [row for row in rows if row["group"] == group]
        first, last = theirs[0]["timestamp_ms"], theirs[-1]["timestamp_ms"]
        intervals: dict[int, list[dict[str, Any]]] = {}
        for row in theirs:
            intervals.setdefault((row["timestamp_ms"] - first) * CHART_POINTS // (last - first + 1), []).append(row)
        expected += [some[-1] | {"lag_max": max(row["lag"] for row in some)} for some in intervals.values()]
    shuffled = sorted(rows, key=lambda _: rng.random())
    assert thinned(pa.Table.from_pylist(shuffled)) == expected
