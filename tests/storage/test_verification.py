"""Verifications of transactions under way in a partition (KIP-890): guards, lowest sequences, expiry."""

from typing import Any

import pytest

from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.storage.producers import VERIFICATIONS_MAX, ProducerStateManager
from kohort.wire.batches import read_header
from tests.storage.test_producers import NEW, NOW, OLD, PRODUCER, learned, marker, sent, update

GAP, EPOCH = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
STATE = ErrorCode.INVALID_TXN_STATE


def begin(
    producers: ProducerStateManager,
    first_sequence: int = 0,
    *,
    epoch: int = NOW,
    producer_id: int = PRODUCER,
    adds_partition: bool = False,
    now_ms: int = 0,
) -> Any:
    producer = Producer("tx", producer_id, epoch, adds_partition)
    return producers.start_verification(producer, now_ms, first_sequence)


def outcome(producers: ProducerStateManager, batch: bytes, guard: object | None) -> ErrorCode | int:
    """NONE if a client's batch is to be written, the offset of its duplicate, or the error."""
    try:
        duplicate = producers.validate(read_header(batch), guard)
    except CoordinatorError as error:
        return error.code
    return ErrorCode.NONE if duplicate is None else duplicate.first_offset


def data(sequence: int = 0, *, epoch: int = NOW) -> bytes:
    return sent(sequence, epoch=epoch, transactional=True)


def refused(producers: ProducerStateManager, guard: object | None) -> bool:
    """Whether the records of a coordinator are refused, which have no sequence."""
    try:
        producers.check_transactional(producer_id=PRODUCER, producer_epoch=NOW, guard=guard)
    except CoordinatorError as error:
        return error.code == STATE
    return False


# Guards


def test_a_guard_is_good_until_its_transaction_has_ended() -> None:
    producers = ProducerStateManager()
    guard = begin(producers)
    assert begin(producers) is guard, "several writes may be verified at once"
    assert not refused(producers, guard)
    assert refused(producers, object())
    assert refused(producers, None)
    update(producers, data(), 0)
    assert begin(producers) is None, "the transaction is open: there is nothing to verify"
    assert not refused(producers, None)
    update(producers, marker(), 1)
    assert refused(producers, guard)
    assert refused(producers, None)


def test_an_end_without_records_overtakes_a_verification_too() -> None:
    producers = ProducerStateManager()
    guard = begin(producers)
    update(producers, marker(committed=False), 0)
    assert refused(producers, guard)


def test_a_guard_of_the_transaction_before_is_not_good_for_the_next_one() -> None:
    """KAFKA-14884: verified, then aborted, then a new transaction is verified before the late append comes."""
    producers = ProducerStateManager()
    late = begin(producers)
    update(producers, marker(committed=False), 0)
    following = begin(producers)
    assert outcome(producers, data(), late) == STATE
    assert outcome(producers, data(), following) == ErrorCode.NONE


def test_every_transactional_batch_ends_a_verification() -> None:
    """Also one that the log has without a verification: after a transaction of an earlier epoch that never ended."""
    producers = learned(data(epoch=OLD))
    guard = begin(producers, epoch=NOW)
    assert guard is not None, "a transaction of an earlier epoch may have ended"
    update(producers, data(epoch=NOW), 1)
    assert outcome(producers, data(1), None) == ErrorCode.NONE, "the lowest sequence does not count any more"
    update(producers, marker(), 2)
    assert outcome(producers, data(1), guard) == STATE


# The order of checks


# fmt: off
CHECKS = {  # batches in the log; the batch; whether it has a good guard; outcome
    "verified":                                ([],                               data(),           True,  ErrorCode.NONE),
    "not verified":                            ([],                               data(),           False, STATE),
    "not verified, open":                      ([data()],                         data(1),          False, ErrorCode.NONE),
    "not verified, open, of a later epoch":    ([data()],                         data(epoch=NEW),  False, STATE),
    "verified, open, of a later epoch":        ([data()],                         data(epoch=NEW),  True,  ErrorCode.NONE),
    "an earlier epoch before the guard":       ([data(), marker(epoch=NEW)],      data(1),          False, EPOCH),
    "an earlier epoch, open":                  ([data(epoch=NEW)],                data(1),          False, EPOCH),
    "not verified before a gap":               ([data(), marker()],               data(7),          False, STATE),
    "a duplicate before the guard":            ([data(), marker()],               data(),           False, 0),
    "a gap":                                   ([data(), marker()],               data(7),          True,  GAP),
    "the next":                                ([data(), marker()],               data(1),          True,  ErrorCode.NONE),
    "plain":                                   ([],                               sent(0),          False, ErrorCode.NONE),
}
# fmt: on


@pytest.mark.parametrize("case", CHECKS)
def test_checks(case: str) -> None:
    """KAFKA-19690: a producer that was fenced learns of its epoch, not of a transaction in a state that is fatal for it."""
    log, batch, is_verified, code = CHECKS[case]
    producers = learned(*log)
    header = read_header(batch)
    guard = begin(producers, header.base_sequence, epoch=header.producer_epoch) if is_verified else None
    assert outcome(producers, batch, guard) == code


@pytest.mark.parametrize("log", [[data(epoch=NEW)], [data(epoch=NEW), marker(epoch=NEW)]], ids=["open", "ended"])
def test_a_verification_of_an_earlier_epoch_does_not_begin(log: list[bytes]) -> None:
    with pytest.raises(CoordinatorError) as refusal:
        begin(learned(*log), epoch=NOW)
    assert refusal.value.code == EPOCH


# Sequences


# fmt: off
LOWEST = {  # verifications (sequence, epoch); the batch that comes first; outcome
    "the one verified":                 ([(5, NOW)],                       data(5),             ErrorCode.NONE),
    "a higher one":                     ([(5, NOW)],                       data(6),             GAP),
    "a lower one":                      ([(5, NOW)],                       data(4),             ErrorCode.NONE),
    "above the lowest of several":      ([(5, NOW), (3, NOW), (4, NOW)],   data(4),             GAP),
    "the lowest of several":            ([(5, NOW), (3, NOW), (4, NOW)],   data(3),             ErrorCode.NONE),
    "a later epoch begins anew":        ([(0, NOW), (6, NEW)],             data(6, epoch=NEW),  ErrorCode.NONE),
    "above that of the later epoch":    ([(9, NOW), (6, NEW)],             data(7, epoch=NEW),  GAP),
    "an earlier epoch changes nothing": ([(6, NEW), (2, NOW)],             data(6, epoch=NEW),  ErrorCode.NONE),
    "a plain batch above":              ([(2, NOW)],                       sent(3),             GAP),
    "a plain batch below":              ([(2, NOW)],                       sent(1),             ErrorCode.NONE),
}
# fmt: on


@pytest.mark.parametrize("case", LOWEST)
def test_the_first_batch_of_a_transaction_is_the_lowest_that_was_verified(case: str) -> None:
    """KAFKA-14920: the first batch fails verification, and the second one must not become the first."""
    verifications, batch, code = LOWEST[case]
    producers = ProducerStateManager()
    guards = [begin(producers, sequence, epoch=epoch) for sequence, epoch in verifications]
    assert outcome(producers, batch, guards[-1]) == code


ENDED, BUMPED = [data(), marker()], [data(), marker(epoch=NEW)]
# fmt: off
VERSION_2 = {  # batches in the log; sequence and epoch that come; whether the coordinator adds the partition; outcome
    "an unknown producer at 0":     ([],     0, NOW, True,  ErrorCode.NONE),
    "an unknown producer above 0":  ([],     3, NOW, True,  GAP),
    "version 1, above 0":           ([],     3, NOW, False, ErrorCode.NONE),
    "goes on in the same epoch":    (ENDED,  1, NOW, True,  ErrorCode.NONE),
    "0 in a new epoch":             (BUMPED, 0, NEW, True,  ErrorCode.NONE),
    "above 0 in a new epoch":       (BUMPED, 1, NEW, True,  GAP),
}
# fmt: on


@pytest.mark.parametrize("case", VERSION_2)
def test_version_2_begins_at_sequence_0(case: str) -> None:
    """Seen on 4.2.1."""
    log, sequence, epoch, adds_partition, code = VERSION_2[case]
    producers = learned(*log)
    guard = begin(producers, sequence, epoch=epoch, adds_partition=adds_partition)
    assert outcome(producers, data(sequence, epoch=epoch), guard) == code


def test_a_refused_batch_leaves_its_verification() -> None:
    """So that the batch before it can follow."""
    producers = ProducerStateManager()
    guard = begin(producers, 0)
    begin(producers, 1)
    assert outcome(producers, data(1), guard) == GAP
    assert outcome(producers, data(0), guard) == ErrorCode.NONE


# The end of verifications without an append


@pytest.mark.parametrize(("age_ms", "is_kept"), [(99, True), (100, False)])
def test_verifications_expire_by_their_creation(age_ms: int, is_kept: bool) -> None:
    producers = ProducerStateManager()
    guard = begin(producers, now_ms=1000)
    assert begin(producers, now_ms=1050) is guard
    producers.expire(1000 + age_ms, expiration_ms=100)
    assert refused(producers, guard) is not is_kept


def test_there_is_a_bound_on_verifications_under_way() -> None:
    """A client may name any producer id."""
    producers = ProducerStateManager()
    guards = [begin(producers, producer_id=number) for number in range(VERIFICATIONS_MAX + 1)]
    codes = []
    for number in (0, 1, VERIFICATIONS_MAX):
        batch = sent(0, producer_id=number, transactional=True)
        codes.append(outcome(producers, batch, guards[number]))
    assert codes == [STATE, ErrorCode.NONE, ErrorCode.NONE]
