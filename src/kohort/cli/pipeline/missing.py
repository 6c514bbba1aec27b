"""
Sentences about logs that a source does not have: what its tables do not know is never left out without a word.

A directory does not tell how many partitions a topic has. A log is missing if a record names its partition, or if there is one
with a greater number.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import typer

from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.model.text import printable_lines

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.pipeline.jobs.tables import Tables

MISSING_NAMED: Final = 5
"""Logs or groups that a sentence names; of more it tells the number."""
_OF_TRANSACTIONS: Final = frozenset({"transactions", "open_transactions", "transaction_statistics"})
_OF_ENDS: Final = frozenset({"lag", "time_lag", "share_state"})
"""Tables with the end of each log."""
_OF_HISTORY: Final = frozenset({"lag_over_time", "time_lag_over_time", "status_history", "rebalance_costs"})
"""Tables that leave partitions without a log out."""


def tell_missing(tables: "Tables", found: "Mapping[str, pa.Table]", source: str) -> None:
    """
    Tell which logs a source lacks.

    Args:
        found: the tables that were read, by name, the one that was asked for first.
    """
    for sentence in _sentences(tables, found):
        typer.echo(printable_lines(f"kohort pipeline: {source} {sentence}"), err=True)


def unknown_rows(tables: "Tables", name: str) -> "pa.Table":
    """Return the rows of a table that tell which logs are missing: of a table that was written, because it may be large."""
    frame = getattr(tables, name)
    if name == "blocking_transactions":
        return frame.where(frame["verdict"] == "unknown").limit(1).toArrow()
    if name not in _OF_ENDS:
        return frame.limit(0).toArrow()
    is_unknown = frame["end_offset"].isNull()
    return frame.where(is_unknown | frame["state_epoch"].isNull() if name == "share_state" else is_unknown).toArrow()


def _sentences(tables: "Tables", found: "Mapping[str, pa.Table]") -> Iterator[str]:
    asked = next(iter(found), "")
    is_of_transactions = asked in {*_OF_TRANSACTIONS, "blocking_transactions"}
    if asked and not is_of_transactions and (gaps := tables.reading.gaps(CONSUMER_OFFSETS)):
        yield f"has no {_logs(gaps)}: groups of theirs are not shown"
    if asked in _OF_TRANSACTIONS and (gaps := tables.reading.gaps(TRANSACTION_STATE)):
        yield f"has no {_logs(gaps)}: transactions of theirs are not shown"
    if "share_state" in found and (groups := _without_state(found["share_state"])):
        of = f"{'group' if len(groups) == 1 else 'groups'} {_some(groups)}"
        yield f"has no log of the share coordinator ({SHARE_GROUP_STATE}-N) of {of}, so the lag there is unknown"
    places = {place for name in _OF_ENDS & found.keys() for place in _without_end(found[name])}
    if asked in _OF_HISTORY and not tables.reading.is_live:
        places |= set(_without_end(tables.lag.toArrow()))
    if places:
        hint = ". lag --ends kafka://HOST:PORT takes the ends of logs from a running cluster"
        yield f"has no {_logs(places)}, so the lag there is unknown{'' if asked == 'share_state' else hint}"
    if asked == "blocking_transactions":
        if "unknown" in found[asked]["verdict"].to_pylist():
            yield f"lacks logs of coordinators ({TRANSACTION_STATE}-N), so whether a transaction hangs is unknown"
        if unread := _unread(tables):
            yield f"has no {unread}, so whether a transaction hangs there is unknown"


def _without_state(shares: "pa.Table") -> list[str]:
    import pyarrow.compute as pc

    return sorted(set(shares.filter(pc.is_null(shares["state_epoch"]))["group"].to_pylist()))


def _without_end(table: "pa.Table") -> Iterator[tuple[str, int]]:
    import pyarrow.compute as pc

    for row in table.filter(pc.is_null(table["end_offset"])).select(["topic", "partition"]).to_pylist():
        yield row["topic"] or "an unknown topic", row["partition"]


def _unread(tables: "Tables") -> str:
    """Name the logs in which a transaction may hang, and that are not there."""
    there = tables.reading.places
    if tables.reading.is_live:
        return ""
    if not any(topic not in INTERNAL_TOPICS for topic, _ in there):
        return "logs of topics"
    opened = tables.open_transactions.select("topic", "partition").toArrow().to_pylist()
    missing = {(row["topic"], row["partition"]) for row in opened} - {*there}
    return _logs(missing) if missing else ""


def _logs(places: Collection[tuple[str, int]]) -> str:
    word = "log" if len(places) == 1 else "logs"
    return f"{word} of {_some([f'{topic}-{partition}' for topic, partition in sorted(places)])}"


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - MISSING_NAMED:,} more" if len(names) > MISSING_NAMED else ""
    return f"{', '.join(list(names)[:MISSING_NAMED])}{more}"
