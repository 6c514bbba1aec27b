"""
The commands of `kohort pipeline`. `tables` reads and prints, `run_command` publishes.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.options import SECONDS_MAX
from kohort.cli.pipeline.checks import (
    burrow_rules,
    check_ends,
    check_fail_on,
    check_report_directory,
    errors_as_sentences,
    fail,
)
from kohort.cli.pipeline.columns import show_schema, to_json
from kohort.cli.pipeline.export_command import serve_metrics
from kohort.cli.pipeline.options import CommandOptions, Groups, LogSource, on_source
from kohort.cli.pipeline.run_command import INTERVAL_S, follow_source, run_pipeline
from kohort.cli.pipeline.tables import read_tables, show_table, write_full_report, write_published_report
from kohort.cli.pipeline.verdicts import show_verdicts
from kohort.model.numbers import INT64_MAX

app = typer.Typer(
    name="pipeline",
    no_args_is_help=True,
    help="Explain groups from coordinator logs: small ones in this process, large ones with Spark.",
    epilog="Needs pip install 'kohort[tables]', and Spark 'kohort[pipeline]' and Java 17 or newer.",
)


@app.command()
@on_source()
def offsets(options: CommandOptions) -> None:
    """Committed offsets of groups."""
    show_table(options, "offsets")


@app.command()
@on_source()
def lag(
    options: CommandOptions,
    *,
    time: Annotated[
        bool,
        typer.Option("--time", help="Add the time that the oldest unread record waits."),
    ] = False,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="Lag of each group after every event; with --time its time lag at 300 instants (reads whole topics).",
        ),
    ] = False,
    ends: Annotated[
        str | None,
        typer.Option(
            metavar="kafka://HOST:PORT", help="Take the ends of logs from this cluster: SOURCE is a copy without them."
        ),
    ] = None,
) -> None:
    """
    Committed offsets and lag of groups.

    A partition that a member owns and its group has not committed has no offset and no lag.
    """
    with errors_as_sentences():
        check_ends(ends, options, is_history=history)
    options = replace(options, ends=ends)
    if history:
        show_table(options, "time_lag_over_time" if time else "lag_over_time")
    else:
        show_table(options, "time_lag" if time else "lag")


@app.command()
@on_source()
def status(
    options: CommandOptions,
    *,
    history: Annotated[bool, typer.Option("--history", help="Every past status with its begin and end.")] = False,
    intervals: Annotated[int | None, typer.Option(min=1, max=10_000, help="Commits in the window; default 10.")] = None,
    allowed_lag: Annotated[
        int | None, typer.Option(min=0, max=INT64_MAX, help="Lag up to which a partition is OK; default 0.")
    ] = None,
    min_distance: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS", min=0, max=SECONDS_MAX, help="Commits closer together count as one; default 0."
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICT",
            help="Print partitions with this verdict or a worse one, or UNKNOWN, only; exit code 1 if there are any.",
        ),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="With --fail-on: partitions that cannot be judged do not count.")
    ] = False,
) -> None:
    """
    Verdict on each partition, the worst first, beside its status by Burrow's rules.

    Verdicts, the mildest first: OK, WARN, UNKNOWN (the log is not there), STOP, STALL, REWIND, LOST. With --fail-on the exit
    code is 0 if no partition has that verdict or a worse one, or UNKNOWN, 1 if one has, 2 if the source cannot be read.
    """
    with errors_as_sentences():
        check_fail_on(fail_on, is_history=history, allows_unknown=allow_unknown)
        rules = burrow_rules(intervals, allowed_lag, min_distance)
    options = replace(options, rules=rules)
    if history:
        show_table(options, "status_history")
    else:
        show_verdicts(options, fail_on, allows_unknown=allow_unknown)


@app.command()
@on_source()
def rebalances(
    options: CommandOptions,
    *,
    cost: Annotated[
        bool, typer.Option("--cost", help="Add the lag that each rebalance caused (reads whole topics).")
    ] = False,
) -> None:
    """
    Rebalances of groups and their reasons.

    Shows members that joined and left, duration, and moved partitions.
    """
    show_table(options, "rebalance_costs" if cost else "rebalances")


@app.command()
@on_source(without=("report_file",))
def partitions(
    options: CommandOptions,
    *,
    unowned: Annotated[bool, typer.Option("--unowned", help="Times in which a partition had no owner.")] = False,
    owners: Annotated[bool, typer.Option("--owners", help="Owners of each partition, with begin and end.")] = False,
) -> None:
    """Owner changes of partitions in groups."""
    _one_of({"--unowned": unowned, "--owners": owners})
    show_table(options, "time_without_owner" if unowned else "assignments" if owners else "partition_flapping")


@app.command()
@on_source(without=("report_file",))
def commits(options: CommandOptions) -> None:
    """Commit frequency of groups."""
    show_table(options, "commit_frequency")


@app.command()
@on_source(without=("report_file",))
def share(options: CommandOptions) -> None:
    """State and lag of share groups."""
    show_table(options, "share_state")


@app.command()
@on_source()
def members(options: CommandOptions) -> None:
    """Members of groups, with begin and end."""
    show_table(options, "members")


@app.command()
@on_source(without=("as_of", "report_file"))
def queries(options: CommandOptions) -> None:
    """
    Spark queries, by --checkpoint: state, batch in progress, retention.

    A query that stopped is told apart from one that waits for data. With --json also settings and other sources.
    """
    show_table(options, "spark_queries")


@app.command()
@on_source(without=("group", "report_file"))
def transactions(
    options: CommandOptions,
    *,
    transactional_id: Annotated[str | None, typer.Option(help="Only this transactional id.")] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Incomplete transactions, and the partitions that they block.")
    ] = False,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging", help="Hanging transactions (KIP-664): no coordinator will end them (reads whole topics)."
        ),
    ] = False,
    blocking: Annotated[
        bool, typer.Option("--blocking", help="All open transactions in topics: hanging, long or ongoing.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Durations and abort rate by transactional id.")
    ] = False,
) -> None:
    """Transactions: duration, outcome, partitions."""
    _one_of({"--open": is_open, "--hanging": hanging, "--blocking": blocking, "--statistics": statistics})
    choices = {"blocking_transactions": hanging or blocking, "open_transactions": is_open}
    choices |= {"transaction_statistics": statistics}
    name = next((name for name, is_chosen in choices.items() if is_chosen), "transactions")
    verdict = "hanging" if hanging else None
    show_table(replace(options, transactional_id=transactional_id, verdict=verdict), name)


@app.command()
@on_source(without=("out", "report_file"))
def export_offsets(options: CommandOptions) -> None:
    """
    Print offsets as CSV, to restore them.

    `kohort groups import` and `kafka-consumer-groups --reset-offsets --from-file` read the output. Lines are
    group,topic,partition,offset; with --group they are topic,partition,offset, as in Kafka's tool. --json adds metadata and
    leader epochs, which `kohort groups import` restores.
    """
    from kohort.cli.groups.offset_files import csv_text

    rows = read_tables(options, ("offsets",)).tables["offsets"].to_pylist()
    if not rows:
        scope = "" if options.group is None else f" of group {options.group!r}"
        fail(f"{options.source} has no offsets{scope} to export")
    typer.echo(
        to_json(rows) if options.as_json else csv_text(rows, with_group=options.group is None), nl=options.as_json
    )


@app.command()
@on_source(source=LogSource, without=("as_json", "group", "out", "report_file", "engine", "is_verbose"))
def run(
    options: CommandOptions,
    *,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Local directory for the tables.")],
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Where to publish to as well: an object store (s3://bucket/kohort, gs://, abfs://, file://), or"
            " table:SCHEMA of Spark's catalog.",
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="With --store: what Spark has, delta or iceberg; default Parquet."
        ),
    ] = None,
    groups: Groups = None,
    is_stream: Annotated[bool, typer.Option("--stream", help="Continue until SIGTERM or Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="With --stream: shortest time between two versions; default 10.",
        ),
    ] = None,
    is_anew: Annotated[bool, typer.Option("--anew", help="Discard earlier results and read everything.")] = False,
    history: Annotated[
        bool,
        typer.Option("--history", help="Add the history of Burrow's status (slow with many commits)."),
    ] = False,
) -> None:
    """
    Publish tables incrementally.

    Reads only new records, and writes nothing if there are none.
    """
    with errors_as_sentences() as stderr:
        run_pipeline(
            options,
            stderr,
            out,
            groups,
            store_uri=store,
            file_format=file_format,
            is_anew=is_anew,
            has_history=history,
            is_stream=is_stream,
            every_s=every,
        )


@app.command()
@on_source(source=LogSource, without=("as_json", "as_of", "group", "out", "report_file"))
def follow(
    options: CommandOptions,
    *,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Local directory for the tables, as for `run`.")],
    groups: Groups = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=SECONDS_MAX, help="Shortest time between two versions.")
    ] = INTERVAL_S,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=SECONDS_MAX, help="How long the source may be unreachable.")
    ] = 600.0,
    max_records: Annotated[
        int, typer.Option(min=1, max=INT64_MAX, help="Records of a micro-batch, which a backlog is cut into.")
    ] = 5_000_000,
) -> None:
    """
    Keep tables up to date with Structured Streaming, until SIGTERM or Ctrl-C.

    Every record counts once, also if the driver or a worker is killed. Brokers may restart, and topics may be created again.
    """
    with errors_as_sentences() as stderr:
        follow_source(options, stderr, out, groups, every_s=every, patience_s=patience, records_max=max_records)


@app.command()
@on_source()
def report(options: CommandOptions) -> None:
    """
    Write an HTML report of all tables.

    The file is self-contained; its default name is kohort-report.html. The report of published tables reads no logs.
    """
    with errors_as_sentences() as stderr:
        from kohort.pipeline.jobs import published

        check_report_directory(options.report_file)
        if published.is_published(options.source):
            write_published_report(options)
        else:
            write_full_report(options, stderr)


@app.command()
@on_source(source=LogSource, without=("as_json", "group", "as_of", "out", "report_file", "master"))
def export(
    options: CommandOptions,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the endpoint /metrics; 0 for any free one.")
    ] = 9308,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=SECONDS_MAX, help="Time between two polls.")
    ] = 10.0,
    names: Annotated[
        str,
        typer.Option(
            metavar="SETS",
            help="Names of other exporters, separated by commas: kafka_exporter, kafka-lag-exporter, kminion, burrow.",
        ),
    ] = "kafka_exporter,kafka-lag-exporter,kminion,burrow",
    cluster_name: Annotated[
        str | None, typer.Option(help="Value of the labels cluster and cluster_name; default: the id of the cluster.")
    ] = None,
    metrics_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token that scrapers show, needed unless --host is a loopback address; or KOHORT_METRICS_TOKEN.",
        ),
    ] = None,
) -> None:
    """
    Serve lag, rebalances and transactions to Prometheus, until SIGTERM or Ctrl-C.

    Needs neither Spark nor Java. Follows a running cluster, or a data directory that grows. Metrics have the names of the known
    lag exporters, so their dashboards work.
    """
    with errors_as_sentences():
        serve_metrics(
            options,
            host=host,
            port=port,
            interval_s=interval,
            names=names,
            cluster_name=cluster_name,
            token_file=metrics_token_file,
        )


@app.command()
def dashboard() -> None:
    """Print a Grafana dashboard for the metrics of `export`, as JSON to import."""
    from importlib.resources import files

    typer.echo(
        files("kohort.pipeline.exporter").joinpath("grafana-dashboard.json").read_text(encoding="utf-8"), nl=False
    )


@app.command()
def schema(
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Name of a table; default all tables.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with the types of Spark SQL.")] = False,
) -> None:
    """Columns of the tables: name, type, meaning."""
    with errors_as_sentences():
        from kohort.pipeline.tables.contract import COLUMNS, columns_of

        found = {name: columns_of(name) for name in (COLUMNS if table is None else [table])}
    if as_json:
        told = {
            name: [{"name": one.name, "type": one.sql, "kind": one.kind, "comment": one.comment} for one in columns]
            for name, columns in found.items()
        }
        typer.echo(to_json(told if table is None else told[table]))
        return
    show_schema([{"table": name, **one._asdict()} for name, columns in found.items() for one in columns])


def _one_of(given: dict[str, bool]) -> None:
    """Refuse options that select different tables."""
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        fail(f"{' and '.join(chosen)} select different tables; use one at a time")
