"""
Counters and gauges of a group coordinator.

Counters belong to a partition and outlive its shard, so that their sum never falls while the node runs; they change only while
an operation of the shard runs. Events are counted by their sink, so only what is committed counts. Gauges are counted when they
are asked for.

Source: Kafka GroupCoordinatorMetrics, GroupCoordinatorMetricsShard.
"""

from collections import Counter
from collections.abc import Iterable

from kohort.group.events import AssignmentStored, EpochRaised, GroupEvent, HeartbeatRefused, MemberExpired
from kohort.group.groups import SHARE, Group
from kohort.model.errors import ErrorCode


class GroupCounters:
    """
    Attributes:
        offset_commits: accepted offsets, one a partition.
        offset_expirations: offsets deleted because their retention passed.
        offset_deletions: offsets deleted by OffsetDelete. Deletions of a group or topic do not count.
    """

    __slots__ = ("offset_commits", "offset_deletions", "offset_expirations")

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_expirations = 0
        self.offset_deletions = 0

    @classmethod
    def total(cls, each: Iterable["GroupCounters"]) -> "GroupCounters":
        total = cls()
        for counters in list(each):
            total.offset_commits += counters.offset_commits
            total.offset_expirations += counters.offset_expirations
            total.offset_deletions += counters.offset_deletions
        return total


class EventCounts:
    """
    The counts of some events of groups.

    Attributes:
        completed_rebalances: how often a classic group became Stable.
        consumer_rebalances: how often a heartbeat, a join or a resolution of regular expressions raised the epoch of a
            consumer group. A member that leaves or is fenced does not count.
        share_rebalances: how often a heartbeat raised the epoch of a share group.
        refused_heartbeats: by API and error.
        rebalance_timeouts: members that were removed because they did not take part in a rebalance in time.
    """

    def __init__(self) -> None:
        self.completed_rebalances = 0
        self.consumer_rebalances = 0
        self.share_rebalances = 0
        self.refused_heartbeats: Counter[tuple[str, ErrorCode]] = Counter(
            # So that a rate is known from the first one on.
            {
                (api, ErrorCode.UNKNOWN_MEMBER_ID): 0
                for api in ("ConsumerGroupHeartbeat", "Heartbeat", "ShareGroupHeartbeat")
            }
        )
        self.rebalance_timeouts = 0

    def count(self, event: GroupEvent) -> str | None:
        """The lines of refused heartbeats are limited for each error code."""
        if isinstance(event, HeartbeatRefused):
            self.refused_heartbeats[event.api, event.error] += 1
            return event.error.name
        if isinstance(event, AssignmentStored):
            self.completed_rebalances += 1
        elif isinstance(event, EpochRaised):
            if event.kind == SHARE:
                self.share_rebalances += event.member_id is not None
            else:
                self.consumer_rebalances += event.member_id is not None
        elif isinstance(event, MemberExpired):
            self.rebalance_timeouts += event.timeout in ("join", "sync", "rebalance")
        return None


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
