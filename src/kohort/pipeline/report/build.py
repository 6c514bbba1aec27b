"""The data of a report, from the tables of logs or from published tables."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from kohort.pipeline.engines.local.session import LocalSession
from kohort.pipeline.jobs.publish import rows
from kohort.pipeline.report.page import ReportData, Row
from kohort.pipeline.tables.lag import lag_over_time

RowsOf = Callable[[str], Sequence[Row]]

_OF_ALL = ("blocking_transactions", "open_transactions", "transaction_statistics")
"""Tables that belong to no group: a report on one group has none of them."""
_FULLER = {"lag": "time_lag", "rebalances": "rebalance_costs"}
"""Tables whose rows a report reads from another one, which has more columns."""


def report_data(rows_of: RowsOf, *, is_whole: bool, **facts: Any) -> ReportData:
    """
    Args:
        rows_of: returns the rows of a table by its name; `lag_picture` is `lag_over_time` with the points of a chart.
        is_whole: whether the report is on all groups.
        facts: the fields of `ReportData` that are no tables.
    """
    names = [one.name for one in fields(ReportData) if one.name not in facts]
    read: dict[str, Any] = {
        name: rows_of(_FULLER.get(name, name)) if is_whole or name not in _OF_ALL else () for name in names
    }
    return ReportData(**facts, **read)


def thinned(series: pa.Table) -> list[Row]:
    """Return the rows of `lag_picture`, from the table `lag_over_time` of published tables."""
    with LocalSession() as session:
        return rows(lag_over_time.thinned(session.createDataFrame(series)), "lag_picture")
