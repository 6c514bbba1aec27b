"""The states of one record as a table, and each row of it on a share partition. Source: KIP-932, KIP-1191."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kohort.broker.shares.acknowledgement import (
    Acknowledgement,
    AcknowledgementBatch,
    commit,
    expire,
    release,
    roll_back,
)
from kohort.broker.shares.acquisition import BATCH_OPTIMIZED, Acquisition, LogBatches, archive_aborted
from kohort.broker.shares.record_states import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    PENDING,
    REJECT,
    RELEASE,
    RENEW,
    ShareSettings,
)
from kohort.broker.shares.share_partition import Letter, SharePartition
from kohort.machine.ports import StateBatch
from kohort.model.errors import CoordinatorError, ErrorCode

NOW, LOCK_MS, LIMIT = 1000, 100, 3
PLAIN = ShareSettings(LOCK_MS, LIMIT)
LETTERS = ShareSettings(LOCK_MS, LIMIT, has_dead_letters=True)
OFFSET = 1
"""The record of each row; the one before it stays acquired, so that the start offset stays."""

Event = Callable[[SharePartition, ShareSettings], object]


def acknowledged(kind: int) -> Event:
    def event(partition: SharePartition, settings: ShareSettings) -> None:
        batch = AcknowledgementBatch(OFFSET, OFFSET, [kind])
        commit(partition, Acknowledgement(partition, "m1", NOW, settings).acknowledge([batch]))

    return event


def acknowledged_in_vain(kind: int, now: int = NOW) -> Event:
    def event(partition: SharePartition, settings: ShareSettings) -> None:
        batch = AcknowledgementBatch(OFFSET, OFFSET, [kind])
        roll_back(partition, Acknowledgement(partition, "m1", NOW, settings).acknowledge([batch]), now, settings)

    return event


def being_written(kind: int) -> Event:
    def event(partition: SharePartition, settings: ShareSettings) -> None:
        Acknowledgement(partition, "m1", NOW, settings).acknowledge([AcknowledgementBatch(OFFSET, OFFSET, [kind])])

    return event


def fetched(partition: SharePartition, settings: ShareSettings) -> None:
    log = LogBatches([0, OFFSET], [0, OFFSET])
    Acquisition(partition, "m2", BATCH_OPTIMIZED, 1, NOW, settings).acquire(10, partition.next_offset(), log)


def lock_ran_out(partition: SharePartition, settings: ShareSettings) -> None:
    partition.runs.locks[0] = NOW + 10 * LOCK_MS
    expire(partition, NOW + LOCK_MS, settings)


def session_ended(partition: SharePartition, settings: ShareSettings) -> None:
    commit(partition, release(partition, "m1", settings))


def aborted(partition: SharePartition, _settings: ShareSettings) -> None:
    runs = partition.runs
    index = runs.floor(OFFSET)
    archive_aborted(partition, [(OFFSET, OFFSET, runs.counts[index])], [(OFFSET, OFFSET)])  # type: ignore[list-item]


def letter_ended(partition: SharePartition, _settings: ShareSettings) -> None:
    partition.archive_letters(Letter(OFFSET, OFFSET, LIMIT, is_rejected=True))


def log_start_passed(partition: SharePartition, _settings: ShareSettings) -> None:
    partition.on_log_start(OFFSET + 1)


def compacted(partition: SharePartition, _settings: ShareSettings) -> None:
    partition.archive_available(OFFSET, OFFSET)


class Row(NamedTuple):
    state: int
    deliveries: int
    event: Event
    settings: ShareSettings
    after: int
    deliveries_after: int


TABLE = {
    "a fetch of an available record": Row(AVAILABLE, 1, fetched, PLAIN, ACQUIRED, 2),
    "a fetch of an acquired record": Row(ACQUIRED, 1, fetched, PLAIN, ACQUIRED, 1),
    "a fetch of an acknowledged record": Row(ACKNOWLEDGED, 1, fetched, PLAIN, ACKNOWLEDGED, 1),
    "a fetch of an archiving record": Row(ARCHIVING, 1, fetched, PLAIN, ARCHIVING, 1),
    "a fetch of an archived record": Row(ARCHIVED, 1, fetched, PLAIN, ARCHIVED, 1),
    "ACCEPT": Row(ACQUIRED, 1, acknowledged(ACCEPT), PLAIN, ACKNOWLEDGED, 1),
    "ACCEPT at the limit": Row(ACQUIRED, LIMIT, acknowledged(ACCEPT), LETTERS, ACKNOWLEDGED, LIMIT),
    "RELEASE below the limit": Row(ACQUIRED, LIMIT - 1, acknowledged(RELEASE), PLAIN, AVAILABLE, LIMIT - 1),
    "RELEASE at the limit": Row(ACQUIRED, LIMIT, acknowledged(RELEASE), PLAIN, ARCHIVED, LIMIT),
    "RELEASE above the limit": Row(ACQUIRED, LIMIT + 2, acknowledged(RELEASE), PLAIN, ARCHIVED, LIMIT + 2),
    "RELEASE at the limit with dead letters": Row(ACQUIRED, LIMIT, acknowledged(RELEASE), LETTERS, ARCHIVING, LIMIT),
    "REJECT": Row(ACQUIRED, 1, acknowledged(REJECT), PLAIN, ARCHIVED, 1),
    "REJECT with dead letters": Row(ACQUIRED, 1, acknowledged(REJECT), LETTERS, ARCHIVING, 1),
    "GAP": Row(ACQUIRED, 1, acknowledged(GAP), PLAIN, ARCHIVED, 1),
    "GAP with dead letters": Row(ACQUIRED, 1, acknowledged(GAP), LETTERS, ARCHIVED, 1),
    "RENEW": Row(ACQUIRED, 2, acknowledged(RENEW), PLAIN, ACQUIRED, 2),
    "RENEW at the limit": Row(ACQUIRED, LIMIT, acknowledged(RENEW), PLAIN, ACQUIRED, LIMIT),
    "ACCEPT while it is written": Row(ACQUIRED, 1, being_written(ACCEPT), PLAIN, ACKNOWLEDGED | PENDING, 1),
    "RELEASE while it is written": Row(ACQUIRED, 1, being_written(RELEASE), PLAIN, AVAILABLE | PENDING, 1),
    "ACCEPT whose write fails": Row(ACQUIRED, 1, acknowledged_in_vain(ACCEPT), PLAIN, ACQUIRED, 1),
    "RELEASE whose write fails": Row(ACQUIRED, LIMIT, acknowledged_in_vain(RELEASE), PLAIN, ACQUIRED, LIMIT),
    "REJECT whose write fails": Row(ACQUIRED, 1, acknowledged_in_vain(REJECT), LETTERS, ACQUIRED, 1),
    "ACCEPT whose write fails after the lock": Row(
        ACQUIRED, 1, acknowledged_in_vain(ACCEPT, NOW + LOCK_MS), PLAIN, AVAILABLE, 1
    ),
    "ACCEPT at the limit whose write fails after the lock": Row(
        ACQUIRED, LIMIT, acknowledged_in_vain(ACCEPT, NOW + LOCK_MS), PLAIN, ARCHIVED, LIMIT
    ),
    "the end of a lock": Row(ACQUIRED, 1, lock_ran_out, PLAIN, AVAILABLE, 1),
    "the end of a lock at the limit": Row(ACQUIRED, LIMIT, lock_ran_out, PLAIN, ARCHIVED, LIMIT),
    "the end of a lock at the limit with dead letters": Row(ACQUIRED, LIMIT, lock_ran_out, LETTERS, ARCHIVING, LIMIT),
    "the end of no lock": Row(AVAILABLE, 1, lock_ran_out, PLAIN, AVAILABLE, 1),
    "the end of a session": Row(ACQUIRED, 1, session_ended, PLAIN, AVAILABLE, 1),
    "the end of a session at the limit": Row(ACQUIRED, LIMIT, session_ended, PLAIN, ARCHIVED, LIMIT),
    "an aborted transaction": Row(ACQUIRED, 1, aborted, LETTERS, ARCHIVED, 1),
    "the end of a dead letter": Row(ARCHIVING, LIMIT, letter_ended, LETTERS, ARCHIVED, LIMIT),
    "the end of the dead letter of another record": Row(ACKNOWLEDGED, 1, letter_ended, LETTERS, ACKNOWLEDGED, 1),
    "deleted records, available": Row(AVAILABLE, 1, log_start_passed, LETTERS, ARCHIVED, 1),
    "deleted records, acquired": Row(ACQUIRED, 1, log_start_passed, PLAIN, ACQUIRED, 1),
    "a compacted record": Row(AVAILABLE, 1, compacted, LETTERS, ARCHIVED, 1),
    "a compacted record, acquired": Row(ACQUIRED, 1, compacted, PLAIN, ACQUIRED, 1),
}


def prepared(row: Row) -> SharePartition:
    """A share partition with the record of a row, between an acquired and an available one."""
    partition = SharePartition(0)
    state = AVAILABLE if row.state == ACQUIRED else row.state
    partition.load(
        [StateBatch(0, 0, AVAILABLE, 0), StateBatch(OFFSET, OFFSET, state, row.deliveries), StateBatch(2, 2, 0, 0)]
    )
    runs = partition.runs
    runs.set(0, ACQUIRED, 1, partition.enter("m0"), NOW + LOCK_MS)
    if row.state == ACQUIRED:
        runs.set(1, ACQUIRED, row.deliveries, partition.enter("m1"), NOW + LOCK_MS)
    return partition


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_each_transition_of_a_record(row: Row) -> None:
    partition = prepared(row)
    row.event(partition, row.settings)
    index = partition.runs.floor(OFFSET)
    assert (partition.runs.states[index], partition.runs.counts[index]) == (row.after, row.deliveries_after)


@pytest.mark.parametrize("state", [AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED])
@pytest.mark.parametrize("kind", [GAP, ACCEPT, RELEASE, REJECT, RENEW])
def test_only_an_acquired_record_can_be_acknowledged(state: int, kind: int) -> None:
    partition = prepared(Row(state, 1, fetched, PLAIN, 0, 0))
    with pytest.raises(CoordinatorError) as refused:
        acknowledged(kind)(partition, PLAIN)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert partition.runs.states[1] == state


@pytest.mark.parametrize("kind", [GAP, ACCEPT, RELEASE, REJECT, RENEW])
def test_a_record_is_not_acknowledged_again_while_it_is_written(kind: int) -> None:
    partition = prepared(Row(ACQUIRED, 1, fetched, PLAIN, 0, 0))
    being_written(ACCEPT)(partition, PLAIN)
    with pytest.raises(CoordinatorError) as refused:
        acknowledged(kind)(partition, PLAIN)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_counts_from_the_renewal() -> None:
    partition = prepared(Row(ACQUIRED, 1, fetched, PLAIN, 0, 0))
    batch = AcknowledgementBatch(OFFSET, OFFSET, [RENEW])
    assert not Acknowledgement(partition, "m1", NOW + 60, PLAIN).acknowledge([batch]).batches
    expire(partition, NOW + LOCK_MS, PLAIN)
    assert partition.runs.states[1] == ACQUIRED
    assert partition.next_deadline == NOW + 60 + LOCK_MS
    expire(partition, NOW + 60 + LOCK_MS, PLAIN)
    assert partition.runs.states[1] == AVAILABLE


def test_a_refused_request_takes_back_what_it_has_changed_before() -> None:
    partition = prepared(Row(ACQUIRED, 1, fetched, PLAIN, 0, 0))
    good, bad = AcknowledgementBatch(OFFSET, OFFSET, [ACCEPT]), AcknowledgementBatch(2, 2, [ACCEPT])
    with pytest.raises(CoordinatorError):
        Acknowledgement(partition, "m1", NOW, PLAIN).acknowledge([good, bad])
    assert partition.runs.states[1] == ACQUIRED
    assert partition.complete_count == 0


def test_an_acknowledgement_over_the_start_offset_with_nothing_in_flight_is_refused() -> None:
    partition = SharePartition(5)
    with pytest.raises(CoordinatorError) as refused:
        Acknowledgement(partition, "m1", NOW, PLAIN).acknowledge([AcknowledgementBatch(3, 7, [ACCEPT])])
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_record_whose_write_fails_keeps_its_lock_in_time() -> None:
    partition = SharePartition(0)
    log = LogBatches([0, 1], [0, 1])
    Acquisition(partition, "m1", BATCH_OPTIMIZED, 1, NOW, PLAIN).acquire(1, 0, log)
    Acquisition(partition, "m1", BATCH_OPTIMIZED, 1, NOW + 60, PLAIN).acquire(1, 1, log)
    change = Acknowledgement(partition, "m1", NOW + 60, PLAIN).acknowledge([AcknowledgementBatch(1, 1, [ACCEPT])])
    expire(partition, NOW + LOCK_MS, PLAIN)
    assert partition.next_deadline == 0
    roll_back(partition, change, NOW + LOCK_MS, PLAIN)
    assert partition.next_deadline == NOW + 60 + LOCK_MS
