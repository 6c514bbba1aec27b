"""Transactional ids that nobody uses are forgotten."""

import pytest

from kohort.model.errors import UnavailableError
from kohort.model.ids import TRANSACTION_STATE
from kohort.testing import FaultyLog
from kohort.transaction import expiry
from kohort.transaction.events import TransactionalIdExpired, TransactionTimedOut
from kohort.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from tests.transaction.bench import ID, T0, Bench, transaction

WEEK_MS, HOUR_MS = 604_800_000, 3_600_000


@pytest.mark.parametrize(
    ("state", "expires"),
    [
        (EMPTY, True),
        (COMPLETE_COMMIT, True),
        (COMPLETE_ABORT, True),
        (ONGOING, False),
        (PREPARE_COMMIT, False),
        (PREPARE_ABORT, False),
    ],
)
def test_states_that_expire(state: TransactionState, expires: bool) -> None:
    bench = Bench(transaction_abort_timed_out_transaction_cleanup_interval_ms=2_000_000_000)
    now_ms = bench.node.clock.now_ms()
    bench.put(transaction(state=state, update_timestamp_ms=now_ms - WEEK_MS, partitions=frozenset({T0})))
    bench.advance(HOUR_MS)
    assert (bench.transaction() is None) is expires
    assert bench.states()[-1][0] == ("" if expires else state.wire_name)
    assert bench.events == [TransactionalIdExpired(ID)] * expires


@pytest.mark.parametrize(("age_ms", "expires"), [(WEEK_MS - HOUR_MS, True), (WEEK_MS - HOUR_MS - 1, False)])
def test_the_age_at_the_check_counts(age_ms: int, expires: bool) -> None:
    bench = Bench()
    bench.put(transaction(update_timestamp_ms=bench.node.clock.now_ms() - age_ms))
    bench.advance(HOUR_MS)
    assert (bench.transaction() is None) is expires


def test_a_use_keeps_the_id() -> None:
    bench = Bench()
    bench.init()
    bench.advance(WEEK_MS - 1000)
    bench.init()
    bench.advance(HOUR_MS)
    assert bench.state() is EMPTY


def test_an_expired_id_begins_anew() -> None:
    bench = Bench()
    bench.init()
    bench.advance(WEEK_MS + HOUR_MS)
    assert bench.transaction() is None
    bench.restart()
    assert bench.transaction() is None
    assert bench.init() == (0, 1001, 0)


def test_tombstones_that_cannot_be_written_are_written_later() -> None:
    """KAFKA-7519: in Kafka the id would answer CONCURRENT_TRANSACTIONS for ever."""
    bench = Bench()
    bench.put(transaction(update_timestamp_ms=0))
    bench.logs[0].fail_next_append = UnavailableError("offline")
    bench.advance(HOUR_MS)
    assert bench.init()[0] == 0
    assert bench.state() is EMPTY


def test_many_ids_expire_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tombstones go into batches of the largest size that the log takes (KAFKA-13099)."""
    monkeypatch.setattr(expiry, "IDS_AT_ONCE", 10)
    bench = Bench()
    bench.logs[0].batch_bytes_max = 500
    for index in range(95):
        bench.put(transaction(transactional_id=f"id-{index}", update_timestamp_ms=0))
    appends = bench.logs[0].appends
    bench.advance(HOUR_MS + 1_000)
    assert list(bench.listed().transaction_states) == []
    assert bench.logs[0].appends - appends >= 10


def test_many_transactions_time_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "IDS_AT_ONCE", 10)
    bench = Bench()
    for index in range(35):
        bench.put(
            transaction(transactional_id=f"id-{index}", state=ONGOING, partitions=frozenset({T0}), start_timestamp_ms=0)
        )
    bench.put(transaction(transactional_id="empty", state=ONGOING, start_timestamp_ms=0))
    bench.advance(11_000)
    assert {state.transaction_state for state in bench.listed().transaction_states} == {"CompleteAbort"}
    assert len(bench.markers.sent) == 35


class SecondBatchFails(FaultyLog):
    """Refuses the second append of those that are made while it is armed."""

    appends_left = -1

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        self.appends_left -= 1
        if self.appends_left == 0:
            raise UnavailableError("offline")
        return super().append(batch, leader_epoch=leader_epoch)


def test_aborts_in_two_batches_of_which_the_second_fails() -> None:
    """The part repeats what was reverted; the transactions of the first batch stay aborted, and get their markers."""
    bench = Bench()
    log = bench.logs[0] = SecondBatchFails(TRANSACTION_STATE, 0, batch_bytes_max=600)
    bench.start()
    for index in range(12):
        bench.put(
            transaction(
                transactional_id=f"id-{index:02}", state=ONGOING, partitions=frozenset({T0}), start_timestamp_ms=0
            )
        )
    log.appends_left = 2
    bench.advance(11_000)
    assert log.appends_left < 0, "the second batch has failed"
    assert {state.transaction_state for state in bench.listed().transaction_states} == {"CompleteAbort"}
    assert len(bench.markers.sent) == 12
    timed_out = [event for event in bench.events if isinstance(event, TransactionTimedOut)]
    assert sorted(event.transactional_id for event in timed_out) == [f"id-{index:02}" for index in range(12)]


@pytest.mark.parametrize("batch_bytes_max", [500, 580])
def test_a_decision_and_its_completion_in_two_batches_of_which_the_second_fails(batch_bytes_max: int) -> None:
    """A transaction without partitions is completed by the sender of markers, if its decision is kept alone."""
    bench = Bench()
    log = bench.logs[0] = SecondBatchFails(TRANSACTION_STATE, 0, batch_bytes_max=batch_bytes_max)
    bench.start()
    for index in range(12):
        bench.put(transaction(transactional_id=f"id-{index:02}", state=ONGOING, start_timestamp_ms=0))
    log.appends_left = 2
    bench.advance(11_000)
    assert log.appends_left < 0, "the second batch has failed"
    assert {state.transaction_state for state in bench.listed().transaction_states} == {"CompleteAbort"}
    assert bench.markers.sent == []


def test_tombstones_in_two_batches_of_which_the_second_fails() -> None:
    """The part repeats what was reverted; each id is counted once."""
    bench = Bench(transaction_abort_timed_out_transaction_cleanup_interval_ms=2_000_000_000)
    log = bench.logs[0] = SecondBatchFails(TRANSACTION_STATE, 0, batch_bytes_max=300)
    bench.start()
    ids = [f"id-{index:02}" for index in range(12)]
    for transactional_id in ids:
        bench.put(transaction(transactional_id=transactional_id, update_timestamp_ms=0))
    log.appends_left = 2
    bench.advance(HOUR_MS)
    assert log.appends_left == 0, "the second batch has failed"
    kept = [event.transactional_id for event in bench.events]
    assert kept == ids[: len(kept)]
    assert 0 < len(kept) < 12
    assert len(bench.listed().transaction_states) == 12 - len(kept)
    bench.advance(500)
    assert list(bench.listed().transaction_states) == []
    assert sorted(event.transactional_id for event in bench.events) == ids


def test_a_part_that_cannot_be_written_is_repeated_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "IDS_AT_ONCE", 10)
    bench = Bench()
    ids = [f"id-{index:02}" for index in range(35)]
    for transactional_id in ids:
        bench.put(
            transaction(
                transactional_id=transactional_id, state=ONGOING, partitions=frozenset({T0}), start_timestamp_ms=0
            )
        )
    bench.logs[0].fail_next_append = UnavailableError("offline")
    bench.advance(10_000)
    assert (bench.events, bench.markers.sent) == ([], []), "nothing of the batch is told"
    assert bench.service.gauges().ongoing == 35
    bench.advance(510)
    assert {state.transaction_state for state in bench.listed().transaction_states} == {"CompleteAbort"}
    assert sorted(event.transactional_id for event in bench.events) == ids
    assert len(bench.markers.sent) == 35


def test_each_interval_begins_anew() -> None:
    bench = Bench()
    for number in range(3):
        bench.put(transaction(state=ONGOING, start_timestamp_ms=0))
        bench.advance(10_001)
        assert bench.state() is COMPLETE_ABORT, number
    for number in range(3):
        bench.put(transaction(update_timestamp_ms=0))
        bench.advance(HOUR_MS)
        assert bench.transaction() is None, number


def test_a_transaction_of_two_phase_commit_has_no_timeout() -> None:
    bench = Bench()
    bench.put(transaction(state=ONGOING, timeout_ms=2_147_483_647, start_timestamp_ms=-5_000_000_000))
    bench.advance(20_000)
    assert bench.state() is ONGOING
