"""`kohort pipeline status`: the verdict of each partition."""

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from kohort.cli.pipeline.checks import errors_as_sentences
from kohort.cli.pipeline.options import CommandOptions
from kohort.cli.pipeline.tables import read_tables

if TYPE_CHECKING:
    import pyarrow as pa

EXIT_FOUND = 1
"""The exit code of `status --fail-on` if a partition has the verdict or a worse one."""
_NAMES = ("status", "time_lag", "rebalances", "share_state", "assignments", "blocking_transactions", "spark_queries")


class Verdicts(NamedTuple):
    """The rows, the tables that they are made of, their instant, and whether there are groups that the source does not have."""

    rows: list[dict[str, Any]]
    tables: "dict[str, pa.Table]"
    at_ms: int
    lacks_groups: bool


def read_verdicts(options: CommandOptions, *, is_silent: bool = False) -> Verdicts:
    """Judge every partition, the worst first; see `tables.burrow.verdicts`. `is_silent`: missing logs are not told."""
    found, at_ms, lacks_groups = read_tables(options, _NAMES, is_silent=is_silent)
    with errors_as_sentences():
        from kohort.pipeline.tables.burrow.verdicts import verdicts

        allowed_lag = 0 if options.rules is None else options.rules.allowed_lag
        known = (found[name].to_pylist() for name in ("time_lag", "status", "rebalances"))
        rows = verdicts(
            *known,
            share=found["share_state"].to_pylist(),
            blocking=found["blocking_transactions"].to_pylist(),
            owned=_of_uncommitted(found["assignments"], found["time_lag"]).to_pylist(),
            queries=found["spark_queries"].to_pylist(),
            at_ms=at_ms,
            allowed_lag=allowed_lag,
        )
    return Verdicts(rows, found, at_ms, lacks_groups)


def show_verdicts(options: CommandOptions, fail_on: str | None, *, allows_unknown: bool = False) -> None:
    """
    Print the verdict of each partition, the worst first.

    Args:
        fail_on: print partitions with this verdict or a worse one only, and those that cannot be judged, and exit with
            `EXIT_FOUND` if there are any, or may be in logs that the source does not have.
        allows_unknown: what cannot be judged does not matter for `fail_on`.
    """
    rows, _, at_ms, lacks_groups = read_verdicts(options, is_silent=allows_unknown and fail_on is not None)
    with errors_as_sentences():
        import pyarrow as pa

        from kohort.cli.pipeline.aligned import print_table
        from kohort.pipeline.tables.burrow.verdicts import at_least

        if fail_on is not None:
            rows = list(at_least(rows, fail_on.upper(), allows_unknown=allows_unknown))
        if rows or options.as_json or fail_on is None:
            print_table(pa.Table.from_pylist(rows), options.as_json, "verdicts")
            if rows:
                _print_age(at_ms)
    if fail_on is not None and (rows or (lacks_groups and not allows_unknown)):
        raise typer.Exit(EXIT_FOUND)


def _print_age(at_ms: int) -> None:
    """Tell the instant of the tables: that of the newest record, which may be old in a copy of a directory."""
    from kohort.pipeline.report.formatting import duration, instant

    if at_ms:
        age_ms = int(time.time() * 1000) - at_ms
        ago = f"{duration(age_ms)} ago" if age_ms >= 0 else f"{duration(-age_ms)} ahead of this machine's clock"
        typer.echo(f"As of {instant(at_ms)} UTC, {ago}", err=True)


def _of_uncommitted(assignments: "pa.Table", lag: "pa.Table") -> "pa.Table":
    """Return the assignments of the groups that own a partition without a committed offset."""
    import pyarrow.compute as pc

    groups = pc.unique(lag.filter(pc.is_null(lag["offset"]))["group"])
    return assignments.filter(pc.is_in(assignments["group"], groups.cast(assignments["group"].type)))
