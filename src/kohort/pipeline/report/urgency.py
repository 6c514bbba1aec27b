"""
The order of the page: since when a partition of a group is stuck, and what comes first.

What has records behind it comes before what has none, and then the longest wait before the graver verdict: a group that has
lost records and has read the others needs nobody in the night, one that has waited for ten hours does.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.pipeline.report.group_page import GroupPage
from kohort.pipeline.tables.burrow.verdicts import BAD, LOST, OK, SEVERITIES, STOP, UNKNOWN, owned_since

Row = dict[str, Any]


def ranked(pages: Iterable[GroupPage], at_ms: int) -> list[GroupPage]:
    """
    Return groups in the order of the page, the rows of their verdicts in that order, too.

    The rows get two columns: `since_ms`, since when the partition is stuck (None for OK, or if the log does not tell), and
    `is_behind`, whether a record waits.

    Args:
        at_ms: the instant of the tables.
    """
    listed = list(pages)
    for page in listed:
        lost = {(row["topic"], row["partition"]): row.get("records_lost") or 0 for row in page.lag}
        for row in page.verdicts:
            row["is_behind"] = _is_behind(row, lost.get((row["topic"], row["partition"]), 0))
            row["since_ms"] = None if row["verdict"] == OK else _since_ms(page, row, at_ms)
        page.verdicts.sort(key=lambda row: urgency(row, at_ms))
    return sorted(listed, key=lambda page: _of_page(page, at_ms))


def urgency(row: Mapping[str, Any], at_ms: int) -> tuple[Any, ...]:
    """Return the sort key of a row of `ranked`."""
    severity = SEVERITIES.index(row["verdict"])
    is_bad = row["verdict"] in BAD
    stuck_ms = 0 if row["since_ms"] is None else at_ms - row["since_ms"]
    waits_ms = (row["time_lag_ms"] or stuck_ms) if is_bad else 0
    name = (row["group"], row["topic"], row["partition"])
    return not is_bad, is_bad and not row["is_behind"], -waits_ms, -severity, -(row["lag"] or 0), name


def _of_page(page: GroupPage, at_ms: int) -> tuple[Any, ...]:
    """Return the sort key of a group: that of its first row, with the lag of all rows; groups without a verdict are last."""
    if page.leading is None:
        return True, True, 0, 1, -(page.total_lag or 0), (page.name,)
    *before, _, _ = urgency(page.leading, at_ms)
    return *before, -(page.total_lag or 0), (page.name,)


def _is_behind(row: Mapping[str, Any], lost: int) -> bool:
    """Tell whether a record waits; an unknown lag is one."""
    lag: int | None = row["lag"]
    return lag is None or lag > (lost if row["verdict"] == LOST else 0)


def _since_ms(page: GroupPage, row: Mapping[str, Any], at_ms: int) -> int | None:
    """
    Return since when a partition is stuck: since the group stopped to read it, or the oldest unread record was produced,
    whichever was later. Of members that go on committing the log does not tell when they stopped: it is the time of the record.
    """
    committed_ms: int | None = row["last_commit_ms"]
    if page.emptied_ms is not None:
        stopped_ms: int | None = page.emptied_ms
    elif committed_ms is None:
        stopped_ms = owned_since(page.stays).get((row["group"], row["topic"], row["partition"]))
    else:
        goes_on = row["verdict"] not in (STOP, UNKNOWN) and row["commits"] != 1
        stopped_ms = None if goes_on else committed_ms
    produced_ms = at_ms - row["time_lag_ms"] if row["time_lag_ms"] else None
    known = [one for one in (stopped_ms, produced_ms) if one is not None]
    return max(known) if known else committed_ms
