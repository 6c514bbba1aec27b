"""`kohort pipeline`, as it is typed."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kohort.cli.pipeline import tables
from kohort.cli.pipeline.aligned import print_table
from kohort.cli.pipeline.commands import app
from kohort.model.errors import ConfigError
from kohort.pipeline import spark_session
from kohort.pipeline.jobs import publish, published
from kohort.pipeline.spark_session import find_java
from kohort.testing.ports import free_ports

ENTRY = "from kohort.cli.pipeline.commands import app; app(prog_name='kohort pipeline')"


def kohort_pipeline(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is printed there is all that a user sees."""
    import os

    return subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_needs_no_spark() -> None:
    code = "import sys, kohort.cli.pipeline.commands; sys.exit(bool({'pyspark', 'pyarrow', 'rich.table'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {
        "offsets",
        "lag",
        "status",
        "rebalances",
        "members",
        "partitions",
        "commits",
        "share",
        "transactions",
        "export-offsets",
        "run",
        "follow",
        "export",
        "dashboard",
        "report",
        "schema",
    } <= set(CliRunner().invoke(app, ["--help"]).output.split())


@pytest.mark.parametrize("command", ["offsets", "lag", "rebalances", "report"])
def test_no_such_directory_is_a_sentence(tmp_path: Path, command: str) -> None:
    done = kohort_pipeline(command, str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"kohort pipeline: {tmp_path}/nowhere is not a directory; name the data directory of a broker (Kafka: log.dirs)\n"
    )


def test_a_directory_without_a_coordinator_log_is_a_sentence(tmp_path: Path) -> None:
    done = kohort_pipeline("lag", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"kohort pipeline: {tmp_path} holds no log of a group coordinator")
    assert done.stderr.count("\n") == 1


def test_a_directory_is_named_by_a_uri(recorded: Callable[[str], Path]) -> None:
    """As one in an object store: the path of a URI is not one of the working directory."""
    logs, runner = recorded("tv1") / "logs", CliRunner()
    told = [runner.invoke(app, ["lag", source, "--json"]).output for source in (str(logs), f"file://{logs}")]
    assert json.loads(told[0])
    assert told[0] == told[1]


def test_no_java_is_a_sentence(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    done = kohort_pipeline("offsets", str(recorded("tv1") / "logs"), "--engine", "spark", JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no Java in JAVA_HOME" in done.stderr
    assert done.stderr.count("\n") == 1


# fmt: off
REFUSED = [
    (("partitions", "LOGS", "--owners", "--unowned"),        "--unowned and --owners select different tables"),
    (("transactions", "LOGS", "--open", "--statistics"),     "--open and --statistics select different tables"),
    (("lag", "LOGS", "--report", "LOGS/nowhere/page.html"),  "the directory does not exist"),
    (("report", "LOGS", "--report", "LOGS/nowhere/x.html"),  "the directory does not exist"),
    (("report", "OUT", "--out", "LOGS/out"),                 "--out and --as-of need a data directory"),
    (("report", "OUT", "--group", "c"),                      "was published only for groups a, b"),
    (("follow", "kafka://127.0.0.1:1", "--out", "LOGS/out"), "no broker answers at 127.0.0.1:1"),
    (("follow", "OUT", "--out", "LOGS/out"),                 "contains published tables; this command needs logs"),
    (("run", "OUT", "--out", "LOGS/out"),                    "contains published tables; this command needs logs"),
    (("run", "LOGS", "--out", "LOGS/out", "--every", "5"),   "--every needs --stream"),
    (("run", "LOGS", "--out", "LOGS/out", "--groups", ","),  "--groups is empty"),
    (("run", "LOGS", "--out", "LOGS/out", "--stream", "--as-of", "9"), "--as-of and --stream exclude each other"),
    (("lag", "localhost:9092"),                              "write kafka://localhost:9092 for a running cluster"),
    (("lag", "b-1.kafka:9092,[::1]:9093"),                   "write kafka://b-1.kafka:9092,[::1]:9093 for a running"),
    (("lag", "LOGS", "--out", "/dev/full/x"),                "cannot be written to /dev/full/x: /dev/full is not a directory"),
    (("report", "LOGS", "--out", "/dev/full/x"),             "cannot be written to /dev/full/x: /dev/full is not a directory"),
    (("run", "LOGS", "--out", "/dev/full/x"),                "cannot be written to /dev/full/x: /dev/full is not a directory"),
    (("lag", "LOGS", "--out", "OUT/x", "--master", "spark://h:1"),  "a directory of this machine, and the executors of spark://h:1"),
    (("report", "LOGS", "--out", "OUT/x", "--master", "yarn"), "into their own; name a place that all of them reach"),
    (("run", "LOGS", "--out", "OUT/x", "--master", "k8s://h"), "hdfs://, s3a://, or file://"),
    (("schema", "lags"),                                     "there is no table 'lags'; there are offsets, lag, time_lag"),
    (("lag", "LOGS", "--as-of", "2999-01-01"),               "--as-of 2999-01-01 is in the future: it is 20"),
    (("lag", "LOGS", "--as-of", "9" * 30),                   "is not a time"),
    (("lag", "LOGS", "--as-of", "yesterday"),                "'yesterday' is not a time"),
    (("offsets", "OUT", "--group", "c"),                     "was published only for groups a, b"),
    (("offsets", "OUT", "--as-of", "1970-01-01T00:00:05"),   "published as of 1970-01-01 00:00:04.000 (UTC);"),
]
# fmt: on


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_what_cannot_be_meant_is_a_sentence(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At once: nothing is read, no option is silently left out of account."""
    places = {"LOGS": tmp_path / "logs", "OUT": tmp_path / "out"}
    places["LOGS"].mkdir()
    published.publish(
        places["OUT"], "/a/source", lambda path: None, made_of={"wanted": {"groups": ["a", "b"], "as_of_ms": 4000}}
    )
    arguments = [word.replace("LOGS", str(places["LOGS"])).replace("OUT", str(places["OUT"])) for word in words]
    assert CliRunner().invoke(app, arguments).exit_code == 2
    told = capfd.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.spark
def test_a_table_with_everything_beside_it(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    try:
        find_java()
    except ConfigError as exc:
        pytest.skip(str(exc))
    page, out = tmp_path / "report.html", tmp_path / "out"
    logs = str(recorded("unclean-torn") / "logs")
    done = kohort_pipeline("lag", logs, "--json", "--group", "u-classic", "--report", str(page), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {
            "group": "u-classic",
            "topic": "u-data",
            "partition": partition,
            "offset": offset,
            "leader_epoch": 0,
            "metadata": "",
            "commit_timestamp_ms": 1795253600131,
            "end_offset": end_offset,
            "lag": end_offset - offset,
            "is_beyond_end": False,
        }
        for partition, offset, end_offset in ((0, 1599, 1637), (1, 1598, 1636))
    ]
    assert (
        "Skipped: __consumer_offsets-2/00000000000000000000.log, byte 8838: 193 bytes, incomplete batch" in done.stderr
    )
    # Spark's own noise is not shown: what is left is ours.
    assert all(line.startswith(("Skipped:", "Report:", "Reading")) for line in done.stderr.splitlines() if line.strip())
    assert "<svg" in page.read_text()
    assert [path.name for path in out.iterdir()] == ["lag"]


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_table_that_is_written_is_not_collected(
    spark: Any, recorded: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """The command's memory would hold it whole."""
    logs, out = recorded("tv1") / "logs", tmp_path / "out"
    monkeypatch.setattr(publish, "rows", lambda frame, name: pytest.fail(f"{name} is collected"))
    monkeypatch.setattr(tables, "_print_damage", lambda _: None)
    monkeypatch.setattr(spark_session, "session", lambda *_, **__: nullcontext(spark))
    done = CliRunner().invoke(app, ["offsets", str(logs), "--engine", engine, "--out", str(out)])
    assert done.exit_code == 0, done.output
    written = pq.read_table(out / "offsets").num_rows
    assert written > 0
    assert done.stdout == f"{out}/offsets: {written} rows\n"
    done = CliRunner().invoke(app, ["offsets", str(logs), "--engine", engine, "--out", str(out), "--group", "nobody"])
    assert (done.exit_code, done.stdout) == (2, "")


def test_no_spark_master_is_a_sentence(recorded: Callable[[str], Path]) -> None:
    """Spark retries for a minute, and its error is a traceback."""
    try:
        find_java()
    except ConfigError as exc:
        pytest.skip(str(exc))
    (port,) = free_ports(1)
    done = kohort_pipeline("offsets", str(recorded("tv1") / "logs"), "--master", f"spark://127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no Spark master answers at spark://127.0.0.1:{port}: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_table_is_aligned_and_keeps_control_characters_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"group": "g", "topic": "t", "partition": 0, "offset": 12, "leader_epoch": -1, "commit_timestamp_ms": 0}
    rows = [row | {"metadata": "aio\x00\n"}, row | {"group": "longer", "offset": 5, "metadata": None}]
    print_table(pa.Table.from_pylist(rows), False, "offsets")
    assert capsys.readouterr().out.splitlines() == [
        "GROUP   TOPIC  PARTITION  OFFSET  LEADER EPOCH  COMMITTED (UTC)          METADATA",
        "g       t              0      12            -1  1970-01-01 00:00:00.000  aio\\x00\\n",
        "longer  t              0       5            -1  1970-01-01 00:00:00.000  -",
    ]


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(pa.table({}), False, "lag")
    assert capsys.readouterr().out == "no lag\n"
