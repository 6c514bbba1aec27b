"""What became of transactions, told by the records of their coordinator."""

from typing import Any

import pytest

from kohort.pipeline.tables.transactions import blocking_transactions as blocking
from kohort.pipeline.tables.transactions import transactions as table
from tests.pipeline import frames

T = 1_700_000_000_000
PLACES = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]


def step(
    log_offset: int,
    state: str | None,
    at_ms: int,
    *,
    epoch: int = 0,
    start_ms: int | None = None,
    version: int = 2,
    places: int = 0,
    name: str = "tx",
) -> frames.Row:
    value = {
        "state": state,
        "producer_id": 7,
        "producer_epoch": epoch,
        "timeout_ms": 1000,
        "partitions": PLACES[:places],
        "last_update_ms": T + at_ms,
        "start_ms": -1 if start_ms is None else T + start_ms,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "client_transaction_version": version,
    }
    return {
        "kind": "transaction",
        "log_partition": 0,
        "log_offset": log_offset,
        "timestamp_ms": T + at_ms + 1,
        "tombstone": state is None,
        "transactional_id": name,
        "transaction": None if state is None else value,
    }


def found(engine: Any, rows: list[frames.Row]) -> Any:
    return table.transactions(frames.records(engine, table.INPUT_COLUMNS, rows))


def test_what_damage_has_taken_joins_no_transactions(engine: Any) -> None:
    """The end of the first and the begin of the second lie in a range that cannot be read; each is told by its own time."""
    rows = [
        step(0, "Ongoing", 10, start_ms=10, places=2),
        step(7, "PrepareAbort", 90, start_ms=70, places=1),
        step(8, "CompleteAbort", 95, start_ms=70),
        step(9, "Ongoing", 100, start_ms=100, places=1),
    ]
    rows += [
        step(0, "PrepareCommit", 10, start_ms=10, places=1, name="prepared"),
        step(5, "Empty", 60, name="prepared"),
    ]
    frame = found(engine, rows)
    assert frames.tuples(frame, "transactional_id", "start_ms", "state", "outcome", "duration_ms") == [
        ("prepared", T + 10, "CompleteCommit", "committed", None),
        ("tx", T + 10, None, None, None),
        ("tx", T + 70, "CompleteAbort", "aborted", 26),
        ("tx", T + 100, "Ongoing", "open", None),
    ]
    # Whoever goes on has ended what was before: nobody is held back by it.
    assert frames.tuples(table.open_transactions(frame, at_ms=T + 200), "start_ms", "partition") == [(T + 100, 0)]
    told = frames.tuples(table.transaction_statistics(frame), "transactional_id", "transactions", "open", "abort_rate")
    assert told == [("prepared", 1, 0, 0.0), ("tx", 3, 1, 1.0)]


def test_a_transaction_from_its_begin_to_its_markers(engine: Any) -> None:
    rows = [
        step(0, "Empty", 0),
        step(1, "Ongoing", 10, start_ms=10, places=1),
        step(2, "Ongoing", 20, start_ms=10, places=2),
        step(3, "PrepareCommit", 30, start_ms=10, places=2, epoch=1),
        step(4, "CompleteCommit", 40, start_ms=10, epoch=1),
    ]
    (row,) = frames.rows_of(found(engine, rows), "first_log_offset")
    assert row == {
        "log_partition": 0,
        "transactional_id": "tx",
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_version": 2,
        "timeout_ms": 1000,
        "partitions": PLACES,
        "start_ms": T + 10,
        "prepared_at_ms": T + 30,
        "completed_at_ms": T + 41,
        "duration_ms": 31,
        "markers_ms": 11,
        "state": "CompleteCommit",
        "outcome": "committed",
        "ended_by": "client",
        "first_log_offset": 1,
        "last_log_offset": 4,
    }


def test_the_end_of_a_producer_id_is_that_of_the_transaction_before(engine: Any) -> None:
    """The last epoch of a producer id: the completion has the next id, and all that compaction left is this record."""
    end = step(4, "CompleteCommit", 40, start_ms=10, epoch=0)
    end["transaction"] |= {"producer_id": 9, "previous_producer_id": 7}
    after = step(5, "Ongoing", 50, start_ms=50, epoch=0)
    after["transaction"] |= {"producer_id": 9, "previous_producer_id": 7}
    columns = ("first_log_offset", "producer_id", "producer_epoch", "outcome")
    assert frames.tuples(found(engine, [end, after]), *columns) == [(4, 7, None, "committed"), (5, 9, 0, "open")]


# fmt: off
ENDS = [
    # version  prepared epoch  prepared at  outcome      ended by
    (1,        "PrepareCommit", 0,  500,    "committed", "client"),
    (1,        "PrepareAbort",  0,  500,    "aborted",   "client"),
    (1,        "PrepareAbort",  1,  500,    "aborted",   "fence"),
    (1,        "PrepareAbort",  1,  1501,   "aborted",   "timeout"),
    (2,        "PrepareCommit", 1,  500,    "committed", "client"),
    (2,        "PrepareAbort",  1,  500,    "aborted",   None),         # a client's own abort raises the epoch, too
    (2,        "PrepareAbort",  1,  1501,   "aborted",   "timeout"),
]
# fmt: on


def test_who_ended_it(engine: Any) -> None:
    rows: list[frames.Row] = []
    for index, (version, state, epoch, at_ms, _, _) in enumerate(ENDS):
        name = f"tx-{index}"
        rows.append(step(10 * index, "Ongoing", 100, start_ms=100, places=1, version=version, name=name))
        rows.append(step(10 * index + 1, state, at_ms, start_ms=100, places=1, version=version, epoch=epoch, name=name))
    got = frames.tuples(found(engine, rows), "transactional_id", "outcome", "ended_by")
    assert got == [(f"tx-{index}", end[4], end[5]) for index, end in enumerate(ENDS)]


def test_one_transaction_follows_another(engine: Any) -> None:
    rows = [
        step(0, "Ongoing", 10, start_ms=10, places=1),
        step(1, "PrepareAbort", 20, start_ms=10, places=1),
        step(2, "CompleteAbort", 30, start_ms=10),
        # No Empty in between: the producer goes on.
        step(3, "Ongoing", 40, start_ms=40, places=1),
        step(4, None, 50),
        step(5, "Empty", 60),
        step(6, "Ongoing", 70, start_ms=70, places=2),
    ]
    got = frames.tuples(found(engine, rows), "first_log_offset", "last_log_offset", "start_ms", "outcome")
    # An id has one open transaction at most; how the one before its tombstone ended is not told.
    assert got == [(0, 2, T + 10, "aborted"), (3, 3, T + 40, None), (6, 6, T + 70, "open")]


def test_of_a_compacted_transaction_the_end_is_left(engine: Any) -> None:
    rows = [step(5, "CompleteCommit", 40, start_ms=10), step(9, "Ongoing", 70, start_ms=70, places=1)]
    columns = ("first_log_offset", "outcome", "duration_ms", "producer_epoch", "partitions")
    got = [tuple(row[name] for name in columns) for row in frames.rows_of(found(engine, rows), "first_log_offset")]
    assert got == [(5, "committed", 31, None, None), (9, "open", None, 0, PLACES[:1])]


def test_open_transactions_hold_partitions_back(engine: Any) -> None:
    rows = [
        step(0, "Ongoing", 10, start_ms=10, places=2, name="long"),
        step(1, "Ongoing", 900, start_ms=900, places=1, name="short"),
        step(2, "Ongoing", 950, start_ms=950, places=1, name="prepared"),
        step(3, "PrepareCommit", 960, start_ms=950, places=1, name="prepared"),
        step(4, "Ongoing", 970, start_ms=970, places=1, name="done"),
        step(5, "CompleteCommit", 980, start_ms=970, name="done"),
    ]
    frame = table.open_transactions(found(engine, rows), at_ms=T + 1011)
    assert frames.tuples(frame, "transactional_id", "topic", "partition", "age_ms", "is_overdue", "state") == [
        ("long", "t", 0, 1001, True, "Ongoing"),
        ("long", "t", 1, 1001, True, "Ongoing"),
        ("prepared", "t", 0, 61, False, "PrepareCommit"),
        ("short", "t", 0, 111, False, "Ongoing"),
    ]
    # A broker goes on while its log is read: a transaction that began after the instant has no age.
    earlier = table.open_transactions(found(engine, rows), at_ms=T + 949)
    assert frames.tuples(earlier, "transactional_id", "partition") == [("long", 0), ("long", 1), ("short", 0)]


@pytest.mark.parametrize(("completed_ms", "verdict"), [(None, "ongoing"), (99, "hanging"), (101, "ongoing")])
def test_what_completed_while_the_logs_were_read_does_not_hang(
    engine: Any, completed_ms: int | None, verdict: str
) -> None:
    """The batches of a running broker were read before the transaction completed, its coordinator's log afterwards."""
    rows = [step(0, "Ongoing", 10, start_ms=10, places=1), step(1, "PrepareCommit", 50, start_ms=10, places=1)]
    if completed_ms is not None:
        rows.append(step(2, "CompleteCommit", completed_ms, start_ms=10))
    batch = {"log_topic": "t", "log_partition": 0, "log_offset": 5, "next_offset": 6, "timestamp_ms": T + 20}
    batch |= {"producer_id": 7, "producer_epoch": 0, "transactional": True, "is_control": False}
    log = frames.records(engine, blocking.INPUT_COLUMNS, [batch])
    frame = blocking.blocking_transactions(log, found(engine, rows), at_ms=T + 101)
    assert frames.tuples(frame, "transactional_id", "verdict", "duration_ms") == [("tx", verdict, 81)]


BEGUN = [
    # instant, whether the logs of all coordinators are there
    (T + 20, True, "hanging"),
    (T + 19, True, "ongoing"),  # the coordinator's log was read before the transaction began
    (T + 20, False, "unknown"),
]


@pytest.mark.parametrize(("at_ms", "is_whole", "verdict"), BEGUN)
def test_what_no_coordinator_has_hangs_if_all_are_known(engine: Any, at_ms: int, is_whole: bool, verdict: str) -> None:
    batch = {"log_topic": "t", "log_partition": 0, "log_offset": 5, "next_offset": 6, "timestamp_ms": T + 20}
    batch |= {"producer_id": 7, "producer_epoch": 0, "transactional": True, "is_control": False}
    log = frames.records(engine, blocking.INPUT_COLUMNS, [batch])
    frame = blocking.blocking_transactions(log, found(engine, []), at_ms=at_ms, is_whole=is_whole)
    assert frames.tuples(frame, "producer_id", "verdict") == [(7, verdict)]


def test_statistics(engine: Any) -> None:
    rows = [
        row
        for index, end in enumerate(("Commit", "Abort", "Commit", "Commit"))
        for row in (
            step(10 * index, "Ongoing", 100, start_ms=100, places=1),
            step(10 * index + 1, f"Prepare{end}", 150, start_ms=100, places=1),
            step(10 * index + 2, f"Complete{end}", 199 + index, start_ms=100),
        )
    ]
    rows.append(step(50, "Ongoing", 300, start_ms=300, places=1))
    (row,) = frames.rows_of(table.transaction_statistics(found(engine, rows)), "transactional_id")
    assert row == {
        "transactional_id": "tx",
        "transactions": 5,
        "committed": 3,
        "aborted": 1,
        "open": 1,
        "timed_out": 0,
        "fenced": 0,
        "abort_rate": 0.25,
        "duration_p50_ms": 101,
        "duration_p95_ms": 103,
        "duration_p99_ms": 103,
        "duration_max_ms": 103,
        "producer_ids": 1,
    }


@pytest.mark.parametrize(
    ("state", "version", "epoch", "expected"),
    [
        ("PrepareCommit", 0, 3, 3),
        ("CompleteCommit", 1, 3, 3),
        # A fence has raised it, or the client's own abort has not.
        ("PrepareAbort", 1, 3, None),
        ("CompleteAbort", 0, 3, None),
        # Every end raises it.
        ("PrepareAbort", 2, 3, 2),
        ("CompleteCommit", 2, 3, 2),
        # It was the last one of another producer id.
        ("CompleteCommit", 2, 0, None),
    ],
)
def test_the_epoch_where_only_the_end_is_left(
    engine: Any, state: str, version: int, epoch: int, expected: int | None
) -> None:
    (row,) = frames.rows_of(
        found(engine, [step(9, state, 30, start_ms=10, version=version, epoch=epoch)]), "log_partition"
    )
    assert row["producer_epoch"] == expected
