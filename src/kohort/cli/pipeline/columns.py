"""Columns of the tables that `kohort pipeline` prints: aligned lines, or JSON."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import typer

from kohort.model.text import printable

Row = dict[str, Any]
Cell = Callable[[Row], str]
Align = Literal["left", "right"]
Column = tuple[str, Align, Cell]


def show(rows: list[Row], as_json: bool, name: str) -> None:
    """Print the rows of a table on standard output."""
    if as_json:
        typer.echo(to_json(rows))
        return
    typer.echo("\n".join(_aligned(rows, COLUMNS[name])) if rows else empty_sentence(name))


def empty_sentence(name: str) -> str:
    """Return the line for a table without rows."""
    return f"no {name.replace('_', ' ')}"


def show_schema(rows: list[Row]) -> None:
    """Print the columns of tables: `table`, `name`, `kind`, `comment`."""
    names = (("TABLE", "table"), ("COLUMN", "name"), ("TYPE", "kind"), ("MEANING", "comment"))
    typer.echo("\n".join(_aligned(rows, [_left(title, name) for title, name in names])))


def to_json(value: Any) -> str:
    """Encode JSON. Bytes become hexadecimal digits."""
    return json.dumps(value, default=bytes.hex)


def _aligned(rows: list[Row], columns: list[Column]) -> Iterator[str]:
    """Yield aligned lines. Not with rich: a table can have 100,000 rows, and lines must not be folded for `grep`."""
    cells = [[title for title, _, _ in columns], *([printable(cell(row)) for _, _, cell in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.rjust if align == "right" else str.ljust for _, align, _ in columns]
    for line in cells:
        yield "  ".join(pad(text, width) for pad, text, width in zip(pads, line, widths, strict=True)).rstrip()


@dataclass(frozen=True)
class Field:
    """The cell of a plain value."""

    name: str

    def __call__(self, row: Row) -> str:
        return "-" if row[self.name] is None else str(row[self.name])


@dataclass(frozen=True)
class Instant:
    """The cell of an instant in milliseconds."""

    name: str

    def __call__(self, row: Row) -> str:
        from kohort.pipeline.report.formatting import instant

        return instant(row[self.name])


def _left(title: str, name: str) -> Column:
    return title, "left", Field(name)


def _right(title: str, name: str) -> Column:
    return title, "right", Field(name)


def _instant(title: str, name: str) -> Column:
    return title, "left", Instant(name)


def _duration(title: str, name: str) -> Column:
    def cell(row: Row) -> str:
        from kohort.pipeline.report.formatting import duration

        return duration(row[name])

    return title, "right", cell


def _duration_of_rebalance(row: Row) -> str:
    from kohort.pipeline.report.formatting import rebalance_duration

    return rebalance_duration(row)


def _members(title: str, name: str) -> Column:
    def cell(row: Row) -> str:
        members = row[name]
        return "?" if members is None else ", ".join(one["instance_id"] or one["client_id"] for one in members)

    return title, "left", cell


def _partitions(row: Row) -> str:
    partitions = row["partitions"]
    return "?" if partitions is None else ", ".join(f"{each['topic']}-{each['partition']}" for each in partitions)


def _reasons(row: Row) -> str:
    return "?" if row["why"] is None else ", ".join(row["why"])


def _topic(row: Row) -> str:
    """Return the topic name, or its id if the name is unknown; the subtopology for a task of a streams group."""
    is_task = row.get("subtopology") is not None
    return f"subtopology {row['subtopology']}" if is_task else str(row["topic"] or row["topic_id"])


def _share(name: str) -> Cell:
    return lambda row: "-" if row[name] is None else f"{row[name]:.1%}"


_OFFSETS = [
    _left("GROUP", "group"),
    _left("TOPIC", "topic"),
    _right("PARTITION", "partition"),
    _right("OFFSET", "offset"),
]
_LAG: Column = ("LAG", "right", lambda row: "beyond end" if row["is_beyond_end"] else Field("lag")(row))
_COMMITTED = [
    _right("LEADER EPOCH", "leader_epoch"),
    _instant("COMMITTED (UTC)", "commit_timestamp_ms"),
    _left("METADATA", "metadata"),
]
_REBALANCES = [
    _instant("COMPLETED (UTC)", "completed_at_ms"),
    _left("GROUP", "group"),
    _left("TYPE", "group_type"),
    _left("EVENT", "event"),
    _right("GENERATION", "generation"),
    ("WHY", "left", _reasons),
    ("MEMBERS", "right", lambda row: str(len(row["members"]))),
    _members("JOINED", "joined"),
    _members("LEFT", "left"),
    _right("MOVED", "moved"),
    ("TOOK", "right", _duration_of_rebalance),
]
_OWNED = [_left("GROUP", "group"), ("TOPIC", "left", _topic), _right("PARTITION", "partition")]
COLUMNS: dict[str, list[Column]] = {
    "offsets": [*_OFFSETS, *_COMMITTED],
    "lag": [*_OFFSETS, _right("END", "end_offset"), _LAG, *_COMMITTED],
    "time_lag": [
        *_OFFSETS,
        _right("END", "end_offset"),
        _LAG,
        _duration("WAITING", "time_lag_ms"),
        _right("LOST", "records_lost"),
        *_COMMITTED,
    ],
    "verdicts": [
        *_OFFSETS[:3],
        _left("VERDICT", "verdict"),
        _left("BURROW", "status"),
        _right("LAG", "lag"),
        _duration("WAITING", "time_lag_ms"),
        _right("COMMITS", "commits"),
        _instant("LAST COMMIT (UTC)", "last_commit_ms"),
        _left("WHY", "why"),
    ],
    "status_history": [
        *_OFFSETS[:3],
        _left("STATUS", "status"),
        _instant("SINCE (UTC)", "since_ms"),
        _instant("UNTIL (UTC)", "until_ms"),
        _right("GREATEST LAG", "lag_max"),
    ],
    "lag_over_time": [_instant("TIME (UTC)", "timestamp_ms"), _left("GROUP", "group"), _right("LAG", "lag")],
    "time_lag_over_time": [
        _instant("TIME (UTC)", "timestamp_ms"),
        _left("GROUP", "group"),
        _instant("WAITING SINCE (UTC)", "waiting_since_ms"),
        _duration("WAITING", "time_lag_ms"),
        _duration("GREATEST", "time_lag_max_ms"),
    ],
    "commit_frequency": [
        *_OFFSETS[:3],
        _right("COMMITS", "commits"),
        _right("UNMOVED", "unmoved"),
        _right("REWINDS", "rewinds"),
        _duration("INTERVAL", "interval_p50_ms"),
        _duration("LONGEST", "interval_max_ms"),
        _instant("LAST COMMIT (UTC)", "last_commit_ms"),
    ],
    "rebalances": _REBALANCES,
    "rebalance_costs": [
        *_REBALANCES,
        _right("LAG BEFORE", "lag_before"),
        _right("AFTER", "lag_after"),
        _right("COST", "lag_cost"),
    ],
    "assignments": [
        *_OWNED,
        _left("ROLE", "role"),
        _instant("SINCE (UTC)", "since_ms"),
        _instant("UNTIL (UTC)", "until_ms"),
        _left("MEMBER", "member_id"),
    ],
    "partition_flapping": [
        *_OWNED,
        _right("STAYS", "stays"),
        _right("OWNERS", "owners"),
        _right("MOVES", "moves"),
        _right("RETURNS", "returns"),
        _duration("HELD", "held_p50_ms"),
        _duration("SHORTEST", "held_min_ms"),
    ],
    "time_without_owner": [
        *_OWNED,
        _instant("SINCE (UTC)", "since_ms"),
        _instant("UNTIL (UTC)", "until_ms"),
        _duration("LASTED", "unowned_ms"),
    ],
    "share_state": [
        *_OWNED,
        _right("START", "start_offset"),
        _right("END", "end_offset"),
        _right("LAG", "lag"),
        _right("DONE", "delivery_complete_count"),
        ("IN FLIGHT", "right", lambda row: str(sum(one["state"] != "acknowledged" for one in row["batches"]))),
        _instant("WRITTEN (UTC)", "written_at_ms"),
    ],
    "blocking_transactions": [
        _left("TOPIC", "topic"),
        _right("PARTITION", "partition"),
        _right("PRODUCER", "producer_id"),
        _right("EPOCH", "producer_epoch"),
        _right("START OFFSET", "start_offset"),
        _instant("LAST WRITTEN (UTC)", "last_timestamp_ms"),
        _duration("DURATION", "duration_ms"),
        _left("TRANSACTIONAL ID", "transactional_id"),
        _left("VERDICT", "verdict"),
        _right("BLOCKED", "blocked_records"),
    ],
    "members": [
        _left("GROUP", "group"),
        _left("TYPE", "group_type"),
        _left("CLIENT", "client_id"),
        _left("INSTANCE", "instance_id"),
        _left("HOST", "client_host"),
        _instant("SINCE (UTC)", "since_ms"),
        _instant("UNTIL (UTC)", "until_ms"),
        _left("MEMBER", "member_id"),
    ],
    "transactions": [
        _instant("BEGUN (UTC)", "start_ms"),
        _left("TRANSACTIONAL ID", "transactional_id"),
        _right("PRODUCER", "producer_id"),
        _right("EPOCH", "producer_epoch"),
        _left("OUTCOME", "outcome"),
        _left("BY", "ended_by"),
        _duration("TOOK", "duration_ms"),
        ("PARTITIONS", "left", _partitions),
    ],
    "open_transactions": [
        _left("TOPIC", "topic"),
        _right("PARTITION", "partition"),
        _left("TRANSACTIONAL ID", "transactional_id"),
        _right("PRODUCER", "producer_id"),
        _right("EPOCH", "producer_epoch"),
        _left("STATE", "state"),
        _instant("BEGUN (UTC)", "start_ms"),
        _duration("AGE", "age_ms"),
        _duration("TIMEOUT", "timeout_ms"),
        ("OVERDUE", "left", lambda row: "yes" if row["is_overdue"] else "no"),
    ],
    "transaction_statistics": [
        _left("TRANSACTIONAL ID", "transactional_id"),
        _right("TRANSACTIONS", "transactions"),
        _right("COMMITTED", "committed"),
        _right("ABORTED", "aborted"),
        _right("OPEN", "open"),
        _right("TIMED OUT", "timed_out"),
        _right("FENCED", "fenced"),
        ("ABORT RATE", "right", _share("abort_rate")),
        _duration("P50", "duration_p50_ms"),
        _duration("P95", "duration_p95_ms"),
        _duration("P99", "duration_p99_ms"),
        _duration("MAX", "duration_max_ms"),
    ],
}
