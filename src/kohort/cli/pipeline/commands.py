"""
`kohort pipeline`: tables out of coordinator logs, with Spark; out of what `run` has published, without.

Tables (or JSON) go to standard output, progress and notes to standard error. What the operator can mend is a sentence and
exit code 2. Spark and what draws tables are imported when a command runs: `kohort --help` must not wait for them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli.pipeline.columns import show, to_json
from kohort.cli.pipeline.options import CommandOptions, LogSource, on_source
from kohort.cli.pipeline.progress import shown_progress
from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.pipeline.jobs.tables import Tables
    from kohort.pipeline.tables.burrow import Rules

app = typer.Typer(
    name="pipeline", no_args_is_help=True, help="Tables out of the logs of group coordinators, with Spark."
)

_EXIT_MENDABLE = 2
_LATEST = ("offsets", "lag")
_DEFAULT_REPORT = Path("kohort-report.html")
EVERY_S = 10.0
"""How often `run --stream` publishes at most."""


@app.command()
@on_source()
def offsets(options: CommandOptions) -> None:
    """The offsets that groups have committed."""
    _table(options, "offsets")


@app.command()
@on_source()
def lag(
    options: CommandOptions,
    *,
    time: Annotated[
        bool,
        typer.Option("--time", help="How long the oldest unread record has waited, too (reads all of the topics)."),
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="The lag of each group after every event (reads all of the topics).")
    ] = False,
) -> None:
    """The offsets that groups have committed, and how far behind they are."""
    _one_of({"--time": time, "--history": history})
    _table(options, "lag_over_time" if history else "time_lag" if time else "lag")


@app.command()
@on_source()
def status(
    options: CommandOptions,
    *,
    history: Annotated[
        bool, typer.Option("--history", help="Every status that it would have been, and from when to when.")
    ] = False,
    intervals: Annotated[int | None, typer.Option(min=1, max=10_000, help="Commits in the window; default 10.")] = None,
    allowed_lag: Annotated[int | None, typer.Option(min=0, help="A lag that is none; default 0.")] = None,
    min_distance: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=0, help="Commits closer to each other count as one; default 0.")
    ] = None,
) -> None:
    """What Burrow would say of each partition: OK, WARN, STOP, STALL or REWIND."""
    with _console():
        rules = _rules(intervals, allowed_lag, min_distance)
    _table(replace(options, rules=rules), "status_history" if history else "status")


@app.command()
@on_source()
def rebalances(
    options: CommandOptions,
    *,
    cost: Annotated[bool, typer.Option("--cost", help="The lag that it cost, too (reads all of the topics).")] = False,
) -> None:
    """What happened to the membership of groups: why, who joined, who left, how long it took, what it moved."""
    _table(options, "rebalance_costs" if cost else "rebalances")


@app.command()
@on_source(without=("report_file",))
def partitions(
    options: CommandOptions,
    *,
    unowned: Annotated[bool, typer.Option("--unowned", help="When nobody owned a partition, and how long.")] = False,
    owners: Annotated[bool, typer.Option("--owners", help="Who owned which partition, from when to when.")] = False,
) -> None:
    """How often partitions changed their owner within a group."""
    _one_of({"--unowned": unowned, "--owners": owners})
    _table(options, "time_without_owner" if unowned else "assignments" if owners else "partition_flapping")


@app.command()
@on_source(without=("report_file",))
def commits(options: CommandOptions) -> None:
    """How often groups commit, and whether that moves them."""
    _table(options, "commit_frequency")


@app.command()
@on_source(without=("report_file",))
def share(options: CommandOptions) -> None:
    """Where share groups stand, and how far behind they are."""
    _table(options, "share_state")


@app.command()
@on_source()
def members(options: CommandOptions) -> None:
    """Who was in which group, from when to when: classic, consumer, share and streams groups."""
    _table(options, "members")


@app.command()
@on_source(without=("group", "report_file"))
def transactions(
    options: CommandOptions,
    *,
    transactional_id: Annotated[str | None, typer.Option(help="Only this transactional id.")] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Those that are not complete, and the partitions that they hold back.")
    ] = False,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging", help="Those that no coordinator will end, of KIP-664 (reads the logs of all topics)."
        ),
    ] = False,
    blocking: Annotated[
        bool, typer.Option("--blocking", help="All that are open in the logs of topics, hanging, long or ongoing.")
    ] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="Durations and abort rate of each id.")] = False,
) -> None:
    """What became of every transaction: how long it took, how it ended, which partitions it wrote to."""
    _one_of({"--open": is_open, "--hanging": hanging, "--blocking": blocking, "--statistics": statistics})
    choices = {"blocking_transactions": hanging or blocking, "open_transactions": is_open}
    choices |= {"transaction_statistics": statistics}
    name = next((name for name, is_chosen in choices.items() if is_chosen), "transactions")
    rows = _rows(replace(options, transactional_id=transactional_id), name)
    show([row for row in rows if not hanging or row["verdict"] == "hanging"], options.as_json, name)


@app.command()
@on_source(without=("out", "report_file"))
def export_offsets(options: CommandOptions) -> None:
    """Offsets as CSV for `kafka-consumer-groups --reset-offsets --from-file` and for `kohort groups import`.

    Lines are group,topic,partition,offset; with --group they are topic,partition,offset, as Kafka's tool wants them. With
    --json there are metadata and leader epochs, too, which `kohort groups import` restores.
    """
    from kohort.cli.groups.offset_files import csv_text

    rows = _rows(options, "offsets")
    if not rows:
        whose = "" if options.group is None else f" of group {options.group!r}"
        _refuse(f"{options.source} has no offsets{whose} to export")
    typer.echo(
        to_json(rows) if options.as_json else csv_text(rows, with_group=options.group is None), nl=options.as_json
    )


@app.command()
@on_source(source=LogSource, without=("as_json", "group", "out", "report_file"))
def run(
    options: CommandOptions,
    *,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where the tables are published: a directory here.")],
    store: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Publish them there, too: s3://bucket/kohort, gs://, abfs:// or file://."),
    ] = None,
    groups: Annotated[str | None, typer.Option(metavar="NAMES", help="Only these groups, with commas between.")] = None,
    is_stream: Annotated[bool, typer.Option("--stream", help="Go on until told to stop (Ctrl-C).")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="With --stream: no sooner again than this; default 10."),
    ] = None,
    is_anew: Annotated[bool, typer.Option("--anew", help="Forget what was read before.")] = False,
    history: Annotated[
        bool,
        typer.Option("--history", help="What Burrow would have said of the past, too (of many commits it takes long)."),
    ] = False,
) -> None:
    """Publish tables: only what is new is read, and nothing is written when there is none."""
    from kohort.cli.pipeline.run_command import RunOptions as AskedRun
    from kohort.cli.pipeline.run_command import local_out
    from kohort.cli.pipeline.run_command import run as publish_runs

    chosen = None if groups is None else frozenset(name.strip() for name in groups.split(",") if name.strip())
    with _console() as console:
        _check_run(options, chosen, every_s=every, is_stream=is_stream)
        as_of_ms = _milliseconds(options.as_of)
        wanted = AskedRun(
            options.source, local_out(out), chosen, as_of_ms, is_anew, options.config, options.master, history, store
        )
        publish_runs(wanted, console, every_s=(EVERY_S if every is None else every) if is_stream else None)


@app.command()
@on_source(source=LogSource)
def report(options: CommandOptions) -> None:
    """Everything as one HTML file that needs nothing else (default kohort-report.html)."""
    with _console() as console:
        _check_logs(options)
        _check_place(options.report_file)
        _report_all(options, console)


def _report_all(options: CommandOptions, console: Any) -> None:
    with _tables(options, console, "report") as tables:
        names = ("offsets", "lag", "lag_over_time", "rebalances", "damage")
        is_shown = options.as_json or options.out is not None
        shown = {name: _publish(tables, name, options.out) for name in names if is_shown}
        _report(tables, options.report_file or _DEFAULT_REPORT)
        _complain(tables)
    if options.as_json:
        typer.echo(to_json(shown))


def _refuse(sentence: str) -> None:
    """A sentence and exit code 2."""
    with _console():
        raise ConfigError(sentence)


def _one_of(given: dict[str, bool]) -> None:
    """Options that ask for another table each."""
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        _refuse(f"{' and '.join(chosen)} are different tables: ask for one at a time")


def _check_run(
    options: CommandOptions, groups: frozenset[str] | None, *, every_s: float | None, is_stream: bool
) -> None:
    if groups is not None and not groups:
        raise ConfigError("--groups names no group; leave it out for all of them")
    if every_s is not None and not is_stream:
        raise ConfigError("--every is for --stream")
    if is_stream and options.as_of is not None:
        raise ConfigError("--as-of stands still and --stream goes on: choose one")
    _check_logs(options)


def _check_logs(options: CommandOptions) -> None:
    from kohort.pipeline.jobs import published

    if published.is_published(options.source):
        raise ConfigError(
            f"{options.source} holds published tables; this needs logs: a data directory or kafka://HOST:PORT"
        )


def _check_place(report_file: Path | None) -> None:
    """Before all is read, not after."""
    if report_file is not None and not report_file.absolute().parent.is_dir():
        raise ConfigError(f"the report cannot be written to {report_file}: there is no such directory")


def _table(options: CommandOptions, name: str) -> None:
    """Read, write and report what was asked for, and print the rows."""
    show(_rows(options, name), options.as_json, name)


def _rows(options: CommandOptions, name: str) -> list[dict[str, Any]]:
    """The rows of a table, out of published tables or of a log."""
    with _console() as console:
        from kohort.pipeline.jobs import published

        if published.is_published(options.source):
            return _published_rows(options, name)
        _check_place(options.report_file)
        with _tables(options, console, name) as tables:
            rows = _publish(tables, name, options.out)
            _report(tables, options.report_file)
            _complain(tables)
    return [row for row in rows if all(row.get(column, value) == value for column, value in options.where.items())]


def _published_rows(options: CommandOptions, name: str) -> list[dict[str, Any]]:
    from kohort.pipeline.jobs import published

    if options.rules is not None:
        raise ConfigError(
            f"{options.source} is published already, by Burrow's defaults; other ones need a data directory"
        )
    if options.out is not None or options.report_file is not None:
        raise ConfigError(f"{options.source} is published already; --out and --report need a data directory")
    at_ms = _milliseconds(options.as_of)
    _check_told(options, at_ms)
    if at_ms is None:
        return published.rows(options.source, name, where=options.where)
    if name != "offsets":
        raise ConfigError(
            f"of published tables only offsets are told for the past; {name} --as-of needs a data directory"
        )
    return published.offsets_as_of(options.source, at_ms, where=options.where)


def _check_told(options: CommandOptions, at_ms: int | None) -> None:
    """Tables that were made for some groups, or as of an instant, say nothing of others."""
    from kohort.pipeline.jobs import published
    from kohort.pipeline.report.formatting import instant

    wish = published.wish(options.source)
    groups, until_ms = wish.get("groups"), wish.get("as_of_ms")
    if groups is not None and options.group is not None and options.group not in groups:
        raise ConfigError(f"{options.source} was published for groups {', '.join(groups)} alone")
    if until_ms is not None and at_ms is not None and at_ms > until_ms:
        raise ConfigError(f"{options.source} was published as of {instant(until_ms)} (UTC), and tells nothing later")


def _rules(intervals: int | None, allowed_lag: int | None, min_distance_s: int | None) -> "Rules | None":
    """Burrow's settings where any is given."""
    from kohort.pipeline.tables.burrow import Rules

    told = {"intervals": intervals, "allowed_lag": allowed_lag}
    told["distance_min_ms"] = None if min_distance_s is None else min_distance_s * 1000
    given = {name: value for name, value in told.items() if value is not None}
    return Rules(**given) if given else None


def _milliseconds(as_of: str | None) -> int | None:
    """
    An instant in milliseconds; a time without a zone is UTC.

    Raises:
        ConfigError: it is neither, or has not come yet.
    """
    from datetime import UTC, datetime

    if as_of is None:
        return None
    try:
        moment = None if as_of.isdecimal() else datetime.fromisoformat(as_of)
    except ValueError as exc:
        raise ConfigError(f"--as-of {as_of!r} is no time; say 2026-11-21T09:30:00, or milliseconds since 1970") from exc
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = int(as_of) if moment is None else round(moment.timestamp() * 1000)
    now = datetime.now(UTC)
    if at_ms > now.timestamp() * 1000:
        raise ConfigError(f"--as-of {as_of} has not come yet: it is {now:%Y-%m-%dT%H:%M:%S} (UTC)")
    return at_ms


@contextmanager
def _console() -> Iterator[Any]:
    """Standard error as it is now (Spark's start takes it over), and sentences for what the operator can mend."""
    import os

    from rich.console import Console

    with os.fdopen(os.dup(2), "w") as stderr:
        console = Console(file=stderr)
        with _mendable(console):
            yield console


@contextmanager
def _tables(options: CommandOptions, console: Any, name: str = "offsets") -> Iterator["Tables"]:
    """The tables of a directory, while Spark runs and progress is shown."""
    import tempfile

    from kohort.cli.pipeline.run_command import connection_options
    from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
    from kohort.pipeline.jobs.reading import SHORT_BYTES, Reading, coordinator_log_bytes, shuffle_partitions
    from kohort.pipeline.sources.live import is_live
    from kohort.pipeline.sources.options import connecting

    as_of_ms = _milliseconds(options.as_of)
    source = options.source if is_live(options.source) else str(Path(options.source).absolute())
    connection = connection_options(options.config) if is_live(options.source) else {}
    topic = TRANSACTION_STATE if "transaction" in name else CONSUMER_OFFSETS
    log_bytes = coordinator_log_bytes(options.source, topic, security=connecting(connection))
    with ExitStack() as stack:
        from kohort.pipeline.jobs.tables import Tables
        from kohort.pipeline.session import session

        notes = stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-progress-"))
        parts, is_short = shuffle_partitions(log_bytes), log_bytes < SHORT_BYTES
        with console.status("Starting Spark ..."):
            spark = stack.enter_context(session(options.master, shuffle_partitions=parts, is_short=is_short))
        # A report tells of history, too.
        is_latest_only = name in _LATEST and options.report_file is None
        reading = Reading(
            spark,
            source,
            group=options.group,
            as_of_ms=as_of_ms,
            progress_directory=Path(notes),
            is_latest_only=is_latest_only,
            connection=connection,
        )
        stack.enter_context(shown_progress(console, reading))
        yield Tables(reading, rules=options.rules)


@contextmanager
def _mendable(console: Any) -> Iterator[None]:
    """What the operator can mend is a sentence and exit code 2."""
    try:
        yield
    except ImportError as exc:
        text = f"kohort pipeline: {exc.name} is missing: pip install 'kohort[pipeline]'"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_EXIT_MENDABLE) from exc
    except Exception as exc:
        # Spark's exceptions and the system's are as many as what may go wrong there; what is ours goes on its way.
        from kohort.pipeline.failures import sentence

        told = sentence(exc)
        if told is None:
            raise
        console.print(f"kohort pipeline: {told}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_EXIT_MENDABLE) from exc


def _publish(tables: "Tables", name: str, out: str | None) -> list[dict[str, Any]]:
    """The rows of a table, written as Parquet on the way where that is wanted."""
    from kohort.pipeline.jobs import publish

    frame = getattr(tables, name)
    if out is not None:
        frame = frame.persist()
        publish.write_parquet(frame, out, name)
    return publish.rows(frame, name)


def _report(tables: "Tables", file: Path | None) -> None:
    if file is None:
        return
    import time

    from kohort.pipeline.jobs.publish import rows
    from kohort.pipeline.jobs.reading import coordinator_log_bytes
    from kohort.pipeline.report.page import ReportData, render

    # Transactions belong to no group.
    reading = tables.reading
    is_whole = reading.groups is None
    data = ReportData(
        directory=reading.directory,
        made_at_ms=int(time.time() * 1000),
        log_bytes=coordinator_log_bytes(reading.directory, security=reading.security),
        lag=rows(tables.lag, "lag"),
        lag_picture=rows(tables.lag_picture, "lag_picture"),
        rebalances=rows(tables.rebalance_costs, "rebalance_costs"),
        at_ms=tables.reading.at_ms,
        status=rows(tables.status, "status"),
        members=rows(tables.members, "members"),
        assignments=rows(tables.assignments, "assignments"),
        partition_flapping=rows(tables.partition_flapping, "partition_flapping"),
        time_without_owner=rows(tables.time_without_owner, "time_without_owner"),
        blocking_transactions=rows(tables.blocking_transactions, "blocking_transactions") if is_whole else (),
        open_transactions=rows(tables.open_transactions, "open_transactions") if is_whole else (),
        transaction_statistics=rows(tables.transaction_statistics, "transaction_statistics") if is_whole else (),
        share_state=rows(tables.share_state, "share_state"),
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
