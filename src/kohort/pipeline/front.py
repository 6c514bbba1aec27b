"""
The tables of a source as methods of the frame that `read` returns: `read(spark, path).lag()`.

They are those of the commands: topics, log ends and the instant are found as there, and one read serves them all. The
functions of `library` compose the same tables from frames of one's own.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kohort.pipeline.jobs.tables import Tables

METHODS = {
    "assignments": "assignments",
    "blocking_transactions": "blocking_transactions",
    "commit_frequency": "commit_frequency",
    "commits": "offset_commits",
    "lag": "time_lag",
    "lag_history": "lag_over_time",
    "members": "members",
    "offsets": "offsets",
    "open_transactions": "open_transactions",
    "partition_flapping": "partition_flapping",
    "rebalance_costs": "rebalance_costs",
    "rebalances": "rebalances",
    "share_state": "share_state",
    "statuses": "status",
    "time_lag_history": "time_lag_over_time",
    "time_without_owner": "time_without_owner",
    "transaction_statistics": "transaction_statistics",
    "transactions": "transactions",
}
"""The methods, with the tables that they return."""


class SourceTables:
    """Methods that return the tables of a source. Frames that are derived from it have none."""

    _kohort_source: tuple[Any, str, Mapping[str, str]]

    @cached_property
    def _kohort_tables(self) -> "Tables":
        from kohort.pipeline.jobs.reading import Reading
        from kohort.pipeline.jobs.tables import Tables

        spark, path, options = self._kohort_source
        connection = {name: value for name, value in options.items() if name.startswith("kafka.")}
        return Tables(Reading(spark, path, connection=connection))


def with_tables(frame: "DataFrame", spark: Any, path: str, options: Mapping[str, str]) -> "DataFrame":
    """Give a frame the methods."""
    base = type(frame)
    frame.__class__ = type(base.__name__, (SourceTables, base), {"__module__": base.__module__})
    vars(frame)["_kohort_source"] = (spark, path, options)
    return frame


def _method(name: str, table: str) -> Callable[[SourceTables], Any]:
    def method(self: SourceTables) -> Any:
        return getattr(self._kohort_tables, table)

    method.__name__ = name
    method.__doc__ = f"Return the table `{table}` of the source, as `kohort pipeline` has it."
    return method


for _name, _table in METHODS.items():
    setattr(SourceTables, _name, _method(_name, _table))
