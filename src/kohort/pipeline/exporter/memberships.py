"""
Groups of all kinds, replayed from `__consumer_offsets` as it grows: members, owners of partitions, rebalances.

`tables.groups.group_history` replays the records of one group; this module keeps one history for each group, the totals of its
rebalances, and the owner of each partition.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kohort.model.limits import EXPORTED_GROUPS_MAX
from kohort.pipeline.decode.schemas import GROUP_METADATA
from kohort.pipeline.tables.burrow.verdicts import GAP_MS
from kohort.pipeline.tables.groups.group_history import (
    CLASSIC,
    CONSUMER,
    CURRENT,
    DELETED,
    EMPTIED,
    REBALANCED,
    RECORD_TYPES,
    REPLAYED,
    GroupHistory,
    Member,
    changed_at_ms,
    took_ms,
)

_UNKNOWN = "unknown"

Place: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class Rebalances:
    """
    Totals of the rebalances of one group since the start of the log.

    Attributes:
        durations_ms: of the rebalances whose duration the log tells; of classic groups at least the last phase.
        lag_cost: the growth of the group's lag over its rebalances, between two polls.
        last_ms: when the last one was complete, or began.
    """

    count: int = 0
    durations_ms: int = 0
    moved: int = 0
    lag_cost: int = 0
    last_ms: int | None = None
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, change: Mapping[str, Any]) -> None:
        """Add a row of table `rebalances`, if it is a rebalance."""
        if change["event"] != REBALANCED:
            return
        self.count += 1
        self.moved += change["moved"] or 0
        self.last_ms = changed_at_ms(change)
        self.durations_ms += took_ms(change) or 0
        self.causes.update(change["why"] or (_UNKNOWN,))


@dataclass(slots=True)
class GroupState:
    """
    One group.

    Attributes:
        owners: the member id of the owner of each partition, by topic name (classic) or topic id, and partition.
        stays: since when each partition has an owner, one member after the other, and when it lost its last one (None: not).
        protocol: the assignor of a classic group; empty if unknown.
        ended: the totals of the rebalances before the last one.
        last_change_at: the log offset of the last change.
    """

    log_partition: int
    history: GroupHistory
    group_type: str = CLASSIC
    protocol: str = ""
    protocol_type: str = ""
    owners: dict[Place, str] = field(default_factory=dict)
    stays: dict[Place, tuple[int, int | None]] = field(default_factory=dict)
    ended: Rebalances = field(default_factory=Rebalances)
    last_change_at: int = -1

    @property
    def rebalances(self) -> Rebalances:
        """Return the totals with the last rebalances, also if they are not complete."""
        totals = replace(self.ended, causes=Counter(self.ended.causes))
        for change in (self.history.overtaken, self.history.open_change):
            if change is not None:
                totals.add(change)
        return totals

    def own(self, owners: dict[Place, str], at_ms: int) -> None:
        """Set the owners, and forget stays that ended long ago, as `verdicts.owned_since` does."""
        stays = {place: stay for place, stay in self.stays.items() if stay[1] is None or at_ms - stay[1] <= GAP_MS}
        for place, (since_ms, until_ms) in stays.items():
            if until_ms is None and place not in owners:
                stays[place] = since_ms, at_ms
        self.stays = stays | {place: (stays.get(place, (at_ms, None))[0], None) for place in owners}
        self.owners = owners

    @property
    def members(self) -> dict[str, Member]:
        return self.history.members

    @property
    def state(self) -> str:
        """Return the state as far as the log tells: `Stable`, `Assigning` (a rebalance is not complete) or `Empty`."""
        if not self.members:
            return "Empty"
        return "Assigning" if self.history.is_rebalancing else "Stable"


@dataclass(slots=True)
class Memberships:
    """
    All groups with members, or that had some.

    Attributes:
        groups: by group id.
        rebalanced: groups with a rebalance since `take_rebalanced`.
        dropped: records of groups beyond `EXPORTED_GROUPS_MAX`.
    """

    groups: dict[str, GroupState] = field(default_factory=dict)
    dropped: int = 0
    rebalanced: set[str] = field(default_factory=set)

    def replay(self, row: Mapping[str, Any]) -> None:
        """Apply one row (`group_history.INPUT_COLUMNS`), in the order of the log."""
        is_classic = row["kind"] == GROUP_METADATA
        if not is_classic and row["record_type"] not in REPLAYED:
            return
        group = row["group"]
        known = self.groups.get(group)
        if known is None:
            if row["tombstone"]:
                return
            if len(self.groups) >= EXPORTED_GROUPS_MAX:
                self.dropped += 1
                return
            known = self.groups[group] = GroupState(row["log_partition"], GroupHistory(group, row["log_partition"]))
        known.group_type = CLASSIC if is_classic else RECORD_TYPES.get(row["record_type"], (CONSUMER, ""))[0]
        for change in known.history.replay(dict(row)):
            known.ended.add(change)
        self._own(known, row, is_classic=is_classic)
        self._settle(group, known, row["timestamp_ms"])

    def forget(self, log_partition: int) -> None:
        """Forget everything that was read from one partition of the log: it began again."""
        for group in [group for group, one in self.groups.items() if one.log_partition == log_partition]:
            del self.groups[group]

    def remove_deleted(self) -> None:
        """
        Forget deleted groups. A conversion deletes a group and creates it again in one batch, so this is not done between rows.
        """
        for group, known in list(self.groups.items()):
            last = known.history.open_change
            if last is not None and last["event"] == DELETED:
                del self.groups[group]

    def take_rebalanced(self) -> set[str]:
        """Return the groups with a rebalance since the last call."""
        found, self.rebalanced = self.rebalanced, set()
        return found

    def _settle(self, group: str, known: GroupState, at_ms: int) -> None:
        """Look at the last change: later records may complete it, but its event is known."""
        last = known.history.open_change
        if last is None or last["log_offset"] == known.last_change_at:
            return
        known.last_change_at = last["log_offset"]
        if last["event"] == REBALANCED:
            self.rebalanced.add(group)
        if last["event"] in (DELETED, EMPTIED):
            known.own({}, at_ms)

    def _own(self, known: GroupState, row: Mapping[str, Any], *, is_classic: bool) -> None:
        """Keep the owners of partitions."""
        if is_classic:
            known.protocol, known.protocol_type = row["protocol"] or "", row["protocol_type"] or ""
            owners = {
                (place["topic"], place["partition"]): member["member_id"]
                for member in (row["members"] or () if not row["tombstone"] else ())
                for place in member["assigned"] or ()
            }
            known.own(owners, row["timestamp_ms"])
        elif RECORD_TYPES.get(row["record_type"], ("", ""))[1] == CURRENT:
            member_id = row["member_id"]
            owners = {place: owner for place, owner in known.owners.items() if owner != member_id}
            value = None if row["tombstone"] else json.loads(row["value"])
            for topic in (value or {}).get("assignedPartitions") or ():
                owners.update({(topic["topicId"], each): member_id for each in topic["partitions"]})
            known.own(owners, row["timestamp_ms"])
