"""`kohort pipeline follow`: tables that are kept up to date by a streaming query."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from kohort.cli.pipeline.run_command import LazySpark, absolute, connection_options, print_outcome, stop_signal
from kohort.model.errors import ConfigError

_MASTER = "local[*,4]"
"""Spark repeats a task of a killed worker on any other master; a local one needs the number of attempts."""
_CHECK_S = 0.5
_PAUSE_FIRST_S = 1.0
_PAUSE_LAST_S = 30.0


@dataclass(frozen=True)
class FollowOptions:
    """Options of `kohort pipeline follow`."""

    source: str
    out: Path
    groups: frozenset[str] | None
    config: Path | None
    master: str | None
    every_s: float
    patience_s: float
    records_max: int


def follow_source(options: FollowOptions, console: Any) -> None:
    """
    Follow a source until SIGINT or SIGTERM. The current micro-batch is finished first.

    Raises:
        ConfigError: the source cannot be read at the start, or for longer than `patience_s`; the directory contains something
            else.
    """
    from kohort.pipeline.failures import sentence
    from kohort.pipeline.jobs import published
    from kohort.pipeline.jobs.reading import SHORT_BYTES
    from kohort.pipeline.runs.follow import Follower
    from kohort.pipeline.runs.run import Run, Source
    from kohort.pipeline.runs.state import RunRequest

    out = options.out.absolute()
    with ExitStack() as stack:
        sessions = LazySpark(stack, options.master or _MASTER, console)
        running = Run(
            Source(absolute(options.source), connection_options(options.config)),
            out,
            RunRequest(options.groups, None, published.USUAL),
            sessions.session,
        )
        follower = Follower(running, lambda outcome: print_outcome(outcome, running, options.out), options.records_max)
        # A source that cannot be read is an error at the start, before Spark is started; later it may come back.
        running.logs.state()
        stopped = stack.enter_context(stop_signal())
        spark = stack.enter_context(sessions.session(SHORT_BYTES))
        good_s, pause_s, batches = time.monotonic(), _PAUSE_FIRST_S, 0
        while not stopped.is_set():
            query = follower.start(spark, {"processingTime": f"{options.every_s} seconds"})
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
            if time.monotonic() - good_s > options.patience_s:
                raise ConfigError(f"{told}; gave up after {options.patience_s:g} s")
            typer.echo(f"Again in {pause_s:g} s: {told}", err=True)
            stopped.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LAST_S)
