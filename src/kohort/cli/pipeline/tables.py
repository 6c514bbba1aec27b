"""
Execution of `kohort pipeline` commands: read tables from logs, in this process or with Spark, or from published tables.

Tables and JSON are printed on standard output, progress and notes on standard error. Spark and the pipeline are imported when a
command runs, so that `kohort --help` stays fast.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import typer

from kohort.cli.pipeline.checks import check_out, check_report_directory, errors_as_sentences, parse_as_of
from kohort.cli.pipeline.columns import to_json
from kohort.cli.pipeline.missing import tell_missing, unknown_rows
from kohort.cli.pipeline.options import CommandOptions
from kohort.cli.pipeline.progress import print_damage, shown_progress
from kohort.cli.pipeline.run_command import connection_options, started
from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from kohort.model.text import printable_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.security import Security
    from kohort.pipeline.jobs.tables import Tables
    from kohort.pipeline.report.build import RowsOf

_DEFAULT_REPORT = Path("kohort-report.html")
_QUICK_BYTES_MAX = 200_000_000


def show_table(options: CommandOptions, name: str) -> None:
    """
    Print a table. With `--out` it is written instead: it may be larger than the memory of the command. With `--json` too it is
    both written and printed.
    """
    is_written = options.out is not None and not options.as_json
    table = read_tables(options, (name,), is_written=is_written).tables.get(name)
    if table is not None:
        from kohort.cli.pipeline.aligned import print_table

        print_table(table, options.as_json, name)


class Answer(NamedTuple):
    """
    Tables by name, and their instant.

    Attributes:
        lacks_groups: logs of group coordinators are not in the source, and so are not their groups.
    """

    tables: dict[str, "pa.Table"]
    at_ms: int
    lacks_groups: bool = False


def read_tables(
    options: CommandOptions, names: Sequence[str], *, is_written: bool = False, is_silent: bool = False
) -> Answer:
    """
    Read some tables of the same instant, in their order, out of logs or of published tables. --out writes the first one.

    Args:
        is_written: the first table is written, and not returned.
        is_silent: missing logs are not told.
    """
    with errors_as_sentences() as stderr:
        from kohort.pipeline.jobs import published

        if published.is_published(options.source):
            _check_no_checkpoints(options)
            found = {name: _published_table(options, name) for name in names}
            return Answer(found, published.instant_of(options.source))
        check_report_directory(options.report_file)
        check_out(options.out, options.master)
        first, *others = names
        with _open_tables(options, stderr, first) as tables:
            found = {}
            if is_written:
                _write(tables, first, options)
            else:
                found[first] = _write_and_collect(tables, first, options.out, options.file_format)
                if not found[first].num_rows:
                    _check_group(tables, options)
            found |= {name: _write_and_collect(tables, name, None) for name in others}
            if not is_silent:
                tell_missing(tables, found or {first: unknown_rows(tables, first)}, options.source)
            _write_report(tables, options.report_file)
            _print_damage(tables)
            at_ms = tables.reading.at_ms if len(names) > 1 else 0
            lacks_groups = options.group is None and bool(tables.reading.gaps(CONSUMER_OFFSETS))
        return Answer({name: _matching(table, options) for name, table in found.items()}, at_ms, lacks_groups)


def _matching(table: "pa.Table", options: CommandOptions) -> "pa.Table":
    """Return the rows of a table that the options choose."""
    import pyarrow.compute as pc

    for column, value in options.where.items():
        if column in table.column_names:
            table = table.filter(pc.equal(table[column], value))
    return table


def _check_group(tables: "Tables", options: CommandOptions) -> None:
    """Check that the requested group exists, if its table is empty."""
    if options.group is not None and not tables.reading.has_group(options.group):
        raise _no_group(options)


def _no_group(options: CommandOptions) -> ConfigError:
    when = "" if options.as_of is None else f" up to {options.as_of}"
    return ConfigError(f"{options.source} has no group {options.group!r}{when}")


def _published_table(options: CommandOptions, name: str) -> "pa.Table":
    from kohort.pipeline.jobs import published

    if options.rules is not None:
        raise ConfigError(
            f"{options.source} contains published tables, with Burrow's default rules; other rules need a data directory"
        )
    if options.out is not None or options.report_file is not None:
        raise ConfigError(f"{options.source} contains published tables; --out and --report need a data directory")
    at_ms = parse_as_of(options.as_of)
    _check_published_scope(options, at_ms)
    if at_ms is not None and name != "offsets":
        raise ConfigError(f"published tables support --as-of for offsets only; {name} --as-of needs a data directory")
    if at_ms is None:
        table = published.table(options.source, name, where=options.where)
    else:
        table = published.offsets_as_of(options.source, at_ms, where=options.where)
    if not table.num_rows and options.group is not None and not published.has_group(options.source, options.group):
        raise _no_group(options)
    return table


def _check_no_checkpoints(options: CommandOptions) -> None:
    if options.checkpoints:
        raise ConfigError(
            f"{options.source} contains published tables; give --checkpoint to `run`, which publishes the queries, too"
        )


def _check_published_scope(options: CommandOptions, at_ms: int | None) -> None:
    """Check that the published tables cover the requested group and instant."""
    from kohort.pipeline.jobs import published
    from kohort.pipeline.report.formatting import instant

    request = published.request_of(options.source)
    groups, until_ms = request.get("groups"), request.get("as_of_ms")
    if groups is not None and options.group is not None and options.group not in groups:
        raise ConfigError(f"{options.source} was published only for groups {', '.join(groups)}")
    if until_ms is not None and at_ms is not None and at_ms > until_ms:
        raise ConfigError(
            f"{options.source} was published as of {instant(until_ms)} (UTC); later instants need the logs"
        )


@contextmanager
def _open_tables(options: CommandOptions, stderr: TextIO, name: str = "offsets") -> Iterator["Tables"]:
    """Start an engine, show progress, and provide the tables of a source."""
    import tempfile

    from kohort.pipeline.checkpoints.checkpoint import Extent
    from kohort.pipeline.decode.storage import is_remote
    from kohort.pipeline.engines.choice import choose
    from kohort.pipeline.jobs.reading import EXTENTS, LATEST_ONLY, Reading
    from kohort.pipeline.sources.live import is_live
    from kohort.pipeline.sources.options import connecting
    from kohort.pipeline.tables.burrow.evaluator import BURROWS

    as_of_ms = parse_as_of(options.as_of)
    source = options.source if is_remote(options.source) else str(Path(options.source).absolute())
    is_connected = is_live(options.source) or options.ends is not None
    connection = connection_options(options.config) if is_connected else {}
    security = connecting(connection)
    topic = TRANSACTION_STATE if "transaction" in name else CONSUMER_OFFSETS
    log_bytes = _log_bytes(options.source, topic, security, is_needed=not options.named)
    # A report contains history.
    needs = "report" if options.report_file is not None else name
    chosen = choose(
        options.engine, source, needs, is_past=as_of_ms is not None, master=options.master, security=security
    )
    if options.is_verbose:
        typer.echo(f"Engine: {'local' if chosen.is_local else 'spark'} ({chosen.reason})", err=True)
    with ExitStack() as stack:
        from kohort.pipeline.jobs.tables import Tables

        notes = None
        # With small logs the local engine ends before progress is worth a thread.
        if not chosen.is_local or log_bytes > _QUICK_BYTES_MAX:
            notes = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-progress-")))
        reading = Reading(
            _session(stack, options, stderr, log_bytes, is_local=chosen.is_local),
            source,
            group=options.group,
            as_of_ms=as_of_ms,
            progress_directory=notes,
            is_latest_only=needs in LATEST_ONLY and _has_names(needs, source),
            connection=connection,
            ends=options.ends,
            checkpoints=options.named,
            # Rules of Burrow that a user sets may need more batches.
            extent=EXTENTS.get(needs, Extent.ALL) if options.rules in (None, BURROWS) else Extent.ALL,
        )
        if notes is not None:
            stack.enter_context(shown_progress(stderr, reading))
        yield Tables(reading, rules=options.rules)


def _has_names(table: str, source: str) -> bool:
    """Tell whether the newest commits are enough. A copy of the coordinators' logs names topics in all commits only."""
    from kohort.pipeline.decode.storage import is_remote
    from kohort.pipeline.sources.postgres.address import is_database
    from kohort.pipeline.sources.topic_ids import topic_ids

    if table != "lag" or (is_remote(source) and not is_database(source)):
        return True
    return not INTERNAL_TOPICS.issuperset(topic_ids(source).values())


def _log_bytes(source: str, topic: str, security: "Security", *, is_needed: bool) -> int:
    """Return the size of a coordinator's log. Where Spark queries are the only groups, there may be none."""
    from kohort.pipeline.jobs.reading import coordinator_log_bytes

    try:
        return coordinator_log_bytes(source, topic, security=security)
    except ConfigError:
        if is_needed or not _is_there(source, security):
            raise
        return 0


def _is_there(source: str, security: "Security") -> bool:
    """Tell whether a source can be read, whatever it has."""
    from kohort.pipeline.sources.topic_ids import topic_ids

    try:
        topic_ids(source, security)
    except ConfigError:
        return False
    return True


def _session(stack: ExitStack, options: CommandOptions, stderr: TextIO, log_bytes: int, *, is_local: bool) -> Any:
    """Start a session of the chosen engine."""
    if is_local:
        from kohort.pipeline.engines.local.session import LocalSession, spare_pandas

        spare_pandas()
        return stack.enter_context(LocalSession())
    return started(stack, options.master, stderr, log_bytes)


def _write_and_collect(tables: "Tables", name: str, out: str | None, file_format: str | None = None) -> "pa.Table":
    """Collect a table in its order, and write it if `out` is given."""
    from kohort.pipeline.jobs import publish

    frame = getattr(tables, name)
    if out is not None:
        frame = frame.persist()
        publish.write_table(frame, out, name, file_format=file_format or publish.PARQUET)
    return publish.sorted_table(frame.toArrow(), name)


def _write(tables: "Tables", name: str, options: CommandOptions) -> None:
    """Write a table as Parquet, and print the number of its rows."""
    from kohort.pipeline.jobs import publish

    frame, out, file_format = getattr(tables, name), str(options.out), options.file_format or publish.PARQUET
    target = publish.write_table(frame, out, name, file_format=file_format)
    is_table = out.startswith(publish.CATALOG)
    count = publish.count(frame.sparkSession, target, file_format=file_format, is_table=is_table)
    if not count:
        _check_group(tables, options)
    typer.echo(f"{target}: {count:,} rows")


def write_full_report(options: CommandOptions, stderr: TextIO) -> None:
    """Write the HTML report of a source, and print its tables if --json is given."""
    check_out(options.out, options.master)
    with _open_tables(options, stderr, "report") as tables:
        _check_group(tables, options)
        names = ["offsets", "lag", "lag_over_time", "rebalances", "damage"]
        if tables.reading.groups is None:
            # Transactions do not belong to a group.
            names.append("transactions")
        if options.out is not None and not options.as_json:
            for name in names:
                _write(tables, name, options)
        shown = {
            name: _write_and_collect(tables, name, options.out, options.file_format).to_pylist()
            for name in names
            if options.as_json
        }
        _write_report(tables, options.report_file or _DEFAULT_REPORT)
        tell_missing(tables, _with_ends(tables), options.source)
        _print_damage(tables)
    if options.as_json:
        typer.echo(to_json(shown))


def _with_ends(tables: "Tables") -> "dict[str, pa.Table]":
    """Return the tables that know which logs are missing."""
    return {name: getattr(tables, name).toArrow() for name in ("time_lag", "share_state")}


def _write_report(tables: "Tables", file: Path | None) -> None:
    if file is None:
        return
    from kohort.pipeline.jobs.publish import rows

    reading = tables.reading
    _write_page(
        file,
        lambda name: rows(getattr(tables, name), name),
        directory=reading.directory,
        at_ms=reading.at_ms,
        log_bytes=_log_bytes(reading.directory, CONSUMER_OFFSETS, reading.security, is_needed=not reading.checkpoints),
        is_whole=reading.groups is None,
    )


def write_published_report(options: CommandOptions) -> None:
    """
    Write the HTML report of published tables, without reading logs.

    Raises:
        ConfigError: an option needs logs, or a table was not published.
    """
    from kohort.pipeline.jobs import published
    from kohort.pipeline.report.build import thinned

    if options.out is not None or options.as_of is not None:
        raise ConfigError(f"{options.source} contains published tables; --out and --as-of need a data directory")
    _check_published_scope(options, None)
    if options.group is not None and not published.has_group(options.source, options.group):
        raise _no_group(options)

    def rows_of(name: str) -> list[dict[str, Any]]:
        if name == "lag_picture":
            return thinned(published.table(options.source, "lag_over_time", where=options.where))
        return published.rows(options.source, name, where=options.where)

    _write_page(
        options.report_file or _DEFAULT_REPORT,
        rows_of,
        directory=options.source,
        at_ms=published.instant_of(options.source),
        log_bytes=0,
        is_whole=options.group is None,
    )


def _write_page(file: Path, rows_of: "RowsOf", **facts: Any) -> None:
    """Write a report; `facts` as for `report_data`."""
    import time

    from kohort.pipeline.report.build import report_data
    from kohort.pipeline.report.page import render

    data = report_data(rows_of, made_at_ms=int(time.time() * 1000), **facts)
    try:
        file.write_text(render(data), encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"the report cannot be written to {file}: {exc.strerror}") from exc
    typer.echo(f"Report: {file}", err=True)


def _print_damage(tables: "Tables") -> None:
    """Print what could not be read."""
    from kohort.pipeline.jobs.publish import rows

    for row in rows(tables.reading.damage_met(), "damage"):
        print_damage(row)
    for problem in tables.reading.queries.problems:
        typer.echo(printable_lines(f"kohort pipeline: {problem}"), err=True)
