"""`kohort pipeline run` and `follow`: publish tables once, or continuously, with progress."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import typer

from kohort.cli.output import echo
from kohort.cli.pipeline.checks import check_logs, check_out, parse_as_of
from kohort.cli.pipeline.options import CommandOptions
from kohort.cli.pipeline.progress import print_damage, shown_progress
from kohort.client.security import SUPPORTED_CONFIGS, read_properties
from kohort.model.errors import ConfigError

POLL_INTERVAL_S = 1.0
INTERVAL_S = 10.0
"""Shortest time between two versions, by default."""
_MASTER = "local[*,4]"
"""Spark repeats a task of a killed worker on any other master; a local one needs the number of attempts."""
_CHECK_S = 0.5
_PAUSE_FIRST_S = 1.0
_PAUSE_LAST_S = 30.0
_SHARED = "file://"
"""The begin of a directory that all executors of a cluster mount."""


def run_pipeline(
    options: CommandOptions,
    stderr: TextIO,
    out: str,
    groups: str | None,
    *,
    store_uri: str | None,
    file_format: str | None,
    is_anew: bool,
    has_history: bool,
    is_stream: bool,
    every_s: float | None,
) -> None:
    """
    Publish the tables of a source.

    Args:
        groups: names, separated by commas; None for all.
        is_stream: continue until SIGINT or SIGTERM, and wait at least `every_s` between two versions.

    Raises:
        ConfigError: options exclude each other, the source cannot be read, or the directory contains something else.
    """
    from kohort.pipeline.jobs import catalogs, published, stores
    from kohort.pipeline.runs.state import RunRequest

    group_ids = _group_ids(groups)
    if every_s is not None and not is_stream:
        raise ConfigError("--every needs --stream")
    if is_stream and options.as_of is not None:
        raise ConfigError("--as-of and --stream exclude each other")
    check_logs(options)
    as_of_ms = parse_as_of(options.as_of)
    check_out(out, options.master)
    directory = local_out(out)
    if file_format is not None and store_uri is None:
        raise ConfigError("--format is for --store; --out DIR holds Parquet")
    catalog = None if store_uri is None else catalogs.catalog(store_uri, file_format)
    # Opened first, so that an unreachable store is reported before the logs are read.
    store = None if store_uri is None or catalog is not None else stores.opened(store_uri)
    with ExitStack() as stack:
        request = RunRequest(group_ids, as_of_ms, published.TABLES if has_history else published.USUAL)
        sessions = LazySpark(stack, options.master, stderr)
        running = _run(options, directory, request, sessions)
        running.is_anew = is_anew
        if not is_stream:
            _once(running, stderr, directory, store, catalog, sessions)
            return
        with stop_signal() as stopped:
            while not stopped.is_set():
                _once(running, stderr, directory, store, catalog, sessions)
                stopped.wait(INTERVAL_S if every_s is None else every_s)
                while not stopped.is_set() and not running.has_news():
                    stopped.wait(POLL_INTERVAL_S)


def follow_source(
    options: CommandOptions,
    stderr: TextIO,
    out: str,
    groups: str | None,
    *,
    every_s: float,
    patience_s: float,
    records_max: int,
) -> None:
    """
    Follow a source until SIGINT or SIGTERM. The current micro-batch is finished first.

    Raises:
        ConfigError: the source cannot be read at the start, or for longer than `patience_s`; the directory contains something
            else.
    """
    from kohort.pipeline.failures import sentence
    from kohort.pipeline.jobs.reading import SHORT_BYTES
    from kohort.pipeline.runs.follow import Follower
    from kohort.pipeline.runs.state import RunRequest

    request = RunRequest(_group_ids(groups))
    check_logs(options)
    check_out(out)
    directory = local_out(out)
    with ExitStack() as stack:
        sessions = LazySpark(stack, options.master or _MASTER, stderr)
        running = _run(options, directory, request, sessions)
        follower = Follower(running, lambda outcome: print_outcome(outcome, running, directory), records_max)
        # A source that cannot be read is an error at the start, before Spark is started; later it may come back.
        running.logs.state()
        stopped = stack.enter_context(stop_signal())
        spark = stack.enter_context(sessions.session(SHORT_BYTES))
        good_s, pause_s, batches = time.monotonic(), _PAUSE_FIRST_S, 0
        while not stopped.is_set():
            query = follower.start(spark, {"processingTime": f"{every_s} seconds"})
            while query.isActive and not stopped.wait(_CHECK_S):
                if follower.batches > batches or query.recentProgress:
                    good_s, pause_s, batches = time.monotonic(), _PAUSE_FIRST_S, follower.batches
            with follower.publishing:
                failure = None if query.isActive else query.exception()
                query.stop()
            if failure is None:
                continue
            told = sentence(failure)
            if told is None:
                raise failure
            if time.monotonic() - good_s > patience_s:
                raise ConfigError(f"{told}; gave up after {patience_s:g} s")
            typer.echo(f"Again in {pause_s:g} s: {told}", err=True)
            stopped.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LAST_S)


def _group_ids(groups: str | None) -> frozenset[str] | None:
    found = None if groups is None else frozenset(name.strip() for name in groups.split(",") if name.strip())
    if found is not None and not found:
        raise ConfigError("--groups is empty; leave it out for all groups")
    return found


def _run(options: CommandOptions, out: Path, request: Any, sessions: "LazySpark") -> Any:
    from kohort.pipeline.runs.run import Run, Source

    source = Source(absolute(options.source), connection_options(options.config), tuple(options.named))
    return Run(source, out.absolute(), request, sessions.session)


def connection_options(config: Path | None) -> dict[str, str]:
    """
    Read a --command-config file as options of the Spark source. Other properties are ignored, as in Kafka's tools.

    Raises:
        ConfigError: the file cannot be read.
    """
    from kohort.pipeline.sources.options import SECURITY

    if config is None:
        return {}
    properties = read_properties(config)
    return {SECURITY + name: text for name, text in properties.items() if name in SUPPORTED_CONFIGS}


def local_out(out: str) -> Path:
    """
    Parse --out; `file://DIR` is a directory that all executors of a cluster mount.

    Raises:
        ConfigError: it is a URI of an object store.
    """
    if out.startswith(_SHARED):
        return Path(out.removeprefix(_SHARED))
    if "://" in out:
        raise ConfigError(
            f"--out {out} must be a local directory, which keeps the state of the run; use --out DIR --store {out}"
        )
    return Path(out)


def absolute(source: str) -> str:
    """Return a source with an absolute path, or a URI as it is."""
    return source if "://" in source else str(Path(source).absolute())


def _once(running: Any, stderr: TextIO, out: Path, store: Any, catalog: Any, sessions: "LazySpark") -> None:
    from kohort.pipeline.jobs import catalogs, published

    with shown_progress(stderr, running):
        outcome = running.once()
    print_outcome(outcome, running, out)
    if store is not None:
        _stored(store, out)
    if catalog is not None:
        made = published.current(out)
        is_new = catalogs.publish(catalog, made, sessions)
        typer.echo(f"{catalog.uri}: {'' if is_new else 'up to date, '}version {made.version} as {catalog.file_format}")


def print_outcome(outcome: Any, running: Any, out: Path) -> None:
    """Print the result of a run."""
    for sentence in outcome.lost:
        echo(f"Lost: {sentence}", err=True)
    for ended in outcome.ended:
        echo(f"Restarted: {ended}", err=True)
    for row in outcome.damage:
        print_damage(row)
    for problem in outcome.problems:
        echo(f"kohort pipeline: {problem}", err=True)
    summary = f"{outcome.rows_read:,} new rows" if outcome.is_new else "up to date"
    if outcome.affected is not None:
        summary += f", {len(outcome.affected.groups):,} groups updated"
    typer.echo(
        f"{out}: version {outcome.version}, {summary}"
        if outcome.is_new
        else f"{out}: {summary} (version {outcome.version})"
    )
    if outcome.is_new:
        report_missing(out, running.request.groups)


def report_missing(out: Path, groups: frozenset[str] | None) -> None:
    """Report names without a group. They are most often patterns or typing errors, and give empty tables."""
    from kohort.pipeline.jobs import published

    existing = published.groups(published.current(out)) if groups else set()
    for name in sorted((groups or frozenset()) - existing):
        typer.echo(f"No such group: {name!r} (--groups takes exact names, no patterns)", err=True)


def _stored(store: Any, out: Path) -> None:
    """Copy the current version to the store, also if an earlier run failed to do so."""
    from kohort.pipeline.jobs import published, stores

    done = stores.publish(store, published.current(out))
    text = (
        f"version {done.version}, {done.bytes_written:,} bytes"
        if done.is_new
        else f"up to date (version {done.version})"
    )
    typer.echo(f"{store.uri}: {text}")


@dataclass
class LazySpark:
    """A Spark session that starts at its first use and stops with `stack`."""

    stack: ExitStack
    master: str | None
    stderr: TextIO
    spark: Any = None

    @contextmanager
    def session(self, log_bytes: int) -> Iterator[Any]:
        """
        Args:
            log_bytes: size of the logs, from which the number of partitions is chosen.

        Raises:
            ConfigError: Spark does not start.
        """
        if self.spark is None:
            self.spark = started(self.stack, self.master, self.stderr, log_bytes)
        yield self.spark


def started(stack: ExitStack, master: str | None, stderr: TextIO, log_bytes: int) -> Any:
    """Start a Spark session for logs of a size; it stops with `stack`."""
    from rich.console import Console

    from kohort.pipeline.jobs.reading import SHORT_BYTES, shuffle_partitions
    from kohort.pipeline.spark_session import session

    parts, is_short = shuffle_partitions(log_bytes), log_bytes < SHORT_BYTES
    with Console(file=stderr).status("Starting Spark ..."):
        return stack.enter_context(session(master, shuffle_partitions=parts, is_short=is_short))


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Make an event that SIGINT and SIGTERM set. The current run finishes first."""
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
