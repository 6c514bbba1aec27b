"""What became of commits inside transactions, and where groups stand."""

from typing import Any

from kohort.pipeline.tables.offsets.latest_offsets import latest_offsets
from kohort.pipeline.tables.offsets.offset_commits import INPUT_COLUMNS, offset_commits
from tests.pipeline import frames

T = 1_000_000


def commit(log_offset: int, offset: int | None, *, pid: int = -1, log: int = 0, **other: Any) -> frames.Row:
    row = {"kind": "offset_commit", "log_topic": "__consumer_offsets", "log_partition": log, "log_offset": log_offset}
    row |= {"timestamp_ms": T + log_offset, "producer_id": pid, "transactional": pid >= 0}
    row |= {"group": "g", "topic": "t", "partition": 0, "tombstone": offset is None, "offset": offset}
    if offset is not None:
        row |= {"leader_epoch": -1, "metadata": "", "commit_timestamp_ms": T + log_offset}
    return row | other


def marker(log_offset: int, pid: int, control: str, *, log: int = 0) -> frames.Row:
    row = {"kind": "marker", "log_topic": "__consumer_offsets", "log_partition": log, "log_offset": log_offset}
    return row | {"timestamp_ms": T + log_offset, "producer_id": pid, "transactional": True, "control": control}


def test_every_transaction_is_judged_by_its_own_marker(engine: Any) -> None:
    rows = [
        commit(0, 10),
        commit(1, 11, pid=1),
        commit(2, 12, pid=2),
        marker(3, 1, "COMMIT"),
        commit(4, 14, pid=1),  # the same producer's next transaction
        marker(5, 2, "ABORT"),
        commit(6, 16, pid=2),
        marker(7, 1, "ABORT"),
        commit(8, None),
        commit(9, 19, pid=3),  # no marker in this log partition ...
        marker(9, 3, "COMMIT", log=1),  # ... one in another says nothing of it
        commit(3, 23, pid=2, log=1),
        marker(10, 2, "COMMIT"),
    ]
    got = frames.tuples(
        offset_commits(frames.records(engine, INPUT_COLUMNS, rows)),
        "log_partition",
        "log_offset",
        "fate",
        "visible_at_ms",
    )
    assert got == [
        (0, 0, "plain", T),
        (0, 1, "committed", T + 3),
        (0, 2, "aborted", None),
        (0, 4, "aborted", None),
        (0, 6, "committed", T + 10),
        (0, 8, "plain", T + 8),
        (0, 9, "pending", None),
        (1, 3, "pending", None),
    ]


def committed(log_offset: int, pid: int) -> frames.Row:
    return marker(log_offset, pid, "COMMIT")


def aborted(log_offset: int, pid: int) -> frames.Row:
    return marker(log_offset, pid, "ABORT")


# fmt: off
LATEST = {  # rows of one group and partition, and the offset that is left
    "the last of many":                 ([commit(0, 5), commit(1, 7), commit(2, 6)],                       6),
    "rows in any order":                ([commit(2, 6), commit(0, 5), commit(1, 7)],                       6),
    "a tombstone":                      ([commit(0, 5), commit(1, None)],                                  None),
    "a commit after a tombstone":       ([commit(0, None), commit(1, 5)],                                  5),
    "a committed transaction":          ([commit(0, 5), commit(1, 8, pid=1), committed(2, 1)],             8),
    "an aborted transaction":           ([commit(0, 5), commit(1, 8, pid=1), aborted(2, 1)],               5),
    "a pending transaction":            ([commit(0, 5), commit(1, 8, pid=1)],                              5),
    "only a pending transaction":       ([commit(1, 8, pid=1)],                                            None),
    "a plain commit before the marker": ([commit(0, 8, pid=1), commit(1, 5), committed(2, 1)],             5),
    "a tombstone before the marker":    ([commit(0, 8, pid=1), commit(1, None), committed(2, 1)],          None),
    "the later of two commits first":   ([commit(0, 8, pid=1), commit(1, 9, pid=2), committed(2, 2), committed(3, 1)], 9),
    "the same commit twice":            ([commit(0, 5), commit(0, 5)],                                     5),
}
# fmt: on


def test_the_latest_offset_that_counts(engine: Any) -> None:
    rows = [
        {**row, "group": name} if row["kind"] == "offset_commit" else row for name in LATEST for row in spread(name)
    ]
    commits = offset_commits(frames.records(engine, INPUT_COLUMNS, rows))
    got = {row["group"]: row["offset"] for row in frames.rows_of(latest_offsets(commits), "group")}
    assert got == {name: offset for name, (_, offset) in LATEST.items() if offset is not None}


def spread(name: str) -> list[frames.Row]:
    """Each case in a log partition of its own, so that one frame holds them all."""
    return [{**row, "log_partition": list(LATEST).index(name)} for row in LATEST[name][0]]


def test_all_fields_are_those_of_the_last_commit(engine: Any) -> None:
    rows = [
        commit(0, 5, metadata="old", leader_epoch=1),
        commit(1, 7, metadata="new \x00 \N{SNOWMAN}", leader_epoch=2, commit_timestamp_ms=77),
        commit(2, 9, topic="other", partition=4, metadata=None),
        commit(3, 1, group="another"),
    ]
    commits = offset_commits(frames.records(engine, INPUT_COLUMNS, rows))
    names = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_timestamp_ms")
    assert latest_offsets(commits).columns == list(names)
    assert [tuple(row.values()) for row in frames.rows_of(latest_offsets(commits), "group", "topic")] == [
        ("another", "t", 0, 1, -1, "", T + 3),
        ("g", "other", 4, 9, -1, None, T + 2),
        ("g", "t", 0, 7, 2, "new \x00 \N{SNOWMAN}", 77),
    ]
