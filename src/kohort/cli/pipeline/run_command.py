"""`kohort pipeline run`: once, or on and on, with progress."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from kohort.cli.pipeline.progress import shown_progress
from kohort.client.security import SUPPORTED_CONFIGS, read_properties
from kohort.model.errors import ConfigError

LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class RunOptions:
    """What `run` was asked for."""

    source: str
    out: Path
    groups: frozenset[str] | None
    as_of_ms: int | None
    is_anew: bool
    config: Path | None
    master: str | None
    has_history: bool = False
    store: str | None = None


def run(options: RunOptions, console: Any, *, every_s: float | None) -> None:
    """
    Publish.

    Args:
        every_s: with a number, go on until SIGINT or SIGTERM, and publish no more often than that.

    Raises:
        ConfigError: the source cannot be read, or the directory holds something else.
    """
    from kohort.pipeline.jobs import published, stores
    from kohort.pipeline.runs.run import Run, Source
    from kohort.pipeline.runs.state import RunRequest

    # A store that cannot be opened is said before anything is read.
    store = None if options.store is None else stores.opened(options.store)
    with ExitStack() as stack:
        running = Run(
            Source(_absolute(options.source), connection_options(options.config)),
            options.out.absolute(),
            RunRequest(options.groups, options.as_of_ms, published.TABLES if options.has_history else published.USUAL),
            LazySpark(stack, options.master, console).session,
            is_anew=options.is_anew,
        )
        if every_s is None:
            _once(running, console, options.out, store)
            return
        with _told_to_stop() as stopped:
            while not stopped.is_set():
                _once(running, console, options.out, store)
                stopped.wait(every_s)
                while not stopped.is_set() and not running.has_news():
                    stopped.wait(LOOK_EVERY_S)


def connection_options(config: Path | None) -> dict[str, str]:
    """
    The properties of a file as options of the source; what is none of its options is left out, as Kafka's tools do.

    Raises:
        ConfigError: the file cannot be read.
    """
    from kohort.pipeline.sources.options import SECURITY

    if config is None:
        return {}
    given = read_properties(config)
    return {SECURITY + name: text for name, text in given.items() if name in SUPPORTED_CONFIGS}


def local_out(out: str) -> Path:
    """
    Raises:
        ConfigError: it is in an object store.
    """
    if "://" in out:
        raise ConfigError(
            f"--out {out}: Spark writes no object store without connectors of its own, and a run keeps what it has read;"
            f" name a directory here with --out, and --store {out}"
        )
    return Path(out)


def _absolute(source: str) -> str:
    return source if "://" in source else str(Path(source).absolute())


def _once(running: Any, console: Any, out: Path, store: Any) -> None:
    with shown_progress(console, running):
        outcome = running.once()
    for sentence in outcome.lost:
        typer.echo(f"Lost: {sentence}", err=True)
    for ended in outcome.over:
        typer.echo(f"Begun again: {ended}", err=True)
    for row in outcome.damage:
        where = f"{row['log_topic']}-{row['log_partition']}/{row['segment']}, byte {row['position']}"
        typer.echo(f"Left out: {where}: {row['size_bytes']} bytes, {row['problem']}", err=True)
    told = f"{outcome.rows_read:,} new rows" if outcome.is_new else "up to date"
    if outcome.touched is not None:
        told += f", {len(outcome.touched.groups):,} groups made again"
    typer.echo(
        f"{out}: version {outcome.version}, {told}" if outcome.is_new else f"{out}: {told} (version {outcome.version})"
    )
    if outcome.is_new:
        tell_missing(out, running.wanted.groups)
    if store is not None:
        _stored(store, out)


def tell_missing(out: Path, groups: frozenset[str] | None) -> None:
    """A name that no group has makes empty tables, and is most often a pattern or a slip."""
    from kohort.pipeline.jobs import published

    there = published.groups(published.current(out)) if groups else set()
    for name in sorted((groups or frozenset()) - there):
        typer.echo(f"No such group: {name!r} (--groups takes names as they are, no patterns)", err=True)


def _stored(store: Any, out: Path) -> None:
    """Also what an earlier run has published here but did not get there."""
    from kohort.pipeline.jobs import published, stores

    done = stores.publish(store, published.current(out))
    told = (
        f"version {done.version}, {done.bytes_written:,} bytes"
        if done.is_new
        else f"up to date (version {done.version})"
    )
    typer.echo(f"{store.uri}: {told}")


@dataclass
class LazySpark:
    """Spark, started when it is needed first, kept for the runs that follow and stopped with `stack`."""

    stack: ExitStack
    master: str | None
    console: Any
    spark: Any = None

    @contextmanager
    def session(self, log_bytes: int) -> Iterator[Any]:
        """
        Args:
            log_bytes: how much there is to read at first.

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
def _told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM; the run that is under way is finished first."""
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
