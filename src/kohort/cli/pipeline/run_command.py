"""`kohort pipeline run`: publish tables once, or continuously, with progress."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from kohort.cli.output import echo
from kohort.cli.pipeline.progress import print_damage, shown_progress
from kohort.client.security import SUPPORTED_CONFIGS, read_properties
from kohort.model.errors import ConfigError

POLL_INTERVAL_S = 1.0
_SHARED = "file://"
"""The begin of a directory that all executors of a cluster mount."""


@dataclass(frozen=True)
class RunOptions:
    """Options of `kohort pipeline run`."""

    source: str
    out: Path
    groups: frozenset[str] | None
    as_of_ms: int | None
    is_anew: bool
    config: Path | None
    master: str | None
    has_history: bool = False
    store: str | None = None


def run_pipeline(options: RunOptions, console: Any, *, every_s: float | None) -> None:
    """
    Publish the tables of a source.

    Args:
        every_s: if given, continue until SIGINT or SIGTERM and wait at least this long between two versions.

    Raises:
        ConfigError: the source cannot be read, or the directory contains something else.
    """
    from kohort.pipeline.jobs import published, stores
    from kohort.pipeline.runs.run import Run, Source
    from kohort.pipeline.runs.state import RunRequest

    # Opened first, so that an unreachable store is reported before the logs are read.
    store = None if options.store is None else stores.opened(options.store)
    with ExitStack() as stack:
        running = Run(
            Source(absolute(options.source), connection_options(options.config)),
            options.out.absolute(),
            RunRequest(options.groups, options.as_of_ms, published.TABLES if options.has_history else published.USUAL),
            LazySpark(stack, options.master, console).session,
            is_anew=options.is_anew,
        )
        if every_s is None:
            _once(running, console, options.out, store)
            return
        with stop_signal() as stopped:
            while not stopped.is_set():
                _once(running, console, options.out, store)
                stopped.wait(every_s)
                while not stopped.is_set() and not running.has_news():
                    stopped.wait(POLL_INTERVAL_S)


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


def _once(running: Any, console: Any, out: Path, store: Any) -> None:
    with shown_progress(console, running):
        outcome = running.once()
    print_outcome(outcome, running, out)
    if store is not None:
        _stored(store, out)


def print_outcome(outcome: Any, running: Any, out: Path) -> None:
    """Print the result of a run."""
    for sentence in outcome.lost:
        echo(f"Lost: {sentence}", err=True)
    for ended in outcome.ended:
        echo(f"Restarted: {ended}", err=True)
    for row in outcome.damage:
        print_damage(row)
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
    console: Any
    spark: Any = None

    @contextmanager
    def session(self, log_bytes: int) -> Iterator[Any]:
        """
        Args:
            log_bytes: size of the logs, from which the number of partitions is chosen.

        Raises:
            ConfigError: Spark does not start.
        """
        from kohort.pipeline.jobs.reading import SHORT_BYTES, shuffle_partitions
        from kohort.pipeline.session import session

        if self.spark is None:
            parts, is_short = shuffle_partitions(log_bytes), log_bytes < SHORT_BYTES
            with self.console.status("Starting Spark ..."):
                self.spark = self.stack.enter_context(session(self.master, shuffle_partitions=parts, is_short=is_short))
        yield self.spark


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
