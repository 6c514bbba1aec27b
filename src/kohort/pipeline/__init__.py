"""
Spark over coordinator logs: decoder, tables, reports.

`from kohort.pipeline import offsets, rebalances, transactions` gives functions from frame to frame, see `library`. These
imports do not import Spark.
"""

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

__all__ = [
    "CommitOffsets",
    "assignments",
    "blocking_transactions",
    "commit_frequency",
    "commits",
    "decode_kv",
    "explain",
    "lag",
    "lag_history",
    "members",
    "offsets",
    "offsets_behind",
    "open_transactions",
    "partition_flapping",
    "read",
    "rebalance_costs",
    "rebalances",
    "register",
    "share_state",
    "statuses",
    "time_lag_history",
    "time_without_owner",
    "topic_names",
    "transaction_statistics",
    "transactions",
    "typed",
]
