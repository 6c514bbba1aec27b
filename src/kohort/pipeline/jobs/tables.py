"""The tables of a reading, made on demand: each a frame."""

from functools import cached_property
from typing import Any

import pyarrow as pa

from kohort.pipeline.checkpoints.queries import query_rows
from kohort.pipeline.engines.dispatch import kept
from kohort.pipeline.jobs import queries
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.tables import topic_names
from kohort.pipeline.tables.burrow.evaluator import BURROWS, Rules
from kohort.pipeline.tables.burrow.status import burrow_history, burrow_status
from kohort.pipeline.tables.contract import arrow_schema
from kohort.pipeline.tables.groups import memberships, ownership, rebalances
from kohort.pipeline.tables.lag import lag_over_time, offset_lag, time_lag, time_lag_over_time
from kohort.pipeline.tables.offsets import commit_frequency, latest_offsets, uncommitted
from kohort.pipeline.tables.shares import share_state
from kohort.pipeline.tables.transactions import blocking_transactions, transactions


class Tables:
    """The tables of one source, as frames."""

    def __init__(self, reading: Reading, *, rules: Rules | None = None) -> None:
        """
        Args:
            rules: Burrow's settings for `status` and `status_history`.
        """
        self.reading = reading
        self.rules = rules or BURROWS

    @cached_property
    def offsets(self) -> Any:
        """Committed offsets of each group."""
        if self.reading.is_latest_only:
            return latest_offsets.offsets_of(self.reading.last_records)
        return kept(latest_offsets.latest_offsets(self.offset_commits))

    @cached_property
    def lag(self) -> Any:
        """Committed offsets and lag of each group, and the partitions that its members own without a committed offset."""
        return offset_lag.lag(self._standing, self.reading.end_offsets(_topics(self._standing)))

    @cached_property
    def lag_over_time(self) -> Any:
        """The lag of each group after every event in the logs."""
        return lag_over_time.lag_over_time(self.offset_commits, self._batches)

    @cached_property
    def lag_picture(self) -> Any:
        """`lag_over_time` with the number of points of a chart."""
        series = self.lag_over_time
        if self.reading.is_live:
            # The batches of a running cluster are read later than its commits: what was appended meanwhile is no lag.
            series = series.where(series["timestamp_ms"] <= self.reading.at_ms)
        return lag_over_time.thinned(series)

    @cached_property
    def time_lag(self) -> Any:
        """`lag` with how long the oldest unread record has waited."""
        found = self.reading.unread(self._standing)
        if found is not None:
            return time_lag.with_time_lag(self.lag, *found, at_ms=self.reading.at_ms)
        topics = _topics(self._standing)
        batches, begins = self.reading.batches(topics), self.reading.log_begins(topics)
        return time_lag.time_lag(self.lag, batches, at_ms=self.reading.at_ms, begins=begins)

    @cached_property
    def time_lag_over_time(self) -> Any:
        """The time lag of each group at the ends of intervals, as many as a chart has points."""
        batches, begins = self._batches, self.reading.log_begins(self._topics)
        return time_lag_over_time.time_lag_over_time(
            self.offset_commits, batches, at_ms=self.reading.at_ms, begins=begins
        )

    @cached_property
    def offset_commits(self) -> Any:
        """Every commit and tombstone with its fate."""
        return self.reading.offset_commits

    @cached_property
    def commit_frequency(self) -> Any:
        """The frequency of the commits of groups."""
        return commit_frequency.commit_frequency(self.offset_commits)

    @cached_property
    def status(self) -> Any:
        """The Burrow status of every partition."""
        return burrow_status(self.offset_commits, self._batches, at_ms=self.reading.at_ms, rules=self.rules)

    @cached_property
    def status_history(self) -> Any:
        """The history of Burrow statuses of every partition."""
        return burrow_history(self.offset_commits, self._batches, until_ms=self.reading.at_ms, rules=self.rules)

    @cached_property
    def members(self) -> Any:
        """Intervals of memberships."""
        return memberships.member_intervals(self.reading.member_records)

    @cached_property
    def assignments(self) -> Any:
        """Intervals of ownership."""
        owned = memberships.assignment_intervals(self.reading.member_records)
        return kept(topic_names.named(owned, self.reading.topic_names))

    @cached_property
    def partition_flapping(self) -> Any:
        """The changes of owners of partitions, counted."""
        return ownership.partition_flapping(self.assignments, self.members)

    @cached_property
    def time_without_owner(self) -> Any:
        """Intervals in which a partition had no owner."""
        return ownership.time_without_owner(self.assignments, at_ms=self.reading.at_ms)

    @cached_property
    def share_state(self) -> Any:
        """State and lag of share groups."""
        state, names = self.reading.share_state, self.reading.topic_names
        known = state.join(names, on="topic_id", how="inner")
        return share_state.share_lag(state, names, self.reading.end_offsets(_topics(known)))

    @cached_property
    def transactions(self) -> Any:
        """Every transaction with its outcome."""
        return self.reading.transactions

    @cached_property
    def open_transactions(self) -> Any:
        """Transactions that are not complete, one row per partition."""
        return transactions.open_transactions(self.reading.transactions, at_ms=self.reading.at_ms)

    @cached_property
    def blocking_transactions(self) -> Any:
        """Transactions that are open in the logs of topics. Reads all batch headers of all topics."""
        # The instant first: a broker may be writing, and the transactions have to be those of that instant or later.
        at_ms, found = self.reading.at_ms, self.reading.all_transactions
        is_whole = self.reading.has_all_transactions
        return blocking_transactions.blocking_transactions(
            self.reading.all_batches, found, at_ms=at_ms, is_whole=is_whole
        )

    @cached_property
    def transaction_statistics(self) -> Any:
        """Statistics per transactional id."""
        return transactions.transaction_statistics(self.reading.transactions)

    @cached_property
    def rebalances(self) -> Any:
        """Changes of groups and their causes."""
        return kept(rebalances.rebalances(self.reading.member_records))

    @cached_property
    def rebalance_costs(self) -> Any:
        """`rebalances` with the lag that they cost. Reads the logs of topics."""
        return rebalances.rebalance_costs(self.rebalances, self.lag_over_time)

    @cached_property
    def spark_queries(self) -> Any:
        """The facts that only the checkpoints of Spark queries have."""
        # A checkpoint tells what its query does now.
        checkpoints = self.reading.checkpoints if self.reading.as_of_ms is None else ()
        names = [one.group for one in checkpoints]
        lag = self.time_lag.where(self.time_lag["group"].isin(*names)).toArrow().to_pylist() if names else []
        left_ms = queries.retention_left_ms(self.reading, lag)
        rows = query_rows(checkpoints, lag, at_ms=self.reading.at_ms, left_ms=left_ms)
        return self.reading.frame(pa.Table.from_pylist(rows, arrow_schema("spark_queries")))

    @cached_property
    def damage(self) -> Any:
        """Damage in the coordinator's log."""
        return self.reading.damage()

    @cached_property
    def _standing(self) -> Any:
        """`offsets`, and a row without an offset for each partition that a member owns and its group has not committed."""
        known = uncommitted.with_uncommitted(self.offsets, self.assignments)
        if self.reading.checkpoints:
            added = pa.Table.from_pylist(list(queries.added_partitions(self.reading)), arrow_schema("offsets"))
            known = known.unionByName(self.reading.frame(added))
        return kept(known)

    @cached_property
    def _topics(self) -> list[str]:
        """The topics that groups have ever committed to."""
        return _topics(self.offset_commits)

    @property
    def _batches(self) -> Any:
        return self.reading.batches(self._topics)


def _topics(offsets: Any) -> list[str]:
    return sorted(row["topic"] for row in offsets.select("topic").distinct().collect())
