"""
What a group coordinator counts, and what it is asked for when somebody looks.

Counters belong to a partition and outlive its shard, so that a sum over them never falls while the node runs; they are
changed under the shard's exclusivity only. Gauges are taken from the groups themselves.

Source: Kafka GroupCoordinatorMetrics, GroupCoordinatorMetricsShard.
"""

from collections.abc import Iterable

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.states import ClassicGroupState
from kohort.group.offsets.offsets import Offsets


class GroupCounters:
    """
    Attributes:
        offset_commits: offsets that were accepted, one a partition.
        offset_expirations: offsets that have lapsed.
        offset_deletions: offsets that clients have deleted (OffsetDelete); not those that went with their group or topic.
        completed_rebalances: how often a classic group became Stable.
    """

    __slots__ = ("completed_rebalances", "offset_commits", "offset_deletions", "offset_expirations")

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0
        self.completed_rebalances = 0

    @classmethod
    def total(cls, each: Iterable["GroupCounters"]) -> "GroupCounters":
        total = cls()
        for counters in list(each):
            for name in cls.__slots__:
                setattr(total, name, getattr(total, name) + getattr(counters, name))
        return total


class GroupGauges:
    """
    How many there are, in one shard or in several.

    Attributes:
        classic: classic groups by state.
        members: of classic groups.
        offsets: that are committed; pending ones of transactions are not counted.
    """

    __slots__ = ("classic", "members", "offsets")

    def __init__(self) -> None:
        self.classic = dict.fromkeys(ClassicGroupState, 0)
        self.members = 0
        self.offsets = 0

    def add(self, groups: Iterable[ClassicGroup], offsets: Offsets) -> "GroupGauges":
        """Count what is in a shard, too."""
        for group in groups:
            self.classic[group.state] += 1
            self.members += len(group.members)
        self.offsets += sum(map(len, offsets.by_group.values()))
        return self
