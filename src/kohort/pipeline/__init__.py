"""
Spark over coordinator logs: decode, tables, reports.

`from kohort.pipeline import offsets, rebalances, transactions` gives functions from frame to frame, see `library`. Importing
them imports no Spark.
"""

from kohort.pipeline.library import (
    assignments,
    commits,
    lag,
    members,
    offsets,
    open_transactions,
    rebalances,
    transactions,
)

__all__ = [
    "assignments",
    "commits",
    "lag",
    "members",
    "offsets",
    "open_transactions",
    "rebalances",
    "transactions",
]
