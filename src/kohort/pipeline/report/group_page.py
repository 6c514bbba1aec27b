"""The rows of one group, of each table, and what they say of the group."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import quote

from kohort.pipeline.tables.burrow.verdicts import BAD, SEVERITIES, worst

Row = dict[str, Any]


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
    def is_stuck(self) -> bool:
        return self.worst in BAD

    @property
    def why(self) -> str:
        """The reason of the worst verdict, or of none."""
        if not self.verdicts and not self.is_deleted:
            return "no committed offset"
        return next((row["why"] for row in self.verdicts if row["verdict"] == self.worst), "")

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
    def kind(self) -> str:
        default = "share" if self.share else "simple"
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
    """Return the groups of all tables, the worst first: by verdict, then by lag."""
    found: dict[str, GroupPage] = {}
    for table, rows in tables.items():
        for name, some in groupby(sorted(rows, key=lambda row: str(row["group"])), key=lambda row: str(row["group"])):
            getattr(found.setdefault(name, GroupPage(name)), table).extend(some)
    return sorted(found.values(), key=lambda page: (-_severity(page.worst), -(page.total_lag or 0), page.name))


def _severity(verdict: str) -> int:
    return SEVERITIES.index(verdict) if verdict else 0
