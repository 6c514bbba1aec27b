"""
The groups and transactional ids that new rows affect: their tables have to be made again.

All other rows of the previous version are carried over. The new rows and the previous tables are searched without Spark. A
group is affected if

- it has a new record, or a pending commit that a new marker may decide;
- a topic that it has ever committed or owned has new records, or records that were dated after the previous instant;
- its status may change with time: it has a lag and is not yet STOP, or a commit enters or leaves Burrow's window. STOP stays
  STOP, and a group without lag stays OK, until something happens;
- it owns partitions of a topic whose name was unknown.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kohort.pipeline.decode.schemas import BATCH, MARKER, OFFSET_COMMIT
from kohort.pipeline.tables.burrow.evaluator import EXPIRE_MS, Status
from kohort.pipeline.tables.offsets.offset_commits import PENDING

READ = (
    "offset_commits",
    "status",
    "assignments",
    "members",
    "share_state",
    "transactions",
    "blocking_transactions",
)
"""The tables of the previous version that the search needs."""

STOP = Status.STOP.name
VALUES_MAX = 10_000
"""The longest list of groups or ids in a filter."""


@dataclass(frozen=True, slots=True)
class Affected:
    """
    The parts of tables that are made again.

    Attributes:
        groups, transactional_ids: their rows are made again.
        topics: their logs may contain an open transaction.
    """

    groups: frozenset[str]
    transactional_ids: frozenset[str]
    topics: frozenset[str]

    def of(self, key: str) -> frozenset[str]:
        """Return the affected values of a key column."""
        return self.groups if key == "group" else self.transactional_ids


def find_affected(
    before: Path, new: Path | None, *, topics: Collection[str], was_ms: int, at_ms: int, share_max: float
) -> Affected | None:
    """
    Find what new rows affect.

    Args:
        before: the tables of the previous version, `READ` among them.
        new: the directory of the new rows, or None.
        topics: topics with new records, or with records dated between the two instants.
        was_ms, at_ms: the instants of the previous and the new tables.
        share_max: with a larger share of affected groups, all tables are made again.

    Returns:
        None if all tables have to be made again.
    """
    rows = _NewRows(new)
    commits, expire_ms = _table(before, "offset_commits"), EXPIRE_MS
    is_undecided = (ds.field("basis") != STOP) & (ds.field("lag") > 0)
    visible_ms = ds.field("visible_at_ms")
    is_entering_or_leaving = (visible_ms > was_ms) | (
        (visible_ms >= was_ms - expire_ms) & (visible_ms < at_ms - expire_ms)
    )
    is_named_late = ds.field("topic").is_null() & ds.field("topic_id").is_valid()
    # With the type: an empty list has none.
    topic_values = pa.array(sorted(topics), pa.string())
    groups = rows.values("group")
    if rows.has(MARKER):
        groups |= _values(commits, "group", ds.field("fate") == PENDING)
    groups |= _values(commits, "group", ds.field("topic").isin(topic_values) | is_entering_or_leaving)
    for name in ("share_state", "assignments"):
        groups |= _values(_table(before, name), "group", ds.field("topic").isin(topic_values))
    groups |= _values(_table(before, "status"), "group", is_undecided)
    for name in ("assignments", "share_state"):
        groups |= _values(_table(before, name), "group", is_named_late)
    known = groups | _values(commits, "group") | _values(_table(before, "members"), "group")
    if len(groups) > max(share_max * len(known), 0) or len(groups) > VALUES_MAX:
        return None
    transactions = _table(before, "transactions")
    is_open = ~ds.field("state").isin(["CompleteCommit", "CompleteAbort"])
    ids = rows.values("transactional_id") | _values(transactions, "transactional_id", is_open)
    if len(ids) > VALUES_MAX:
        return None
    held_back = _values(_table(before, "blocking_transactions"), "topic")
    return Affected(frozenset(groups), frozenset(ids), frozenset(topics) | held_back)


def latest_ms(parts: Iterable[Path], before: Mapping[str, int]) -> dict[str, int]:
    """Return the greatest timestamp of a batch of each topic, in some parts or before."""
    found = dict(before)
    for part in parts:
        kind = part / f"kind={BATCH}"
        table = ds.dataset(kind, format="parquet") if kind.is_dir() else None
        for batch in table.to_batches(columns=["log_topic", "timestamp_ms"]) if table is not None else ():
            latest_by_topic = pa.Table.from_batches([batch]).group_by("log_topic").aggregate([("timestamp_ms", "max")])
            for row in latest_by_topic.to_pylist():
                latest = row["timestamp_ms_max"]
                if latest is not None:
                    found[row["log_topic"]] = max(latest, found.get(row["log_topic"], latest))
    return found


def commits_in(parts: Iterable[Path]) -> Iterator[tuple[str, int, int | None, int | None]]:
    """Yield topic, partition, offset and time of the greatest commits of each partition in some parts, whatever their fate."""
    for part in parts:
        kind = part / f"kind={OFFSET_COMMIT}"
        table = ds.dataset(kind, format="parquet") if kind.is_dir() else None
        columns = ["topic", "partition", "offset", "commit_timestamp_ms"]
        for batch in table.to_batches(columns=columns) if table is not None else ():
            some = pa.Table.from_batches([batch])
            place = ["topic", "partition"]
            first = some.group_by([*place, "offset"]).aggregate([("commit_timestamp_ms", "min")])
            greatest = some.group_by(place).aggregate([("offset", "max")])
            for row in first.join(greatest, [*place, "offset"], [*place, "offset_max"], "left semi").to_pylist():
                yield row["topic"], row["partition"], row["offset"], row["commit_timestamp_ms_min"]


def first_ms(part: Path, topics: Collection[str]) -> dict[str, int]:
    """Return the smallest timestamp of a record of some topics in a part, where there is one."""
    kind = part / f"kind={BATCH}"
    if not topics or not kind.is_dir():
        return {}
    table = ds.dataset(kind, format="parquet")
    columns = {
        "topic": ds.field("log_topic"),
        "at_ms": pc.coalesce(ds.field("first_timestamp_ms"), ds.field("timestamp_ms")),
    }
    rows = table.to_table(columns=columns, filter=ds.field("log_topic").isin(list(topics))).filter(
        ds.field("at_ms") >= 0
    )
    first = rows.group_by("topic").aggregate([("at_ms", "min")])
    return {row["topic"]: row["at_ms_min"] for row in first.to_pylist()}


class _NewRows:
    """The rows of a part, a directory for each kind."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def has(self, kind: str) -> bool:
        return self._path is not None and (self._path / f"kind={kind}").is_dir()

    def values(self, column: str) -> set[str]:
        found: set[str] = set()
        for kind in self._path.iterdir() if self._path is not None else ():
            if kind.is_dir():
                found |= _values(ds.dataset(kind, format="parquet"), column)
        return found


def _table(version: Path, name: str) -> Any:
    return ds.dataset(version / name, format="parquet")


def _values(table: Any, column: str, condition: Any = None) -> set[str]:
    """Return the distinct values of a column, read batch by batch."""
    found: set[str] = set()
    for batch in table.to_batches(columns=[column], filter=condition):
        found.update(one for one in pc.unique(batch.column(column)).to_pylist() if one is not None)
    return found
