"""Checks of options before anything is read, and errors as sentences."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from kohort.cli.pipeline.options import CommandOptions
from kohort.model.errors import ConfigError
from kohort.model.numbers import INT64_MAX, is_number
from kohort.model.text import printable_lines

if TYPE_CHECKING:
    from kohort.pipeline.tables.burrow.evaluator import Rules

_EXIT_ERROR = 2
_OF_SPARK = ("pyspark", "py4j", "pandas")


@contextmanager
def errors_as_sentences() -> Iterator[TextIO]:
    """
    Print an error that the user can fix as a sentence, and exit with code 2. Other errors propagate.

    Yields:
        a copy of standard error, for notes: Spark redirects the original at its start.
    """
    with os.fdopen(os.dup(2), "w") as stderr:
        try:
            yield stderr
        except ImportError as exc:
            extra = "pipeline" if exc.name in _OF_SPARK else "tables"
            print(f"kohort pipeline: {exc.name} is missing: pip install 'kohort[{extra}]'", file=stderr)
            raise typer.Exit(_EXIT_ERROR) from exc
        except Exception as exc:
            # Spark and the operating system raise many kinds of exceptions. An error of our own code has no sentence.
            from kohort.pipeline.failures import sentence

            message = sentence(exc)
            if message is None:
                raise
            print(printable_lines(f"kohort pipeline: {message}"), file=stderr)
            raise typer.Exit(_EXIT_ERROR) from exc


def fail(sentence: str) -> None:
    """Print a sentence and exit with code 2."""
    with errors_as_sentences():
        raise ConfigError(sentence)


def check_logs(options: CommandOptions) -> None:
    from kohort.pipeline.jobs import published

    if published.is_published(options.source):
        raise ConfigError(
            f"{options.source} contains published tables; this command needs logs: a data directory or kafka://HOST:PORT"
        )


def check_report_directory(report_file: Path | None) -> None:
    """Check the directory of the report before reading the logs."""
    if report_file is not None and not report_file.absolute().parent.is_dir():
        raise ConfigError(f"the report cannot be written to {report_file}: the directory does not exist")


def check_out(out: str | Path | None, master: str | None = None) -> None:
    """
    Check that tables can be written to a directory, before the logs are read.

    Raises:
        ConfigError: a part of the path is a file, the directory cannot be written to, or the executors of a cluster would write
            into directories of their own machines.
    """
    from kohort.pipeline.jobs.publish import CATALOG

    if out is None or "://" in str(out) or str(out).startswith(CATALOG):
        return
    if master is not None and not master.startswith("local"):
        raise ConfigError(
            f"{out} is a directory of this machine, and the executors of {master} would write into their own; name a place"
            f" that all of them reach: hdfs://, s3a://, or file://{Path(out).absolute()} if they all mount it"
        )
    target = Path(out).absolute()
    there = next(path for path in (target, *target.parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"tables cannot be written to {out}: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"tables cannot be written to {out}: {there}: Permission denied")


def parse_as_of(as_of: str | None) -> int | None:
    """
    Parse --as-of into milliseconds since 1970. The default time zone is UTC.

    Raises:
        ConfigError: the text is neither a time nor a number, or lies in the future.
    """
    from datetime import UTC, datetime

    if as_of is None:
        return None
    try:
        moment = None if is_number(as_of, 0, INT64_MAX) else datetime.fromisoformat(as_of)
    except ValueError as exc:
        raise ConfigError(
            f"--as-of {as_of!r} is not a time; write 2026-11-21T09:30:00, or milliseconds since 1970"
        ) from exc
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = int(as_of) if moment is None else round(moment.timestamp() * 1000)
    now = datetime.now(UTC)
    if at_ms > now.timestamp() * 1000:
        raise ConfigError(f"--as-of {as_of} is in the future: it is {now:%Y-%m-%dT%H:%M:%S} (UTC) now")
    return at_ms


def burrow_rules(intervals: int | None, allowed_lag: int | None, min_distance_s: int | None) -> "Rules | None":
    """Make the rules of `status` from the options; None if none is given."""
    from kohort.pipeline.tables.burrow.evaluator import Rules

    given = {"intervals": intervals, "allowed_lag": allowed_lag}
    given["distance_min_ms"] = None if min_distance_s is None else min_distance_s * 1000
    rules = {name: value for name, value in given.items() if value is not None}
    return Rules(**rules) if rules else None


def check_fail_on(verdict: str | None, *, is_history: bool, allows_unknown: bool) -> None:
    """
    Check the options --fail-on and --allow-unknown.

    Raises:
        ConfigError: there is no such verdict, the command shows history, or the second option is given without the first.
    """
    from kohort.pipeline.tables.burrow.verdicts import SEVERITIES

    if allows_unknown and verdict is None:
        raise ConfigError("--allow-unknown says what --fail-on does not count; use it with --fail-on VERDICT")
    if verdict is not None and is_history:
        raise ConfigError("--fail-on judges the present; it cannot be used with --history")
    if verdict is not None and verdict.upper() not in SEVERITIES[1:]:
        raise ConfigError(f"--fail-on {verdict!r} is no verdict; verdicts are {', '.join(SEVERITIES[1:])}")


def check_ends(ends: str | None, options: CommandOptions, *, is_history: bool) -> None:
    """
    Check the option --ends.

    Raises:
        ConfigError: it names no running cluster, the source has ends of its own, or the question is one of the past.
    """
    from kohort.pipeline.sources.live import is_live

    if ends is None:
        return
    if not is_live(ends):
        raise ConfigError(f"--ends {ends}: name a running cluster, kafka://HOST:PORT")
    if is_history or options.as_of is not None:
        raise ConfigError("--ends takes the ends of logs of now; it cannot be used with --history or --as-of")
    if is_live(options.source):
        raise ConfigError(
            f"{options.source} is a running cluster, and has the ends of logs; --ends is for a copy without"
        )
    check_logs(options)
