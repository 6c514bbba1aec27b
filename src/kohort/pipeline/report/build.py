"""The data of a report, from the tables of logs or from published tables."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.publish import rows
from kohort.pipeline.report.page import ReportData, Row
from kohort.pipeline.tables.lag import lag_over_time

RowsOf = Callable[[str], Sequence[Row]]

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


def thinned(series: pa.Table) -> list[Row]:
    """Return the rows of `lag_picture`, from the table `lag_over_time` of published tables."""
    with LocalSession() as session:
        return rows(lag_over_time.thinned(session.createDataFrame(series)), "lag_picture")
