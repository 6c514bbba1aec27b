"""The data of a report, from the tables of logs or from published tables."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.pipeline.report.page import ReportData, Row

RowsOf = Callable[[str], Sequence[Row]]

POINTS = 300
"""Points of a chart."""
_OF_GROUPS = (
    "rebalances",
    "status",
    "members",
    "assignments",
    "partition_flapping",
    "time_without_owner",
    "share_state",
    "time_lag_over_time",
)
_OF_ALL = ("blocking_transactions", "open_transactions", "transaction_statistics")
"""Tables that belong to no group: a report on one group has none of them."""


def report_data(
    rows_of: RowsOf, *, directory: str, made_at_ms: int, at_ms: int, log_bytes: int, is_whole: bool
) -> ReportData:
    """
    Args:
        rows_of: returns the rows of a table by its name; `lag_picture` is `lag_over_time` with the points of a chart.
        log_bytes: the size of the coordinator's log; 0 if it is unknown.
        is_whole: whether the report is on all groups.
    """
    # Log end offsets are read right after the commits: in a running cluster each second between them is more lag.
    lag = rows_of("time_lag")
    given = {name: rows_of("rebalance_costs" if name == "rebalances" else name) for name in _OF_GROUPS}
    given |= {name: rows_of(name) if is_whole else () for name in _OF_ALL}
    return ReportData(
        directory=directory,
        made_at_ms=made_at_ms,
        log_bytes=log_bytes,
        at_ms=at_ms,
        lag=lag,
        lag_picture=rows_of("lag_picture"),
        damage=rows_of("damage"),
        **given,
    )


def thinned(series: pa.Table, *, points: int = POINTS) -> list[dict[str, Any]]:
    """
    Reduce table `lag_over_time` to at most `points` equal intervals per group, as `tables.lag.lag_over_time.thinned` does.

    Columns: `group`, `timestamp_ms`, `lag` (the last of the interval), `lag_max`.
    """
    spans = series.group_by("group").aggregate([("timestamp_ms", "min"), ("timestamp_ms", "max")])
    known = series.join(spans, "group").sort_by([("group", "ascending"), ("timestamp_ms", "ascending")])
    width = pc.add(pc.subtract(known["timestamp_ms_max"], known["timestamp_ms_min"]), 1)
    since = pc.multiply(pc.subtract(known["timestamp_ms"], known["timestamp_ms_min"]), points)
    known = known.append_column("interval", pc.divide(since, width))
    found = known.group_by(["group", "interval"], use_threads=False).aggregate(
        [("timestamp_ms", "last"), ("lag", "last"), ("lag", "max")]
    )
    named = {"group": "group", "timestamp_ms": "timestamp_ms_last", "lag": "lag_last", "lag_max": "lag_max"}
    chosen = found.select(list(named.values())).rename_columns(list(named))
    rows: list[dict[str, Any]] = chosen.sort_by([("group", "ascending"), ("timestamp_ms", "ascending")]).to_pylist()
    return rows
