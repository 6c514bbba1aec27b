"""The table `spark_queries`: a row for each checkpoint, with what no consumer group has."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.pipeline.checkpoints.checkpoint import Checkpoint
from kohort.pipeline.checkpoints.state import GROUP_TYPE, state_of


def query_rows(
    checkpoints: Iterable[Checkpoint],
    time_lag: Iterable[Mapping[str, Any]],
    *,
    at_ms: int,
    left_ms: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """
    Return the rows of the table.

    Args:
        time_lag: rows of table `time_lag`.
        at_ms: its instant.
        left_ms: how long until retention reaches a query, where that is known and happens; see `checkpoints.retention`.
    """
    by_group: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in time_lag:
        by_group[row["group"]].append(row)
    return [_row(one, by_group[one.group], at_ms, (left_ms or {}).get(one.group)) for one in checkpoints]


def _row(one: Checkpoint, rows: Sequence[Mapping[str, Any]], at_ms: int, left_ms: int | None) -> dict[str, Any]:
    state = state_of(one, rows, at_ms)
    return {
        "group": one.group,
        "group_type": GROUP_TYPE,
        "checkpoint": one.path,
        "query_id": one.query_id,
        "state": state.name,
        "state_why": state.why or None,
        "batch": one.batch,
        "finished_at_ms": one.finished_ms,
        "open_batch": one.open_batch,
        "open_since_ms": one.open_since_ms,
        "replayed": one.replayed,
        "lag": _total(row["lag"] for row in rows),
        "time_lag_ms": max((row["time_lag_ms"] for row in rows if row["time_lag_ms"] is not None), default=None),
        "records_lost": _total(row["records_lost"] for row in rows),
        "retention_left_ms": left_ms,
        "retained": one.retained,
        "interval_p50_ms": one.interval_ms,
        "duration_p50_ms": one.duration_ms,
        "watermark_ms": one.watermark_ms,
        "topics": sorted({place.topic for place in one.position}),
        "other_sources": list(one.others),
        "settings": [f"{name}={value}" for name, value in sorted(one.settings.items())],
        "problems": list(one.problems),
    }


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
