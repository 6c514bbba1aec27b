"""Columns of the tables that `kohort pipeline` prints, and the functions of their cells."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import typer

from kohort.pipeline.report.formatting import duration, instant, rebalance_duration
from kohort.pipeline.tables.contract import DURATION, INSTANT, column_of

SHORT_MAX = 40
"""Characters of a text that clients choose."""
_DONE = ("acknowledged", "archived")
"""The states of records that no member of a share group gets again."""

Row = dict[str, Any]
Cell = Callable[[Row], str]
Align = Literal["left", "right"]
Column = tuple[str, Align, Cell]


def show_schema(rows: list[Row]) -> None:
    """Print the columns of tables: `table`, `name`, `kind`, `comment`. Without Arrow, which an installation may not have."""
    lines = [
        ("TABLE", "COLUMN", "TYPE", "MEANING"),
        *((row["table"], row["name"], row["kind"], row["comment"]) for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def to_json(value: Any) -> str:
    """Encode JSON. Bytes become hexadecimal digits."""
    return json.dumps(value, default=bytes.hex)


@dataclass(frozen=True)
class Field:
    """The cell of a plain value."""

    name: str

    def __call__(self, row: Row) -> str:
        return "-" if row[self.name] is None else str(row[self.name])


@dataclass(frozen=True)
class Short(Field):
    """The cell of a text that clients choose, which may be long; `--json` has all of it."""

    def __call__(self, row: Row) -> str:
        text = super().__call__(row)
        return text if len(text) <= SHORT_MAX else f"{text[: SHORT_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Instant:
    """The cell of an instant in milliseconds."""

    name: str

    def __call__(self, row: Row) -> str:
        return instant(row[self.name])


def _duration(name: str, row: Row) -> str:
    return duration(row[name])


def _waited(row: Row) -> str:
    """Return the time lag; a lower bound is marked."""
    bound = "\N{GREATER-THAN OR EQUAL TO}" if row.get("is_exact") is False else ""
    return f"{bound}{duration(row['time_lag_ms'])}"


def _in_flight(row: Row) -> str:
    """Return how many records behind the start offset are not done; the state has ranges of them."""
    open_ones = (one for one in row["batches"] or () if one["state"] not in _DONE)
    return str(sum(one["last_offset"] - one["first_offset"] + 1 for one in open_ones))


def _members(name: str, row: Row) -> str:
    members = row[name]
    return "?" if members is None else ", ".join(one["instance_id"] or one["client_id"] for one in members)


def _partitions(row: Row) -> str:
    partitions = row["partitions"]
    return "?" if partitions is None else ", ".join(f"{each['topic']}-{each['partition']}" for each in partitions)


def _reasons(row: Row) -> str:
    return "?" if row["why"] is None else ", ".join(row["why"])


def _topic(row: Row) -> str:
    """Return the topic name, or its id if the name is unknown; the subtopology for a task of a streams group."""
    is_task = row.get("subtopology") is not None
    return f"subtopology {row['subtopology']}" if is_task else str(row["topic"] or row["topic_id"])


_SPECIAL: dict[str, tuple[Align, Cell]] = {
    "@lag": ("right", lambda row: "beyond end" if row["is_beyond_end"] else Field("lag")(row)),
    "@metadata": ("left", Short("metadata")),
    "@waited": ("right", _waited),
    "@topic": ("left", _topic),
    "@since": ("left", Instant("since_ms")),
    "@why": ("left", _reasons),
    "@topics": ("left", lambda row: ", ".join((*row["topics"], *row["other_sources"]))),
    "@members": ("right", lambda row: str(len(row["members"]))),
    "@joined": ("left", partial(_members, "joined")),
    "@left": ("left", partial(_members, "left")),
    "@took": ("right", rebalance_duration),
    "@in_flight": ("right", _in_flight),
    "@partitions": ("left", _partitions),
    "@timeout_ms": ("right", partial(_duration, "timeout_ms")),
    "@is_overdue": ("left", lambda row: "yes" if row["is_overdue"] else "no"),
    "@abort_rate": ("right", lambda row: "-" if row["abort_rate"] is None else f"{row['abort_rate']:.1%}"),
}
"""Cells that are not a column in the format of its type."""

_PLACE = "group | topic | partition"
_COMMITTED = "leader_epoch | COMMITTED commit_timestamp_ms | METADATA @metadata"
_REBALANCES = (
    "COMPLETED completed_at_ms | group | TYPE group_type | event | generation | WHY @why | MEMBERS @members | JOINED @joined"
    " | LEFT @left | moved | TOOK @took"
)
_OWNED = "group | TOPIC @topic | partition"
_SINCE = "SINCE since_ms | UNTIL until_ms"

TABLES = {
    "offsets": f"{_PLACE} | offset | {_COMMITTED}",
    "lag": f"{_PLACE} | offset | END end_offset | LAG @lag | {_COMMITTED}",
    "time_lag": (f"{_PLACE} | offset | END end_offset | LAG @lag | WAITING @waited | LOST records_lost | {_COMMITTED}"),
    "verdicts": (
        f"{_PLACE} | verdict | SINCE (UTC) @since | BURROW status | lag | WAITING @waited | commits"
        " | LAST COMMIT last_commit_ms | why"
    ),
    "status_history": f"{_PLACE} | status | {_SINCE} | GREATEST LAG lag_max",
    "lag_over_time": "TIME timestamp_ms | group | lag",
    "time_lag_over_time": (
        "TIME timestamp_ms | group | WAITING SINCE waiting_since_ms | WAITING time_lag_ms | GREATEST time_lag_max_ms"
    ),
    "commit_frequency": (
        f"{_PLACE} | commits | unmoved | rewinds | INTERVAL interval_p50_ms | LONGEST interval_max_ms"
        " | LAST COMMIT last_commit_ms"
    ),
    "rebalances": _REBALANCES,
    "rebalance_costs": f"{_REBALANCES} | lag_before | AFTER lag_after | COST lag_cost",
    "assignments": f"{_OWNED} | role | {_SINCE} | MEMBER member_id",
    "partition_flapping": f"{_OWNED} | stays | owners | moves | returns | HELD held_p50_ms | SHORTEST held_min_ms",
    "time_without_owner": f"{_OWNED} | {_SINCE} | LASTED unowned_ms",
    "share_state": (
        f"{_OWNED} | START start_offset | END end_offset | lag | DONE delivery_complete_count | IN FLIGHT @in_flight"
        " | WRITTEN written_at_ms"
    ),
    "blocking_transactions": (
        "topic | partition | PRODUCER producer_id | EPOCH producer_epoch | start_offset | LAST WRITTEN last_timestamp_ms"
        " | DURATION duration_ms | transactional_id | verdict | BLOCKED blocked_records"
    ),
    "spark_queries": (
        "group | state | lag | WAITING time_lag_ms | batch | FINISHED finished_at_ms | open_batch | SINCE open_since_ms"
        " | REPLAYED replayed | RETENTION IN retention_left_ms | LOST records_lost | TOPICS @topics | state_why"
    ),
    "members": (
        f"group | TYPE group_type | CLIENT client_id | INSTANCE instance_id | HOST client_host | {_SINCE} | MEMBER member_id"
    ),
    "transactions": (
        "BEGUN start_ms | transactional_id | PRODUCER producer_id | EPOCH producer_epoch | outcome | BY ended_by"
        " | TOOK duration_ms | PARTITIONS @partitions"
    ),
    "open_transactions": (
        "topic | partition | transactional_id | PRODUCER producer_id | EPOCH producer_epoch | state | BEGUN start_ms"
        " | AGE age_ms | TIMEOUT @timeout_ms | OVERDUE @is_overdue"
    ),
    "transaction_statistics": (
        "transactional_id | transactions | committed | aborted | open | timed_out | fenced | ABORT RATE @abort_rate"
        " | P50 duration_p50_ms | P95 duration_p95_ms | P99 duration_p99_ms | MAX duration_max_ms"
    ),
}
"""The columns of each printed table: a name of `tables.contract`, with its title before it if that is another one."""


def columns_of(table: str) -> list[Column]:
    """Return the columns of a printed table. Their types decide how they are aligned and formatted."""
    return [_column(table, one) for one in TABLES[table].split(" | ")]


def _column(table: str, text: str) -> Column:
    title, _, name = text.rpartition(" ")
    if name in _SPECIAL:
        return title, *_SPECIAL[name]
    title, kind = title or name.upper().replace("_", " "), column_of(table, name).kind
    if kind == INSTANT:
        return f"{title} (UTC)", "left", Instant(name)
    if kind == DURATION:
        return title, "right", partial(_duration, name)
    return title, "right" if kind.endswith("int") else "left", Field(name)
