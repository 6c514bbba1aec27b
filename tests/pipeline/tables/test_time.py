"""Any instant of the past, how long records have waited, how often groups commit, and what Burrow would have said."""

from typing import Any

import pyarrow as pa

from kohort.pipeline.tables.burrow.status import burrow_history, burrow_status
from kohort.pipeline.tables.incarnations import BATCH_COLUMNS
from kohort.pipeline.tables.lag.offset_lag import ends_as_of
from kohort.pipeline.tables.offsets import commit_frequency, latest_offsets
from kohort.pipeline.tables.offsets.offset_commits import commits_as_of
from tests.pipeline import frames

COMMITS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("tombstone", pa.bool_()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp_ms", pa.int64()),
        ("fate", pa.string()),
        ("visible_at_ms", pa.int64()),
    ]
)


def commit(log_offset: int, at_ms: int | None, offset: int | None, **other: Any) -> frames.Row:
    row = {"log_partition": 0, "log_offset": log_offset, "group": "g", "topic": "t", "partition": 0, "fate": "plain"}
    return row | {"tombstone": offset is None, "offset": offset, "visible_at_ms": at_ms} | other


def batch(base: int, following: int, at_ms: int, *, control: bool = False, partition: int = 0) -> frames.Row:
    row = {"log_topic": "t", "log_partition": partition, "log_offset": base, "next_offset": following}
    return row | {"timestamp_ms": at_ms, "is_control": control}


def batches(engine: Any, rows: list[frames.Row]) -> Any:
    return frames.records(engine, BATCH_COLUMNS, rows)


# fmt: off
INSTANTS = [
    (5,   []),
    (10,  [3]),
    (24,  [3]),
    (25,  [7]),     # the transaction that committed 7 at 20 completed at 25
    (35,  []),      # deleted at 30
    (99,  [9]),
]
# fmt: on


def test_offsets_as_of_an_instant(engine: Any) -> None:
    history = [
        commit(0, 10, 3),
        commit(1, 25, 7, fate="committed"),
        commit(2, None, 8, fate="aborted"),
        commit(3, 30, None),
        commit(4, 40, 9),
    ]
    commits = frames.of_schema(engine, COMMITS, history)
    for at_ms, offsets in INSTANTS:
        latest = latest_offsets.latest_offsets(commits_as_of(commits, at_ms=at_ms))
        assert [offset for (offset,) in frames.tuples(latest, "offset")] == offsets, at_ms


def test_the_end_of_a_log_as_of_an_instant(engine: Any) -> None:
    log = batches(engine, [batch(0, 10, 100), batch(10, 15, 200), batch(0, 4, 150, partition=1)])
    ends = [frames.tuples(ends_as_of(log, at_ms=at), "partition", "end_offset") for at in (99, 100, 200)]
    assert ends == [[], [(0, 10)], [(0, 15), (1, 4)]]


def test_how_often_a_group_commits(engine: Any) -> None:
    told = [(10, 3), (20, 5), (40, 5), (45, 4), (50, 9)]
    rows = [commit(index, at_ms, offset) for index, (at_ms, offset) in enumerate(told)]
    rows += [commit(5, None, 9, fate="aborted"), commit(6, 60, None), commit(7, 10, 1, group="once")]
    frame = commit_frequency.commit_frequency(frames.of_schema(engine, COMMITS, rows))
    assert [tuple(row.values()) for row in frames.rows_of(frame, "group")] == [
        ("g", "t", 0, 5, 10, 50, 5, 20, 1, 1),
        ("once", "t", 0, 1, 10, 10, None, None, 0, 0),
    ]


def test_between_commits_no_time_is_negative(engine: Any) -> None:
    """Of two interleaved transactions the one that committed first completed last; intervals are those of time."""
    rows = [commit(0, 30, 3, fate="committed"), commit(1, 20, 5, fate="committed"), commit(2, 70, 6)]
    frame = commit_frequency.commit_frequency(frames.of_schema(engine, COMMITS, rows))
    names = ("commits", "first_commit_ms", "last_commit_ms", "interval_p50_ms", "interval_max_ms", "unmoved", "rewinds")
    assert frames.tuples(frame, *names) == [(3, 20, 70, 10, 40, 0, 0)]


def test_burrow_of_the_past(engine: Any) -> None:
    second = 1000
    log = batches(engine, [batch(10 * at, 10 * at + 10, at * second) for at in range(200)])
    rows: list[frames.Row] = []
    for at in range(0, 60, 5):
        # One keeps up, one falls behind, one stands still, one stops at 30 s, one is deleted.
        told = {"ahead": 10 * at + 10, "behind": 5 * at, "still": 7, "deleted": at}
        rows += [
            commit(len(rows) + n, at * second, offset, group=group) for n, (group, offset) in enumerate(told.items())
        ]
        if at <= 30:
            rows.append(commit(len(rows), at * second, at, group="stopped"))
    rows.append(commit(len(rows), 59 * second, None, group="deleted"))
    rows.append(commit(len(rows) + 1, None, 9999, group="behind", fate="aborted"))
    commits = frames.of_schema(engine, COMMITS, rows)

    def statuses(at: int, *columns: str) -> Any:
        past = log.where(log["timestamp_ms"] <= at * second)
        return frames.tuples(burrow_status(commits, past, at_ms=at * second), "group", "status", *columns)

    at_60 = statuses(60, "lag", "commits")
    assert at_60 == [
        ("ahead", "OK", 50, 10),
        ("behind", "WARN", 335, 10),
        ("still", "STALL", 603, 10),
        ("stopped", "WARN", 580, 7),
    ]
    # Silence alone is no STOP: Burrow's second rule also wants that no stored end is one that the group had reached. The group
    # stands at 30, and the end asked for at 0 s was 10. Ten ends are stored, so it is among them up to before 100 s.
    for at, stopped in ((70, "WARN"), (99, "WARN"), (100, "STOP")):
        found = dict(statuses(at))
        assert found == {"ahead": "OK", "behind": "WARN", "still": "STALL", "stopped": stopped}, at


def test_a_clock_that_is_ahead_leaves_the_lag_as_it_is(engine: Any) -> None:
    """The batch is in the log at the instant of the tables, whatever its timestamp says. A moment later it would be STOP."""
    log = batches(engine, [batch(0, 10, 1_000), batch(10, 15, 9_000_000)])
    commits = frames.of_schema(engine, COMMITS, [commit(0, 2_000, 5), commit(1, 3_000, 8)])
    assert frames.tuples(burrow_status(commits, log, at_ms=4_000), "status", "lag") == [("OK", 7)]
    names = ("since_ms", "until_ms", "status", "lag_max")
    assert frames.tuples(burrow_history(commits, log, until_ms=4_000), *names)[-1] == (3_000, None, "OK", 7)
