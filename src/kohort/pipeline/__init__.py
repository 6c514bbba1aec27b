"""
Spark over coordinator logs: decoder, tables, reports.

`from kohort.pipeline import offsets, rebalances, transactions` gives functions from frame to frame, see `library`. These
imports do not import Spark. `local_table` and `local_tables` need Arrow, and are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kohort.pipeline.library import (
    CommitOffsets,
    assignments,
    blocking_transactions,
    commit_frequency,
    commits,
    decode_kv,
    explain,
    lag,
    lag_history,
    members,
    offsets,
    offsets_behind,
    open_transactions,
    partition_flapping,
    read,
    rebalance_costs,
    rebalances,
    register,
    share_state,
    statuses,
    time_lag_history,
    time_without_owner,
    topic_names,
    transaction_statistics,
    transactions,
    typed,
)

if TYPE_CHECKING:
    from kohort.pipeline.jobs.local import local_table, local_tables
    from kohort.pipeline.spark_session import find_java, session

_MODULES = {
    "find_java": "spark_session",
    "local_table": "jobs.local",
    "local_tables": "jobs.local",
    "session": "spark_session",
}

__all__ = [
    "CommitOffsets",
    "assignments",
    "blocking_transactions",
    "commit_frequency",
    "commits",
    "decode_kv",
    "explain",
    "find_java",
    "lag",
    "lag_history",
    "local_table",
    "local_tables",
    "members",
    "offsets",
    "offsets_behind",
    "open_transactions",
    "partition_flapping",
    "read",
    "rebalance_costs",
    "rebalances",
    "register",
    "session",
    "share_state",
    "statuses",
    "time_lag_history",
    "time_without_owner",
    "topic_names",
    "transaction_statistics",
    "transactions",
    "typed",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{module}"), name)
