"""
`kohort pipeline`: tables out of coordinator logs, with Spark.

Tables (or JSON) go to standard output, progress and notes to standard error. What the operator can mend is a sentence and
exit code 2. Spark and what draws tables are imported when a command runs: `kohort --help` must not wait for them.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.pipeline.jobs.tables import Tables

app = typer.Typer(
    name="pipeline", no_args_is_help=True, help="Tables out of the logs of group coordinators, with Spark."
)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Data directory of Kohort or of Apache Kafka (log.dirs).")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on standard output instead of a table.")]
Group = Annotated[str | None, typer.Option(help="Only this group.")]
Out = Annotated[str | None, typer.Option(metavar="DIR", help="Write the tables as Parquet into folders of this one.")]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report with pictures.")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark master; default local[*].")]

_EXIT_MENDABLE = 2
_DEFAULT_REPORT = Path("kohort-report.html")


@app.command()
def offsets(
    directory: Directory,
    as_json: AsJson = False,
    group: Group = None,
    out: Out = None,
    report_file: Report = None,
    master: Master = None,
) -> None:
    """The offsets that groups have committed."""
    with _tables(directory, group, master) as tables:
        rows = _publish(tables, "offsets", out)
        _report(tables, report_file, directory)
        _complain(tables)
    _show(rows, as_json, "offsets")


@app.command()
def lag(
    directory: Directory,
    as_json: AsJson = False,
    group: Group = None,
    out: Out = None,
    report_file: Report = None,
    master: Master = None,
) -> None:
    """The offsets that groups have committed, and how far behind they are."""
    with _tables(directory, group, master) as tables:
        rows = _publish(tables, "lag", out)
        _report(tables, report_file, directory)
        _complain(tables)
    _show(rows, as_json, "lag")


@app.command()
def rebalances(
    directory: Directory,
    as_json: AsJson = False,
    group: Group = None,
    out: Out = None,
    report_file: Report = None,
    master: Master = None,
) -> None:
    """What happened to the membership of classic groups: who joined, who left, how long it took."""
    with _tables(directory, group, master) as tables:
        rows = _publish(tables, "rebalances", out)
        _report(tables, report_file, directory)
        _complain(tables)
    _show(rows, as_json, "rebalances")


@app.command()
def report(
    directory: Directory,
    as_json: AsJson = False,
    group: Group = None,
    out: Out = None,
    report_file: Report = None,
    master: Master = None,
) -> None:
    """Everything as one HTML file that needs nothing else (default kohort-report.html)."""
    with _tables(directory, group, master) as tables:
        names = ("offsets", "lag", "lag_over_time", "rebalances", "damage")
        shown = {name: _publish(tables, name, out) for name in names if as_json or out is not None}
        _report(tables, report_file or _DEFAULT_REPORT, directory)
        _complain(tables)
    if as_json:
        typer.echo(json.dumps(shown, default=_bytes))


@contextmanager
def _tables(directory: Path, group: str | None, master: str | None) -> Iterator["Tables"]:
    """The tables of a directory, while Spark runs and progress is shown."""
    import os
    import tempfile

    from rich.console import Console

    # Spark's start takes over standard error; ours stays.
    with os.fdopen(os.dup(2), "w") as stderr, tempfile.TemporaryDirectory(prefix="kohort-progress-") as notes:
        console = Console(file=stderr)
        with _mendable(console):
            from kohort.pipeline.jobs.reading import SHORT_BYTES, Reading, coordinator_log_bytes, shuffle_partitions
            from kohort.pipeline.jobs.tables import Tables
            from kohort.pipeline.session import session

            log_bytes = coordinator_log_bytes(directory)
            with ExitStack() as stack:
                with console.status("Starting Spark ..."):
                    spark = stack.enter_context(
                        session(
                            master, shuffle_partitions=shuffle_partitions(log_bytes), is_short=log_bytes < SHORT_BYTES
                        )
                    )
                reading = Reading(spark, directory.absolute(), group=group, progress_directory=Path(notes))
                stack.enter_context(_progress(console, reading))
                yield Tables(reading)


@contextmanager
def _mendable(console: Any) -> Iterator[None]:
    """What the operator can mend is a sentence and exit code 2."""
    try:
        yield
    except ConfigError as exc:
        console.print(f"kohort pipeline: {exc}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_EXIT_MENDABLE) from exc
    except ImportError as exc:
        text = f"kohort pipeline: {exc.name} is missing: pip install 'kohort[pipeline]'"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_EXIT_MENDABLE) from exc


@contextmanager
def _progress(console: Any, reading: Any) -> Iterator[None]:
    """Bytes and rows that the tasks have read, drawn while they read; one line in the end."""
    import threading

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[rows]:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as shown:
        task = shown.add_task("read", rows=0)
        done = threading.Event()

        def look() -> None:
            told = reading.progress()
            shown.update(task, total=max(reading.planned_bytes, 1), completed=told.bytes_read, rows=told.rows)

        def watch() -> None:
            while not done.wait(0.1):
                look()

        watcher = threading.Thread(target=watch, name="pipeline-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            look()


def _publish(tables: "Tables", name: str, out: str | None) -> list[dict[str, Any]]:
    """The rows of a table, written as Parquet on the way where that is wanted."""
    from kohort.pipeline.jobs import publish

    frame = getattr(tables, name)
    if out is not None:
        frame = frame.persist()
        publish.write_parquet(frame, out, name)
    return publish.rows(frame, name)


def _report(tables: "Tables", file: Path | None, directory: Path) -> None:
    if file is None:
        return
    import time

    from kohort.pipeline.jobs.publish import rows
    from kohort.pipeline.jobs.reading import coordinator_log_bytes
    from kohort.pipeline.report.page import ReportData, render

    data = ReportData(
        directory=str(directory),
        made_at_ms=int(time.time() * 1000),
        log_bytes=coordinator_log_bytes(directory),
        lag=rows(tables.lag, "lag"),
        lag_picture=rows(tables.lag_picture, "lag_picture"),
        rebalances=rows(tables.rebalances, "rebalances"),
        damage=rows(tables.damage, "damage"),
    )
    try:
        file.write_text(render(data), encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"the report cannot be written to {file}: {exc.strerror}") from exc
    typer.echo(f"Report: {file}", err=True)


def _complain(tables: "Tables") -> None:
    """Say what could not be read."""
    from kohort.pipeline.jobs.publish import rows

    for row in rows(tables.damage, "damage"):
        where = f"{row['log_topic']}-{row['log_partition']}/{row['segment']}, byte {row['position']}"
        typer.echo(f"Left out: {where}: {row['size_bytes']} bytes, {row['problem']}", err=True)


def _bytes(value: bytes) -> str:
    return value.hex()


def _show(rows: list[dict[str, Any]], as_json: bool, name: str) -> None:
    if as_json:
        typer.echo(json.dumps(rows, default=_bytes))
        return
    typer.echo("\n".join(_aligned(rows, _COLUMNS[name])) if rows else f"no {name}")


def _aligned(rows: list[dict[str, Any]], columns: "list[tuple[str, Align, Cell]]") -> Iterator[str]:
    """Lines of a table. By hand: there may be a hundred thousand of them, and a terminal or `grep` should get them whole."""
    cells = [[title for title, _, _ in columns], *([_printable(cell(row)) for _, _, cell in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.rjust if align == "right" else str.ljust for _, align, _ in columns]
    for line in cells:
        yield "  ".join(pad(text, width) for pad, text, width in zip(pads, line, widths, strict=True)).rstrip()


def _printable(text: str) -> str:
    """Commit metadata may hold anything; a terminal gets no control characters of it."""
    return text if text.isprintable() else "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


Cell = Callable[[dict[str, Any]], str]
Align = Literal["left", "right"]


def _field(name: str) -> Cell:
    return lambda row: "-" if row[name] is None else str(row[name])


def _instant(name: str) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        from kohort.pipeline.report.moments import instant

        return instant(row[name])

    return cell


def _took(row: dict[str, Any]) -> str:
    from kohort.pipeline.report.moments import rebalance_duration

    return rebalance_duration(row)


def _members(name: str) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        members = row[name]
        return "?" if members is None else ", ".join(one["instance_id"] or one["client_id"] for one in members)

    return cell


_OFFSETS: list[tuple[str, Align, Cell]] = [
    ("GROUP", "left", _field("group")),
    ("TOPIC", "left", _field("topic")),
    ("PARTITION", "right", _field("partition")),
    ("OFFSET", "right", _field("offset")),
]
_COMMITTED: list[tuple[str, Align, Cell]] = [
    ("LEADER EPOCH", "right", _field("leader_epoch")),
    ("COMMITTED (UTC)", "left", _instant("commit_timestamp_ms")),
    ("METADATA", "left", _field("metadata")),
]
_COLUMNS: dict[str, list[tuple[str, Align, Cell]]] = {
    "offsets": [*_OFFSETS, *_COMMITTED],
    "lag": [*_OFFSETS, ("END", "right", _field("end_offset")), ("LAG", "right", _field("lag")), *_COMMITTED],
    "rebalances": [
        ("COMPLETED (UTC)", "left", _instant("completed_at_ms")),
        ("GROUP", "left", _field("group")),
        ("EVENT", "left", _field("event")),
        ("GENERATION", "right", _field("generation")),
        ("MEMBERS", "right", lambda row: str(len(row["members"]))),
        ("JOINED", "left", _members("joined")),
        ("LEFT", "left", _members("left")),
        ("TOOK", "right", _took),
    ],
}
