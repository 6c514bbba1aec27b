"""Transactional writes and their ends; the numbers in brackets are the rows of Kafka's own test scenarios."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError
from kohort.wire.batches import read_header, read_marker, read_records
from tests.runtime.harness import Bench
from tests.runtime.shards import POISONED_PRODUCER_ID, Put

PRODUCER = Producer("orders", 9, 3)
COMMIT = EndTransaction(9, 3, coordinator_epoch=17, committed=True)
ABORT = EndTransaction(9, 3, coordinator_epoch=17, committed=False)


def test_records_of_a_transaction_are_a_batch_apart_and_pending() -> None:  # [16]
    bench = Bench().load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1), ("y", 2))
    assert bench.log.appends == 1, "appended at once"
    header = read_header(bench.log.batches[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
    assert header.is_transactional
    assert not header.is_control
    assert bench.shard.producers == [(9, 3), (9, 3)]
    assert bench.shard.table == {}
    assert bench.shard.pending == {9: (Put("x", 1), Put("y", 2))}
    assert bench.answers["a"] == []
    bench.log.commit()
    assert bench.answers["a"] == ["ok"]


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize("error", [None, CoordinatorError(ErrorCode.INVALID_TXN_STATE)])
def test_nothing_is_written_for_a_transaction_that_is_not_verified(  # [17]
    is_asynchronous: bool, error: Exception | None
) -> None:
    asked: list[tuple[int, Producer]] = []
    later: list[Callable[[], None]] = []

    def verify(partition: int, producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        asked.append((partition, producer))
        if is_asynchronous:
            later.append(lambda: verified(error))
        else:
            verified(error)

    bench = Bench(verify=verify).load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    for answer in later:
        assert bench.answers["a"] == []
        assert bench.log.appends == 0
        answer()
    assert asked == [(0, PRODUCER)]
    assert bench.log.appends == (0 if error else 1)
    bench.log.commit()
    assert bench.answers["a"] == (["INVALID_TXN_STATE"] if error else ["ok"])


def test_a_transaction_that_is_open_in_the_partition_is_not_verified() -> None:
    """Seen on 4.2.1: with a transaction of the producer id open, any transactional id is accepted."""
    asked: list[Producer] = []

    def verify(_partition: int, producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        asked.append(producer)
        verified(None if len(asked) == 1 else CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING))

    bench = Bench(verify=verify).load()
    bench.put_in_transaction("first", PRODUCER, ("x", 1))
    bench.put_in_transaction("second", Producer("unknown", 9, 3), ("y", 1))
    bench.put_in_transaction("earlier epoch", Producer("orders", 9, 2), ("z", 1))
    bench.end("end", COMMIT)
    bench.put_in_transaction("after", PRODUCER, ("z", 1))
    bench.log.commit()
    assert bench.answers == {
        "first": ["ok"],
        "second": ["ok"],
        "earlier epoch": ["INVALID_PRODUCER_EPOCH"],
        "end": ["ended"],
        "after": ["INVALID_PRODUCER_ID_MAPPING"],
    }
    assert asked == [PRODUCER, PRODUCER]


@pytest.mark.parametrize(("adds_partition", "answer"), [(True, "ok"), (False, "INVALID_TXN_STATE")])
def test_a_partition_added_after_the_end_of_the_previous_transaction_is_verified_anew(
    adds_partition: bool, answer: str
) -> None:
    """A coordinator that adds partitions may wait for that end, whose marker makes the guard invalid."""
    asked: list[Callable[[Exception | None], None]] = []
    bench = Bench(verify=lambda _partition, _producer, verified: asked.append(verified)).load()
    bench.put_in_transaction("late", Producer("orders", 9, 3, adds_partition), ("x", 1))
    bench.end("end", COMMIT)
    asked.pop()(None)
    assert len(asked) == adds_partition
    for verified in asked:
        verified(None)
    bench.log.commit()
    assert bench.answers["late"] == [answer]


@pytest.mark.parametrize(("end", "table"), [(COMMIT, {"x": 1}), (ABORT, {})])
def test_the_end_of_a_transaction_moves_or_drops_what_was_pending(end: EndTransaction, table: Any) -> None:  # [18]
    bench = Bench().load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    bench.end("end", end)
    assert bench.shard.table == table
    assert bench.shard.pending == {}
    assert bench.answers["end"] == []
    header = read_header(bench.log.batches[1])
    assert (header.producer_id, header.producer_epoch, header.is_control) == (9, 3, True)
    marker = read_marker(read_records(bench.log.batches[1])[0])
    assert marker is not None
    assert (marker.committed, marker.coordinator_epoch) == (end.committed, 17)
    assert bench.read() == {}
    bench.log.commit()
    assert bench.answers["end"] == ["ended"]
    assert bench.read() == table


@pytest.mark.parametrize(
    ("timeout_ms", "waited_ms", "answer"),
    [
        (None, 4_999, []),
        (None, 5_000, ["REQUEST_TIMED_OUT"]),
        (100, 99, []),
        (100, 100, ["REQUEST_TIMED_OUT"]),
        (9_000, 5_000, []),
        (9_000, 9_000, ["REQUEST_TIMED_OUT"]),
    ],
)
def test_a_marker_that_is_not_committed_in_time_stays(  # [19, 40]
    timeout_ms: int | None, waited_ms: int, answer: list[str]
) -> None:
    bench = Bench().load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    bench.end("end", COMMIT, timeout_ms)
    bench.node.advance(waited_ms)
    assert bench.answers["end"] == answer
    assert bench.shard.table == {"x": 1}
    bench.log.commit()
    assert bench.read() == {"x": 1}
    bench.node.advance(60_000)
    assert bench.answers["end"] == (answer or ["ended"]), "answered once"


def test_an_earlier_deadline_behind_a_later_one_is_kept() -> None:  # [14, 19]
    bench = Bench().load()
    bench.put_in_transaction("slow", PRODUCER, ("x", 1))
    bench.end("quick", COMMIT, 10)
    bench.node.advance(10)
    assert bench.answers == {"slow": [], "quick": ["REQUEST_TIMED_OUT"]}
    bench.node.advance(4_990)
    assert bench.answers["slow"] == ["REQUEST_TIMED_OUT"]


def test_a_marker_that_could_not_be_written_leaves_the_transaction_pending() -> None:  # [20]
    bench = Bench().load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    bench.log.fail_next_append = UnavailableError("the disk is gone")
    bench.end("end", COMMIT)
    assert bench.answers["end"] == ["UnavailableError: the disk is gone"]
    assert bench.shard.pending == {9: (Put("x", 1),)}
    assert bench.shard.table == {}
    bench.end("again", COMMIT)
    bench.log.commit()
    assert bench.answers["again"] == ["ended"]
    assert bench.read() == {"x": 1}


def test_a_marker_that_cannot_be_replayed_is_not_written() -> None:  # [21]
    bench = Bench().load()
    bench.put_in_transaction("a", Producer("orders", POISONED_PRODUCER_ID, 0), ("x", 1))
    bench.end("end", EndTransaction(POISONED_PRODUCER_ID, 0, coordinator_epoch=1, committed=True))
    assert bench.answers["end"] == ["RuntimeError: poison"]
    assert bench.log.appends == 1
    assert list(bench.shard.pending) == [POISONED_PRODUCER_ID]


def test_records_of_a_transaction_that_could_not_be_written_are_not_pending() -> None:
    bench = Bench().load()
    bench.log.fail_next_append = UnavailableError("the disk is gone")
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    assert bench.answers["a"] == ["UnavailableError: the disk is gone"]
    assert bench.shard.pending == {}


def test_transactions_flush_what_is_open_and_share_no_batch() -> None:  # [46]
    bench = Bench(linger_ms=10).load()
    bench.put("one", ("a", 1))
    assert bench.epochs() == (0,)
    bench.put_in_transaction("two", PRODUCER, ("b", 2))
    assert (bench.epochs(), bench.log.end_offset) == ((0, 1), 2)
    bench.put("three", ("c", 3))
    assert bench.log.appends == 2
    bench.end("four", COMMIT)
    assert (bench.epochs(), bench.log.end_offset) == ((0, 1, 2, 3), 4)
    assert [read_header(batch).is_transactional for batch in bench.log.batches] == [False, True, False, True]
    assert bench.answers == {"one": [], "two": [], "three": [], "four": []}
    bench.log.commit()
    assert bench.answers == {"one": ["ok"], "two": ["ok"], "three": ["ok"], "four": ["ended"]}
    assert bench.read() == {"a": 1, "b": 2, "c": 3}


def test_a_failure_of_what_is_open_fails_who_would_have_come_behind() -> None:
    bench = Bench().load()
    bench.put("open", ("a", 1))
    bench.log.fail_next_append = UnavailableError("gone")
    bench.put_in_transaction("behind", PRODUCER, ("b", 2))
    assert bench.answers == {"open": ["UnavailableError: gone"], "behind": ["UnavailableError: gone"]}
    bench.put("open again", ("a", 1))
    bench.log.fail_next_append = UnavailableError("gone")
    bench.end("end", COMMIT)
    assert bench.answers["open again"] == bench.answers["end"] == ["UnavailableError: gone"]
    assert bench.shard.table == {}


def test_a_partition_that_is_not_led_takes_no_transactions() -> None:  # [10]
    bench = Bench()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    bench.end("end", COMMIT)
    assert bench.answers == {"a": ["NOT_COORDINATOR"], "end": ["NOT_COORDINATOR"]}
    bench.load()
    bench.runtime.unload(0, None)
    bench.end("closed", ABORT)
    assert bench.answers["closed"] == ["NOT_COORDINATOR"]


def test_a_marker_that_lands_elsewhere_reloads_the_shard() -> None:  # [47]
    bench = Bench().load()
    bench.put_in_transaction("a", PRODUCER, ("x", 1))
    bench.log.shift_next_append = 1
    bench.end("end", COMMIT)
    assert bench.answers == {"a": ["NOT_COORDINATOR"], "end": ["NOT_COORDINATOR"]}
    bench.log.commit()
    bench.node.settle()
    assert bench.read() == {"x": 1}
    assert len(bench.shards) == 2


@pytest.mark.parametrize("overtaken_by", ["nothing", "an end", "an end and a new one"])
def test_an_end_that_overtakes_the_verification_makes_the_append_fail(overtaken_by: str) -> None:  # [16, 17]
    """Else the records would belong to no transaction, and block their readers for ever (KIP-890)."""
    asked: list[Callable[[Exception | None], None]] = []
    bench = Bench(verify=lambda _partition, _producer, verified: asked.append(verified)).load()
    bench.put_in_transaction("late", PRODUCER, ("x", 1))
    if overtaken_by != "nothing":
        bench.end("end", ABORT)
    if overtaken_by == "an end and a new one":
        bench.put_in_transaction("next", PRODUCER, ("b", 1))
        asked.pop()(None)
    before = len(bench.written())
    asked.pop()(None)
    bench.node.settle()
    bench.log.commit()
    if overtaken_by == "an end":
        assert bench.answers["late"] == ["INVALID_TXN_STATE"]
        assert len(bench.written()) == before
        assert not bench.shard.pending
    else:
        # Of a transaction that is open it is a part, whichever it was verified for.
        assert bench.answers["late"] == ["ok"]
        assert [put.name for put in bench.shard.pending[9]][-1] == "x"


EPOCH, FENCED = ErrorCode.INVALID_PRODUCER_EPOCH.name, ErrorCode.TRANSACTION_COORDINATOR_FENCED.name
# fmt: off
MARKERS = {  # after a transaction of epoch 3, open or ended by coordinator epoch 17: the marker, and its answer
    "an earlier epoch":                     (True,  EndTransaction(9, 2, 17, True),                         EPOCH),
    "an earlier epoch, nothing open":       (False, EndTransaction(9, 2, 17, True),                         EPOCH),
    "an earlier coordinator":               (False, EndTransaction(9, 3, 16, True),                         FENCED),
    "both earlier":                         (False, EndTransaction(9, 2, 16, True),                         EPOCH),
    "version 2, the epoch of the data":     (True,  EndTransaction(9, 3, 17, True, transaction_version=2),  EPOCH),
    "version 2, the next epoch":            (True,  EndTransaction(9, 4, 17, True, transaction_version=2),  "ended"),
    "version 2 again, nothing open":        (False, EndTransaction(9, 3, 17, True, transaction_version=2),  "ended"),
    "the same marker again":                (False, EndTransaction(9, 3, 17, True),                         "ended"),
}
# fmt: on


@pytest.mark.parametrize("what", MARKERS)
def test_markers_of_earlier_epochs_end_nothing(what: str) -> None:
    """Source: Kafka ProducerAppendInfo.appendEndTxnMarker; KIP-890."""
    is_open, end, answer = MARKERS[what]
    bench = Bench().load()
    bench.put_in_transaction("first", PRODUCER, ("x", 1))
    bench.end("first end", COMMIT)
    if is_open:
        bench.put_in_transaction("open", PRODUCER, ("x", 2))
    pending, before = dict(bench.shard.pending.items()), len(bench.written())
    bench.end("end", end)
    bench.log.commit()
    assert bench.answers["end"] == [answer]
    if answer != "ended":
        assert (dict(bench.shard.pending.items()), bench.read(), len(bench.written())) == (pending, {"x": 1}, before)
    bench.end("right end", EndTransaction(9, 9, 17, True))
    bench.log.commit()
    assert bench.answers["right end"] == ["ended"]
    assert bench.read() == {"x": 2 if is_open else 1}


@pytest.mark.parametrize("is_open", [True, False])
def test_a_fenced_producer_writes_nothing_into_the_transaction_of_its_successor(is_open: bool) -> None:
    """Source: Kafka ProducerAppendInfo.checkProducerEpoch, for the origin COORDINATOR as for clients."""
    bench = Bench().load()
    bench.put_in_transaction("successor", Producer("orders", 9, 4), ("x", 1))
    if not is_open:
        bench.end("end", EndTransaction(9, 4, 17, True))
    before = len(bench.written())
    bench.put_in_transaction("zombie", PRODUCER, ("x", 666))
    bench.put_in_transaction("successor again", Producer("orders", 9, 4), ("y", 2))
    assert bench.answers["zombie"] == [EPOCH]
    bench.end("last end", EndTransaction(9, 4, 17, True))
    bench.log.commit()
    assert bench.read() == {"x": 1, "y": 2}
    assert len(bench.written()) == before + 2
    assert bench.log.producers.states[9].producer_epoch == 4
