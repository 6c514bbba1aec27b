"""
Counters and gauges of a transaction coordinator.

Counters belong to a partition and outlive its shard, so that their sum never falls while the node runs. Gauges are counted when
they are asked for.

Source: Kafka TransactionCoordinator, TransactionMarkerChannelManager (LogAppendRetryQueueSize); the rest is Kohort's own.
"""

from collections.abc import Iterable

from kohort.machine.counters import add_counters
from kohort.machine.timeline import TimelineDict
from kohort.transaction.states import ONGOING
from kohort.transaction.transaction import Transaction


class TransactionCounters:
    """
    Attributes:
        committed, aborted: decided transactions. Aborts by the coordinator count as aborted, too.
        timed_out: transactions that the coordinator aborted after their timeout.
        fenced: transactions that the coordinator aborted because another producer began to use the transactional id.
        expired: transactional ids that were forgotten.
    """

    __slots__ = ("aborted", "committed", "expired", "fenced", "timed_out")

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        self.fenced = 0
        self.expired = 0

    @classmethod
    def total(cls, each: Iterable["TransactionCounters"]) -> "TransactionCounters":
        return add_counters(cls(), each)


class TransactionGauges:
    """
    Numbers of transactional ids and transactions, in one shard or in several.

    Attributes:
        ids: transactional ids.
        ongoing: ids with an ongoing transaction.
        ending: ids whose transaction is decided, and whose completion is not written yet.
        markers_waiting: markers that are not durable yet.
        markers_retrying: markers that a partition could not take, and that are sent again.
    """

    __slots__ = ("ending", "ids", "markers_retrying", "markers_waiting", "ongoing")

    def __init__(self) -> None:
        self.ids = 0
        self.ongoing = 0
        self.ending = 0
        self.markers_waiting = 0
        self.markers_retrying = 0

    def add_shard(
        self, transactions: TimelineDict[str, Transaction], unfinished: TimelineDict[str, None]
    ) -> "TransactionGauges":
        """Add the ids of a shard."""
        self.ids += len(transactions)
        ongoing = sum(transactions[transactional_id].state is ONGOING for transactional_id in unfinished)
        self.ongoing += ongoing
        self.ending += len(unfinished) - ongoing
        return self
