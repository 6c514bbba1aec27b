"""How long the oldest unread record has waited: the first one that a reader of committed records would still get."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kohort.pipeline.tables.incarnations import BATCH_COLUMNS
from kohort.pipeline.tables.lag.time_lag import time_lag
from tests.pipeline import frames

NOW_MS = 500
LATEST = pa.schema([("group", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def batch(base: int, following: int, first_ms: int, at_ms: int, *, of: int | None = None, **other: Any) -> frames.Row:
    """A batch of data; `of` is the producer of its transaction."""
    row = {"log_topic": "t", "log_offset": base, "next_offset": following, "record_count": following - base}
    row |= {"first_timestamp_ms": first_ms, "timestamp_ms": at_ms, "is_control": False, "control": None}
    return row | {"producer_id": -1 if of is None else of, "transactional": of is not None} | other


def plain(base: int, following: int, at_ms: int) -> frames.Row:
    """A batch that was open for ten milliseconds."""
    return batch(base, following, at_ms - 10, at_ms)


def data(base: int, following: int, at_ms: int, producer_id: int = 7) -> frames.Row:
    """The same in a transaction."""
    return batch(base, following, at_ms - 10, at_ms, of=producer_id)


def end(base: int, at_ms: int, control: str | None, producer_id: int = 7) -> frames.Row:
    return batch(base, base + 1, at_ms, at_ms, of=producer_id, is_control=True, control=control)


def commit(base: int, at_ms: int, producer_id: int = 7) -> frames.Row:
    return end(base, at_ms, "COMMIT", producer_id)


def abort(base: int, at_ms: int, producer_id: int = 7) -> frames.Row:
    return end(base, at_ms, "ABORT", producer_id)


PLAIN = [plain(0, 10, 100), plain(10, 15, 200)]
COMMITTED = [data(0, 5, 100), commit(5, 110)]
ABORTED = [data(0, 5, 100), abort(5, 110)]
UNREADABLE = [data(0, 5, 100), end(5, 110, None)]
COMMITTED_ABORTED = [*COMMITTED, data(6, 9, 200), abort(9, 210)]
INTERLEAVED = [
    *(data(0, 5, 100, 7), data(5, 10, 120, 8), data(10, 12, 130, 7)),
    *(abort(12, 140, 7), commit(13, 145, 8), data(14, 16, 150, 7), commit(16, 160, 7)),
]
EMPTY = {"first_timestamp_ms": None, "record_count": 0}
"""What compaction leaves of a batch that was its producer's last."""
KEPT = {"first_timestamp_ms": None, "record_count": None}
"""What the rows of an older release do not say."""

Case = tuple[str, Sequence[frames.Row], int, int | None, int | None]

# fmt: off
CASES: list[Case] = [
    # what                                        log                              offset produced lost
    ("at the begin of a batch",                   PLAIN,                                0,   90, 0),
    ("inside a batch",                            PLAIN,                                3,  100, 0),
    ("at the begin of the next one",              PLAIN,                               10,  190, 0),
    ("at the end of the log",                     PLAIN,                               15, None, 0),
    ("before a record of a clock that is ahead",  [*PLAIN, plain(16, 20, 999)],        15,  989, 0),
    ("beyond the end: the log lost its tail",     PLAIN,                               99, None, 0),
    ("before the log: 2 to 6 were deleted",       [plain(7, 9, 300)],                   2,  290, 5),
    ("before a gap that compaction left",         [plain(0, 5, 100), plain(9, 12, 300)], 5, 290, 0),
    ("append time: all of a batch have one",      [batch(0, 5, 100, 100)],              0,  100, 0),
    ("before committed data",                     COMMITTED,                            0,   90, 0),
    ("inside committed data",                     COMMITTED,                            2,  100, 0),
    ("before a marker only",                      COMMITTED,                            5, None, 0),
    ("before aborted data only",                  ABORTED,                              0, None, 0),
    ("inside aborted data",                       ABORTED,                              2, None, 0),
    ("before two aborted batches of one",         [data(0, 5, 80), data(5, 7, 100), abort(7, 110)], 0, None, 0),
    ("before aborted, then committed data",       [*ABORTED, data(6, 9, 200), commit(9, 210)], 0, 190, 0),
    ("before aborted, then plain data",           [*ABORTED, plain(6, 9, 200)],         0,  190, 0),
    ("before committed, then aborted data",       COMMITTED_ABORTED,                    0,   90, 0),
    ("between committed and aborted data",        COMMITTED_ABORTED,                    6, None, 0),
    ("before an open transaction",                [data(0, 5, 100)],                    0,   90, 0),
    ("before an aborted, then an open one",       [*ABORTED, data(6, 9, 200)],          0,  190, 0),
    ("aborted by a broker whose clock is ahead",  [data(0, 5, 100), abort(5, 501)],     0, None, 0),
    ("before two producers",                      INTERLEAVED,                          0,  110, 0),
    ("between two producers",                     INTERLEAVED,                          5,  110, 0),
    ("behind what the second committed",          INTERLEAVED,                         10,  140, 0),
    ("an idempotent producer has no markers",     [plain(0, 5, 100) | {"producer_id": 7}, abort(5, 110)], 0, 90, 0),
    ("aborted data cleaned away, not its marker", [abort(5, 110), plain(6, 9, 200)],    0,  190, 5),
    ("nothing left but a marker",                 [abort(5, 110)],                      0, None, 5),
    ("a batch without records",                   [plain(0, 5, 100) | EMPTY],           0, None, 0),
    ("a batch without records before others",     [plain(0, 5, 100) | EMPTY, plain(5, 6, 300)], 0, 290, 0),
    ("a marker that cannot be read may commit",   [*UNREADABLE, data(6, 9, 200), abort(9, 210)], 0, 90, 0),
    ("rows of an older release",                  [plain(0, 5, 100) | KEPT],            0,  100, 0),
    ("rows of an older release, of transactions", [data(0, 5, 100) | KEPT, end(5, 110, None) | KEPT], 0, 100, 0),
]
# fmt: on


@pytest.fixture(scope="module")
def told(engine: Any) -> dict[str, frames.Row]:
    """Every case in a partition of its own, read at once."""
    groups = [
        {"group": name, "topic": "t", "partition": at, "offset": offset}
        for at, (name, _, offset, *_) in enumerate(CASES)
    ]
    log = [row | {"log_partition": at} for at, (_, rows, *_) in enumerate(CASES) for row in rows]
    groups.append({"group": "unknown", "topic": "t", "partition": len(CASES), "offset": 0})
    found = time_lag(frames.of_schema(engine, LATEST, groups), frames.records(engine, BATCH_COLUMNS, log), at_ms=NOW_MS)
    return {row["group"]: row for row in frames.rows_of(found, "group")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_how_long_the_oldest_unread_record_has_waited(told: dict[str, frames.Row], case: Case) -> None:
    name, _, _, produced_at_ms, lost = case
    row = told[name]
    waited_ms = 0 if produced_at_ms is None else max(NOW_MS - produced_at_ms, 0)
    assert (row["next_produced_at_ms"], row["time_lag_ms"], row["records_lost"]) == (produced_at_ms, waited_ms, lost)


def test_of_a_log_that_is_not_there_nothing_is_told(told: dict[str, frames.Row]) -> None:
    row = told["unknown"]
    assert (row["next_produced_at_ms"], row["time_lag_ms"], row["records_lost"]) == (None, None, None)


EXACT = {
    "at the begin of a batch": True,
    "inside a batch": False,  # only headers were read
    "rows of an older release": False,
    "at the end of the log": None,
}


@pytest.mark.parametrize("name", EXACT)
def test_a_time_that_is_not_that_of_the_record_is_marked(told: dict[str, frames.Row], name: str) -> None:
    assert told[name]["is_exact"] is EXACT[name]


# offset, log start: when the first readable record was produced, how long it has waited, records lost
STARTS = [
    (3, 5, 100, 400, 2),  # the log starts inside a batch
    (3, 10, 190, 310, 7),
    (3, 15, None, 0, 12),
    (12, 5, 200, 300, 0),
    (None, 10, 190, None, None),  # nothing was committed: all records are unread
]


@pytest.mark.parametrize("case", STARTS)
def test_a_log_that_starts_behind_the_committed_offset(engine: Any, case: tuple[int | None, ...]) -> None:
    """After DeleteRecords: the batches are there, and a reader does not get them."""
    offset, start, *expected = case
    latest = frames.of_schema(engine, LATEST, [{"group": "g", "topic": "t", "partition": 0, "offset": offset}])
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("begin_offset", pa.int64())])
    begins = frames.of_schema(engine, schema, [{"topic": "t", "partition": 0, "begin_offset": start}])
    log = frames.records(engine, BATCH_COLUMNS, [row | {"log_partition": 0} for row in PLAIN])
    found = time_lag(latest, log, at_ms=NOW_MS, begins=begins)
    assert frames.tuples(found, "next_produced_at_ms", "time_lag_ms", "records_lost") == [tuple(expected)]


def test_several_groups_of_a_partition(engine: Any) -> None:
    groups = [{"group": f"g{offset}", "topic": "t", "partition": 0, "offset": offset} for offset in (0, 5, 12, 17)]
    log = [row | {"log_partition": 0} for row in INTERLEAVED]
    found = time_lag(frames.of_schema(engine, LATEST, groups), frames.records(engine, BATCH_COLUMNS, log), at_ms=NOW_MS)
    assert frames.tuples(found, "group", "next_produced_at_ms") == [
        ("g0", 110),
        ("g12", 140),
        ("g17", None),
        ("g5", 110),
    ]
