"""The rows of one group, of each table, and what they say of the group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import quote

from kohort.pipeline.report.formatting import rate
from kohort.pipeline.tables.burrow.verdicts import worst
from kohort.pipeline.tables.groups.group_history import changed_at_ms

Row = dict[str, Any]

TREND_MS = 3_600_000
"""The time over which a trend is told; less if the log does not reach back so far."""
_TREND_MIN_MS = 1000


@dataclass(slots=True)
class GroupPage:
    """The rows of one group, of each table."""

    name: str
    lag: list[Row] = field(default_factory=list)
    picture: list[Row] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    rebalances: list[Row] = field(default_factory=list)
    stays: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)
    verdicts: list[Row] = field(default_factory=list)
    share: list[Row] = field(default_factory=list)
    queries: list[Row] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The id of the section. It is made of the name, so that a link to a group holds on the next page, too."""
        return f"group:{quote(self.name, safe='')}"

    @property
    def total_lag(self) -> int | None:
        """The lag of all partitions; None if none is known, as for a group that has never committed."""
        known = [row["lag"] for row in (*self.lag, *self.share) if row["lag"] is not None]
        return sum(known) if known else None

    @property
    def time_lag_ms(self) -> int | None:
        """The time lag of the worst partition; None if none is known."""
        return max((row["time_lag_ms"] for row in self.verdicts if row["time_lag_ms"] is not None), default=None)

    @property
    def partitions(self) -> int:
        """The number of partitions with a committed offset or share state."""
        return len(self.lag) + len(self.share)

    @property
    def topics(self) -> list[str]:
        """The topics that the group has committed to, or owns partitions of."""
        rows = (*self.lag, *self.share, *self.stays)
        return sorted({row["topic"] for row in rows if row["topic"] is not None})

    @property
    def worst(self) -> str:
        """The worst verdict of its partitions; empty if there is none."""
        return worst(row["verdict"] for row in self.verdicts)

    @property
    def leading(self) -> Row | None:
        """The partition that comes first, of which the page tells the reason."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def since_ms(self) -> int | None:
        """Since when the first partition is stuck; see `urgency.ranked`."""
        return None if self.leading is None else self.leading.get("since_ms")

    @property
    def emptied_ms(self) -> int | None:
        """Since when the group has had no member; None if it has one, or if the log does not tell."""
        empty_ms = None
        for row in reversed(self.rebalances):
            if row["members"]:
                break
            empty_ms = changed_at_ms(row)
        return empty_ms

    def lag_of(self, row: Mapping[str, Any]) -> Row:
        """Return the row of `lag` of a partition; empty if there is none, as of share groups."""
        return next((one for one in self.lag if _place(one) == _place(row)), {})

    def members_of(self, row: Mapping[str, Any]) -> list[Row]:
        """Return the members that have a partition now."""
        ids = {stay["member_id"] for stay in self.stays if stay["until_ms"] is None and _place(stay) == _place(row)}
        return [member for member in self.present if member["member_id"] in ids]

    def growth(self, at_ms: int) -> float | None:
        """Return by how many records a second the lag has grown in the last `TREND_MS`; None if that is unknown."""
        if not self.picture or self.total_lag is None:
            return None
        begun_ms: int = max(at_ms - TREND_MS, self.picture[0]["timestamp_ms"])
        if at_ms - begun_ms < _TREND_MIN_MS:
            return None
        before = next(row["lag"] for row in reversed(self.picture) if row["timestamp_ms"] <= begun_ms)
        grown: int = self.picture[-1]["lag"] - before
        return grown * 1000 / (at_ms - begun_ms)

    def trend(self, at_ms: int) -> str:
        """Return `growth` in words; empty if it is unknown."""
        grown = self.growth(at_ms)
        return "" if grown is None else rate(grown)

    @property
    def is_deleted(self) -> bool:
        """Whether the group was deleted and only its history is left."""
        last = self.rebalances[-1]["event"] if self.rebalances else None
        return last == "deleted" and not self.lag and not self.share

    @property
    def standing(self) -> str:
        """The verdict in one word; a dash if there is no commit."""
        return self.worst or ("deleted" if self.is_deleted else "-")

    @property
    def query(self) -> Row | None:
        """The row of `spark_queries`, if the group is a Spark query."""
        return self.queries[0] if self.queries else None

    @property
    def kind(self) -> str:
        default = self.query["group_type"] if self.query else "share" if self.share else "simple"
        return next((row["group_type"] for row in reversed(self.rebalances)), default)

    @property
    def present(self) -> list[Row]:
        """The members of now."""
        return [row for row in self.members if row["until_ms"] is None]

    @property
    def has_known_members(self) -> bool:
        """Whether the log has any record of members: groups that only commit offsets have none."""
        return bool(self.members or self.rebalances)

    @property
    def names(self) -> dict[str, str]:
        """The names of members, by member id: of static members the instance id, else the client id."""
        return {row["member_id"]: str(row["instance_id"] or row["client_id"]) for row in self.members}

    @property
    def finished_rebalances(self) -> int:
        return sum(row["event"] == "rebalanced" for row in self.rebalances)

    @property
    def began_ms(self) -> int | None:
        """The start of the time axis of all charts of the group."""
        series = (*self.picture[:1], *self.waits[:1])
        times = [row["timestamp_ms"] for row in series] + [row["since_ms"] for row in self.stays]
        return min(times, default=None)

    def ended_ms(self, at_ms: int) -> int:
        """Return the end of that time axis: `at_ms`, or the last event of a cluster that went on while it was read."""
        series = (*self.picture[-1:], *self.waits[-1:])
        times = [row["timestamp_ms"] for row in series] + [row["until_ms"] or 0 for row in self.stays]
        return max(at_ms, *times) if times else at_ms


def pages(**tables: Sequence[Row]) -> list[GroupPage]:
    """Return the groups of all tables, by name."""
    found: dict[str, GroupPage] = {}
    for table, rows in tables.items():
        for name, some in groupby(sorted(rows, key=lambda row: str(row["group"])), key=lambda row: str(row["group"])):
            getattr(found.setdefault(name, GroupPage(name)), table).extend(some)
    return sorted(found.values(), key=lambda page: page.name)


def _place(row: Mapping[str, Any]) -> tuple[str | None, int]:
    return row["topic"], row["partition"]
