"""
The pipeline in the demo: what the broker's logs tell.

PySpark makes all tables and the report, the engine in one process makes the same rows, and a stream keeps tables up to date
while a group commits. Without Java, the tables come from the engine in one process alone.
"""

import importlib.util
import json
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from demo_application import TRANSACTIONAL_ID
from demo_parts import GROUP, KOHORT, WAIT_SECONDS_MAX, Application, Broker, ClaimError, Narrator
from demo_queries import AUDIT, committed_offsets, consumer, end_offsets, lag_over_the_wire
from demo_transactions import transaction_table
from rich.table import Table

Tables = dict[str, list[dict[str, Any]]]

WHY_TWO_ENGINES: Final = (
    "Spark reads logs of any size, on one machine or on many, and streams; "
    "the engine in one process answers for small logs before a JVM has started"
)

STREAM_SECONDS_MAX: Final = 600.0
"""A session of Spark takes some ten seconds to start, and many times longer on a busy machine."""


def why_no_pipeline() -> str | None:
    """Return why the pipeline cannot run; None if it can."""
    missing = next((name for name in ("duckdb", "pyarrow", "numpy") if importlib.util.find_spec(name) is None), None)
    return None if missing is None else f"{missing} is not installed (pip install 'kohort[tables]')"


def why_no_spark() -> str | None:
    """Return why Spark cannot run; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'kohort[pipeline]')"
    from kohort.model.errors import ConfigError
    from kohort.pipeline import find_java

    try:
        find_java()
    except ConfigError as error:
        return str(error)
    return None


def explain(narrator: Narrator, broker: Broker, runs: list[Application], root: Path) -> Tables:
    """Run the pipeline on the directory of the running broker, and compare its tables with the broker's answers."""
    report = root / "report.html"
    missing = why_no_spark()
    if missing is None:
        narrator.step("Read the broker's logs with PySpark")
        tables, seconds = read_tables(broker.data_dir, "spark", report)
        narrator.fact(
            f"{sum(map(len, tables.values())):,} rows of {len(tables)} tables and a report in {seconds:.0f} s"
        )
        check(narrator, broker, runs, tables)
        narrator.claim(report.exists(), f"report: {report}", f"there is no report at {report}")
        compare_engines(narrator, broker, tables, root)
        stream(narrator, broker, root)
        return tables
    narrator.step(f"Read the broker's logs in one process: Spark is skipped, because {missing}")
    tables, _ = read_tables(broker.data_dir, "local", report)
    check(narrator, broker, runs, tables)
    narrator.claim(report.exists(), f"report: {report}", f"there is no report at {report}")
    return tables


def read_tables(source: Path, engine: str, report: Path) -> tuple[Tables, float]:
    """
    Make all tables and the report.

    Returns:
        The tables by name, and the seconds they took.

    Raises:
        ClaimError: the command failed.
    """
    begun = time.monotonic()
    command = [KOHORT, "pipeline", "report", str(source), "--engine", engine, "--json", "--report", str(report)]
    # Progress is printed on standard error.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ClaimError(f"the pipeline ended with exit code {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - begun


def compare_engines(narrator: Narrator, broker: Broker, tables: Tables, root: Path) -> None:
    narrator.step("Read them with the engine in one process")
    same, seconds = read_tables(broker.data_dir, "local", root / "report-local.html")
    different = [name for name in tables if _rows(tables[name]) != _rows(same[name])]
    narrator.claim(
        not different and tables.keys() == same.keys(),
        f"the same {sum(map(len, same.values())):,} rows in {seconds:.1f} s",
        f"the engines differ in {different}",
    )
    narrator.fact(WHY_TWO_ENGINES)


def _rows(table: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in table)


def stream(narrator: Narrator, broker: Broker, root: Path) -> None:
    """Follow the running broker with Structured Streaming, commit, and find the commits in the published tables."""
    narrator.step("Follow the broker with Structured Streaming while a group commits")
    published, log = root / "tables", root / "follow.log"
    command = [KOHORT, "pipeline", "follow", f"kafka://{broker.bootstrap}", "--out", str(published)]
    with log.open("w") as output:
        follower = subprocess.Popen([*command, "--engine", "spark", "--every", "1"], stdout=output, stderr=output)
    try:
        narrator.until(
            lambda: _published(published, follower) is not None,
            f"the stream has published its first tables (see {log})",
            STREAM_SECONDS_MAX,
        )
        committed = commit_ends(broker)
        took = narrator.until(
            lambda: _published(published, follower) == committed,
            f"the published tables have the new commits of {AUDIT} (see {log})",
            STREAM_SECONDS_MAX,
        )
    finally:
        follower.terminate()
        follower.wait(WAIT_SECONDS_MAX)
    narrator.held(f"{len(committed)} new commits are in the published tables {took:.1f} s later: {published}")


def commit_ends(broker: Broker) -> dict[tuple[str, int], int]:
    """Commit the end offsets for the second group; returns them."""
    ends = [TopicPartition(*position, offset) for position, offset in end_offsets(broker).items()]
    with consumer(broker, AUDIT) as auditor:
        auditor.commit(offsets=ends, asynchronous=False)
    return committed_offsets(broker, AUDIT)


def _published(published: Path, follower: "subprocess.Popen[bytes]") -> dict[tuple[str, int], int] | None:
    """
    The published offsets of the second group; None if none are published yet.

    Raises:
        ClaimError: the stream has ended.
    """
    if follower.poll() is not None:
        raise ClaimError(f"the stream ended with exit code {follower.returncode}")
    if not published.exists():
        return None
    command = [KOHORT, "pipeline", "offsets", str(published), "--group", AUDIT, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return {(row["topic"], row["partition"]): row["offset"] for row in json.loads(done.stdout)}


def check(narrator: Narrator, broker: Broker, runs: list[Application], tables: Tables) -> None:
    """Print the tables, and compare them with the answers of the broker and of the application."""
    expected = lag_over_the_wire(broker)
    latest = {(it["group"], it["topic"], it["partition"]): it["offset"] for it in tables["offsets"]}
    computed = {(it["group"], it["topic"], it["partition"]): (it["offset"], it["lag"]) for it in tables["lag"]}
    narrator.console.print(lag_table(computed))
    narrator.claim(
        computed == expected and latest == {key: offset for key, (offset, _) in expected.items()},
        f"latest offsets and lag of {len(expected)} partitions of three groups equal the broker's answers",
        f"the pipeline and the broker differ: {sorted(set(computed.items()) ^ set(expected.items()))}",
    )
    happened = [it for it in tables["rebalances"] if it["group"] == GROUP and it["event"] == "rebalanced"]
    narrator.console.print(rebalance_table(happened))
    sizes = [len(it["members"]) for it in happened]
    gone = [member["client_id"] for it in happened for member in it["left"]]
    narrator.claim(
        {3, 2, 1} <= set(sizes) and gone[:2] == ["confluent-kafka", "kafka-python"],
        f"{len(happened)} rebalances, including the member that left and the member that was killed",
        f"the rebalances are not as expected: {sizes} members, {gone} left",
    )
    outcomes = Counter(it["outcome"] for it in tables["transactions"] if it["transactional_id"] == TRANSACTIONAL_ID)
    narrator.console.print(transaction_table(tables["transactions"]))
    committed = sum(it.transactions for it in runs)
    narrator.claim(
        outcomes == {"committed": committed, "aborted": 1},
        f"{committed} committed transactions and an aborted one, as the application reported",
        f"the application committed {committed} transactions, and the pipeline found {dict(outcomes)}",
    )


def lag_table(lag: dict[tuple[str, str, int], tuple[int, int]]) -> Table:
    table = Table(
        "group", "topic", title="offsets and lag by partition", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("partitions", "latest offsets", "lag", "total lag"):
        table.add_column(heading, justify="right")
    for group, topic in sorted({(group, topic) for group, topic, _ in lag}):
        rows = [lag[it] for it in sorted(lag) if it[:2] == (group, topic)]
        offsets, lags = (" ".join(str(row[index]) for row in rows) for index in (0, 1))
        table.add_row(group, topic, str(len(rows)), offsets, lags, str(sum(row[1] for row in rows)))
    return table


def rebalance_table(rebalances: list[dict[str, Any]]) -> Table:
    table = Table(
        "completed (UTC)", "generation", title=f"rebalances of {GROUP}", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("members", "joined", "left", "took"):
        table.add_column(heading)
    for it in rebalances:
        at = datetime.fromtimestamp(it["completed_at_ms"] / 1000, UTC)
        who = (", ".join(member["client_id"] for member in it[which]) or "-" for which in ("members", "joined", "left"))
        table.add_row(
            f"{at:%H:%M:%S}", str(it["generation"]), *who, f"{(it['duration_ms'] or it['sync_ms'] or 0) / 1000:.1f} s"
        )
    return table
