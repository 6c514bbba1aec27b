"""Spark queries on the page: the next step, and what their checkpoints tell."""

from collections.abc import Mapping
from html import escape
from typing import Any

from kohort.pipeline.checkpoints.state import STOPPED
from kohort.pipeline.report.formatting import duration, instant, number
from kohort.pipeline.tables.burrow.verdicts import LOST, STOP

Row = Mapping[str, Any]


def query_step(query: Row, verdict: str) -> str:
    """Return the one next step for a query with a verdict that is not OK."""
    if verdict == LOST:
        return (
            "failOnDataLoss ends the query in its next batch: decide what the lost records mean before it starts again"
        )
    if verdict != STOP:
        return "give the query more cores, or fewer limits (maxOffsetsPerTrigger): its batches do not keep up"
    again = f"; a restart reads {number(query['replayed'])} records again" if query["replayed"] else ""
    if query["state"] == STOPPED:
        return f"start the query again: its checkpoint continues after batch {_number(query['batch'])}{again}"
    return f"look at batch {_number(query['open_batch'])} in Spark's UI, or at the log of the driver{again}"


def query_card(query: Row) -> str:
    """Return what the checkpoint of a query tells."""
    took = f", usually in {duration(query['duration_p50_ms'])}" if query["duration_p50_ms"] is not None else ""
    every = f" every {duration(query['interval_p50_ms'])}" if query["interval_p50_ms"] is not None else ""
    opened = f", batch {number(query['open_batch'])} since {instant(query['open_since_ms'])} UTC"
    facts = [
        ("Query", query["query_id"]),
        ("Checkpoint", query["checkpoint"]),
        ("State", f"{query['state']}{': ' + query['state_why'] if query['state_why'] else ''}"),
        ("Last finished batch", f"{_number(query['batch'])} at {instant(query['finished_at_ms'])} UTC{took}{every}"),
        ("In progress", opened.removeprefix(", ") if query["open_batch"] is not None else None),
        ("Read again by a restart", f"{number(query['replayed'])} records"),
        (
            "Retention reaches it in",
            duration(query["retention_left_ms"]) if query["retention_left_ms"] is not None else None,
        ),
        ("Other sources, not measured", ", ".join(query["other_sources"]) or None),
        ("Cannot be read", "; ".join(query["problems"]) or None),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts if value is not None)
    return f'<div class="card"><h3>Spark query</h3><dl>{rows}</dl></div>'


def _number(batch: int | None) -> str:
    return "none" if batch is None else number(batch)
