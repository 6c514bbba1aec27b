"""
Counters and gauges of a group coordinator.

Counters belong to a partition and outlive its shard, so that their sum never falls while the node runs; they change only while
an operation of the shard runs. Gauges are counted when they are asked for.

Source: Kafka GroupCoordinatorMetrics, GroupCoordinatorMetricsShard.
"""

from collections import Counter
from collections.abc import Iterable

from kohort.group.groups import Group
from kohort.machine.counters import add_counters


class GroupCounters:
    """
    Attributes:
        offset_commits: accepted offsets, one a partition.
        offset_expirations: offsets deleted because their retention passed.
        offset_deletions: offsets deleted by OffsetDelete. Deletions of a group or topic do not count.
        completed_rebalances: how often a classic group became Stable.
        consumer_rebalances: how often a heartbeat, a join or a resolution of regular expressions raised the epoch of a
            consumer group. A member that leaves or is fenced does not count.
    """

    __slots__ = (
        "completed_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0
        self.completed_rebalances = 0
        self.consumer_rebalances = 0

    @classmethod
    def total(cls, each: Iterable["GroupCounters"]) -> "GroupCounters":
        return add_counters(cls(), each)


class GroupGauges:
    """
    Numbers of groups, members and offsets, in one shard or in several.

    Attributes:
        groups: by kind and state name.
        members: by kind.
        offsets: committed ones; pending offsets of transactions are not counted.
    """

    __slots__ = ("groups", "members", "offsets")

    def __init__(self) -> None:
        self.groups: Counter[tuple[str, str]] = Counter()
        self.members: Counter[str] = Counter()
        self.offsets = 0

    def add(self, groups: Iterable[Group]) -> None:
        """Add groups and their members."""
        for group in groups:
            self.groups[group.kind, group.state_name] += 1
            self.members[group.kind] += group.member_count
