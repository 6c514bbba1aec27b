"""How far groups are behind: now, and at every moment."""

from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline.tables.incarnations import BATCH_COLUMNS
from kohort.pipeline.tables.lag import lag_over_time
from kohort.pipeline.tables.lag.offset_lag import INPUT_COLUMNS, end_offsets, lag
from tests.pipeline import frames

LATEST = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp_ms", pa.int64()),
    ]
)
COMMITS = pa.schema(
    [
        ("log_offset", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("tombstone", pa.bool_()),
        ("offset", pa.int64()),
        ("fate", pa.string()),
        ("visible_at_ms", pa.int64()),
    ]
)


def test_the_end_of_a_log_is_that_of_its_newest_segment(engine: Any) -> None:
    rows = [
        {"log_topic": "t", "log_partition": 0, "next_offset": 40},
        {"log_topic": "t", "log_partition": 0, "next_offset": 55},  # an empty segment's name
        {"log_topic": "t", "log_partition": 1, "next_offset": 0},
    ]
    ends = end_offsets(frames.records(engine, INPUT_COLUMNS, rows))
    assert frames.tuples(ends, "topic", "partition", "end_offset") == [("t", 0, 55), ("t", 1, 0)]


# fmt: off
LAG = [  # partition  offset  end   lag
    (0,               3,      10,   7),
    (1,               10,     10,   0),
    (2,               12,     10,   0),     # the broker lost its tail
    (3,               3,      None, None),  # the topic's log is not here
]
# fmt: on


def test_lag_is_what_lies_between_offset_and_end(engine: Any) -> None:
    latest = [{"group": "g", "topic": "t", "partition": p, "offset": offset} for p, offset, _, _ in LAG]
    ends = [{"topic": "t", "partition": p, "end_offset": end} for p, _, end, _ in LAG if end is not None]
    ends_schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("end_offset", pa.int64())])
    frame = lag(frames.of_schema(engine, LATEST, latest), frames.of_schema(engine, ends_schema, ends))
    assert frames.tuples(frame, "partition", "offset", "end_offset", "lag") == LAG
    beyond = [(p, None if end is None else end < offset) for p, offset, end, _ in LAG]
    assert frames.tuples(frame, "partition", "is_beyond_end") == beyond
    assert {is_beyond for _, is_beyond in beyond} == {None, False, True}


def commit(at_ms: int, log_offset: int, offset: int | None, **other: Any) -> frames.Row:
    row = {
        "log_offset": log_offset,
        "group": "g",
        "topic": "t",
        "partition": 0,
        "fate": "plain",
        "visible_at_ms": at_ms,
    }
    return row | {"tombstone": offset is None, "offset": offset} | other


def produced(at_ms: int, next_offset: int, *, topic: str = "t", partition: int = 0) -> frames.Row:
    return {"log_topic": topic, "log_partition": partition, "timestamp_ms": at_ms, "next_offset": next_offset}


def series(engine: Any, commits: list[frames.Row], batches: list[frames.Row], **settings: int) -> Any:
    batches_frame = frames.records(engine, BATCH_COLUMNS, batches)
    return lag_over_time.lag_over_time(frames.of_schema(engine, COMMITS, commits), batches_frame, **settings)


def test_lag_steps_up_when_produced_and_down_when_committed(engine: Any) -> None:
    commits = [
        commit(25, 0, 4),
        commit(40, 1, 12),
        commit(60, 2, None),
        commit(30, 3, 7, group="aborted", fate="aborted", visible_at_ms=None),
        commit(30, 4, 7, group="pending", fate="pending", visible_at_ms=None),
        commit(30, 5, 7, group="elsewhere", topic="no log here"),
    ]
    batches = [produced(10, 5), produced(20, 10), produced(30, 12), produced(50, 20), produced(70, 30)]
    assert frames.tuples(series(engine, commits, batches), "group", "timestamp_ms", "lag") == [
        ("g", 25, 6),  # nothing is told before the first commit
        ("g", 30, 8),
        ("g", 40, 0),
        ("g", 50, 8),
        ("g", 60, 0),  # the offset was deleted
        ("g", 70, 0),
    ]


def test_the_lag_of_a_group_is_the_sum_over_its_partitions(engine: Any) -> None:
    commits = [commit(10, 0, 0), commit(20, 1, 0, partition=1), commit(30, 2, 5), commit(30, 3, 3, partition=1)]
    batches = [produced(5, 5), produced(5, 3, partition=1), produced(5, 9, topic="other")]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(10, 5), (20, 8), (30, 0)]


def test_a_transaction_counts_when_it_completes(engine: Any) -> None:
    commits = [commit(10, 0, 0), commit(40, 1, 5, fate="committed")]
    batches = [produced(5, 5), produced(30, 7)]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(10, 5), (30, 7), (40, 2)]


def test_a_group_stands_where_the_log_says_though_an_older_transaction_completes_later(engine: Any) -> None:
    """As `latest_offsets`: a plain commit behind a pending one keeps its place when that one's transaction is committed."""
    commits = [commit(40, 0, 3, fate="committed"), commit(20, 1, 8), commit(50, 2, 9)]
    batches = [produced(10, 10)]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(20, 2), (40, 2), (50, 1)]


def test_a_deleted_offset_does_not_come_back_with_an_older_transaction(engine: Any) -> None:
    commits = [commit(10, 0, 2), commit(40, 1, 3, fate="committed"), commit(20, 2, None)]
    batches = [produced(5, 10)]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(10, 8), (20, 0), (40, 0)]


def test_a_clock_that_went_back_moves_no_group_back(engine: Any) -> None:
    """The coordinator moved to a broker whose clock is late."""
    commits = [commit(100, 0, 4), commit(60, 1, 9)]
    batches = [produced(5, 10)]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(60, 1), (100, 1)]


def test_a_clock_that_goes_back_makes_no_negative_lag(engine: Any) -> None:
    commits = [commit(10, 0, 8)]
    batches = [produced(50, 9), produced(-1, 4), produced(20, 12), produced(5, 3)]
    assert frames.tuples(series(engine, commits, batches), "timestamp_ms", "lag") == [(10, 0), (20, 4), (50, 4)]


@pytest.mark.parametrize("points", [1, 7])
def test_a_series_of_many_batches_is_exact_where_groups_commit(engine: Any, points: int) -> None:
    """Three groups and 200 batches: a row for each group and batch would be 600."""
    batches = [produced(at, at) for at in range(1, 201)]
    batches += [produced(at, at, partition=1) for at in (50, 60)]
    commits = [commit(50 * at, at, 40 * at, group=group) for at in (1, 2, 3) for group in ("a", "b")]
    commits += [commit(120, 9, 30, group="c"), commit(55, 10, 10, group="a", partition=1)]
    everything = series(engine, commits, batches)
    thin = series(engine, commits, batches, points=points)
    exact = set(frames.tuples(everything, "group", "timestamp_ms", "lag"))
    found = frames.tuples(thin, "group", "timestamp_ms", "lag")
    assert len(exact) > 380
    assert len(found) <= 3 * (points + 2) + 2 * len(commits)
    # Of a group with several partitions, the end of another partition may be an interval late.
    at_commits = {(one["group"], one["visible_at_ms"]) for one in commits if one["group"] != "a"}
    assert {one for one in exact if one[:2] in at_commits} <= set(found)
    assert {one[:2] for one in found} <= {one[:2] for one in exact}
    last = {group: (at_ms, lag) for group, at_ms, lag in found}
    assert last == {
        group: (at_ms, lag) for group, at_ms, lag in frames.tuples(everything, "group", "timestamp_ms", "lag")
    }


def test_thinning_keeps_the_last_and_the_greatest(engine: Any) -> None:
    schema = pa.schema([("group", pa.string()), ("timestamp_ms", pa.int64()), ("lag", pa.int64())])
    rows = [
        {"group": "g", "timestamp_ms": at, "lag": value} for at, value in [(0, 1), (1, 9), (2, 3), (98, 7), (99, 2)]
    ]
    rows.append({"group": "one", "timestamp_ms": 5, "lag": 4})
    thin = lag_over_time.thinned(frames.of_schema(engine, schema, rows), points=2)
    assert frames.tuples(thin, "group", "timestamp_ms", "lag", "lag_max") == [
        ("g", 2, 3, 9),
        ("g", 99, 2, 7),
        ("one", 5, 4, 4),
    ]
