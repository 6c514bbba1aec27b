"""What a partition takes from idempotent producers, and what it remembers of them after a restart."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.machine.shard import EndTransaction
from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.limits import PRODUCERS_OF_PARTITION_MAX
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig
from kohort.storage.producer_states import BATCHES_KEPT, SEQUENCE_MASK
from kohort.storage.producers import ProducerStateManager
from kohort.storage.segments.snapshots import snapshot_from_bytes, snapshot_to_bytes
from kohort.wire.batch_header import BASE_SEQUENCE_AT, PRODUCER_ID_AT
from kohort.wire.batches import BatchHeader, BatchRecord, build_batch, read_header
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon
from tests.wire.control_batches import control_batch

PRODUCER = 7
OLD, NOW, NEW = 2, 3, 4
"""Producer epochs: before the producer's, its own, and the next."""


def sent(
    sequence: int, *, count: int = 1, epoch: int = NOW, producer_id: int = PRODUCER, transactional: bool = False
) -> bytes:
    return build_batch(
        [BatchRecord(None, b"v")] * count,
        timestamp_ms=1000 + (sequence & 0xFF),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    *, epoch: int = NOW, committed: bool = True, coordinator_epoch: int = 0, producer_id: int = PRODUCER
) -> bytes:
    return control_batch(
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=5000,
    )


def learned(*batches: bytes) -> ProducerStateManager:
    producers, offset = ProducerStateManager(), 0
    for batch in batches:
        update(producers, batch, offset)
        offset += read_header(batch).record_count
    return producers


def update(producers: ProducerStateManager, batch: bytes, offset: int) -> None:
    header = read_header(batch)
    stamped = offset.to_bytes(8, "big") + batch[8:]
    producers.update(stamped, (0, len(batch), offset, offset + header.last_offset_delta, header.max_timestamp))


def judge(producers: ProducerStateManager, header: BatchHeader) -> int | ErrorCode:
    """NONE when the batch is to be written, the offset of the first when it is a duplicate, or the refusal."""
    state = producers.states.get(header.producer_id)
    written = state.find(header.producer_epoch, header.base_sequence, header.last_sequence) if state else None
    if written is not None:
        return written.first_offset
    try:
        producers.check(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    except CoordinatorError as error:
        return error.code
    return ErrorCode.NONE


GAP, EPOCH = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
WRITTEN = ErrorCode.NONE
MAX = SEQUENCE_MASK
# fmt: off
SEQUENCES = {  # what was written before: what comes, and what becomes of it
    "unknown, from the beginning":         ([],                                    sent(0),                     WRITTEN),
    "unknown, any sequence":               ([],                                    sent(17),                    WRITTEN),
    "the next":                            ([sent(0, count=3)],                    sent(3),                     WRITTEN),
    "a gap":                               ([sent(0, count=3)],                    sent(4),                     GAP),
    "the same":                            ([sent(0, count=3)],                    sent(0, count=3),            0),
    "the same of some batches ago":        ([sent(n) for n in range(5)],           sent(0),                     0),
    "the same of more batches ago":        ([sent(n) for n in range(6)],           sent(0),                     GAP),
    "same first, fewer records":           ([sent(0, count=3)],                    sent(0, count=2),            GAP),
    "same last, other first":              ([sent(0), sent(1, count=2)],           sent(2),                     GAP),
    "two batches joined":                  ([sent(0), sent(1)],                    sent(0, count=2),            GAP),
    "an old epoch":                        ([sent(0)],                             sent(1, epoch=OLD),          EPOCH),
    "an old epoch's first":                ([sent(0)],                             sent(0, epoch=OLD),          EPOCH),
    "a new epoch from the beginning":      ([sent(0)],                             sent(0, epoch=NEW),          WRITTEN),
    "a new epoch that goes on":            ([sent(0)],                             sent(1, epoch=NEW),          GAP),
    "the old epoch's batch in a new one":  ([sent(0), sent(0, epoch=NEW)],         sent(0, epoch=NOW),          EPOCH),
    "another producer":                    ([sent(0)],                             sent(9, producer_id=8),      WRITTEN),
    "the largest sequence":                ([sent(MAX - 1)],                       sent(MAX),                   WRITTEN),
    "0 after the largest":                 ([sent(MAX)],                           sent(0),                     WRITTEN),
    "1 after the largest":                 ([sent(MAX)],                           sent(1),                     GAP),
    "after a batch across the end":        ([sent(MAX - 1, count=4)],              sent(2),                     WRITTEN),
    "a batch across the end again":        ([sent(MAX - 1, count=4)],              sent(MAX - 1, count=4),      0),
    "after a marker of the same epoch":    ([sent(0, transactional=True), marker()], sent(1),                   WRITTEN),
    "from 0 after a marker of that epoch": ([sent(0, transactional=True), marker()], sent(5),                   GAP),
    "from 0 after a marker of a new one":  ([sent(0, transactional=True), marker(epoch=NEW)],
                                                                                   sent(0, epoch=NEW),          WRITTEN),
    "on after a marker of a new epoch":    ([sent(0, transactional=True), marker(epoch=NEW)],
                                                                                   sent(1, epoch=NEW),          GAP),
    "plain within a transaction":          ([sent(0, transactional=True)],         sent(1),        ErrorCode.INVALID_TXN_STATE),
}
# fmt: on


@pytest.mark.parametrize("what", SEQUENCES)
def test_sequences(what: str) -> None:
    before, comes, outcome = SEQUENCES[what]
    assert judge(learned(*before), read_header(comes)) == outcome


FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
OPEN, ENDED = [sent(0, transactional=True)], [sent(0, transactional=True), marker(coordinator_epoch=5)]
LAST = [sent(0, epoch=32767, transactional=True)]
# fmt: off
MARKERS = {  # what was written before: epochs of the marker (producer's, coordinator's), transaction version, outcome
    "of an unknown producer":              ([],    0,   0, 1, None),
    "of an open transaction":              (OPEN,  NOW, 0, 1, None),
    "version 2, same epoch":               (OPEN,  NOW, 0, 2, EPOCH),
    "version 2, next epoch":               (OPEN,  NEW, 0, 2, None),
    "version 2, the last epoch":           (LAST,  32767, 0, 2, None),
    "version 2, before the last epoch":    (LAST,  32766, 0, 2, EPOCH),
    "version 2, nothing open":             (ENDED, NOW, 5, 2, None),
    "an old epoch":                        (OPEN,  OLD, 0, 1, EPOCH),
    "an old coordinator":                  (ENDED, NOW, 4, 1, FENCED),
    "an old epoch of an old coordinator":  (ENDED, OLD, 4, 1, EPOCH),
}
# fmt: on


@pytest.mark.parametrize("what", MARKERS)
def test_markers(what: str) -> None:
    before, epoch, coordinator_epoch, version, refusal = MARKERS[what]
    producers = learned(*before)
    judged: AbstractContextManager[Any] = nullcontext() if refusal is None else pytest.raises(CoordinatorError)
    with judged as error:
        producers.check_marker(
            EndTransaction(PRODUCER, epoch, coordinator_epoch, committed=True, transaction_version=version)
        )
    assert refusal is None or (error is not None and error.value.code == refusal)


def test_producers_expire_by_their_timestamps() -> None:
    producers = learned(sent(0, producer_id=1), sent(0, producer_id=2, transactional=True))
    producers.expire(1000 + 99, expiration_ms=100)
    assert set(producers.states) == {1, 2}
    producers.expire(1000 + 100, expiration_ms=100)
    assert set(producers.states) == {2}, "within a transaction nobody expires"


@dataclass
class Naive:
    """Every batch that was ever taken, looked through from the start each time."""

    taken: list[tuple[BatchHeader, int]] = field(default_factory=list)
    end_offset: int = 0

    def judge(self, header: BatchHeader) -> int | ErrorCode:
        own = [(taken, offset) for taken, offset in self.taken if taken.producer_id == header.producer_id]
        if not own:
            return WRITTEN
        epoch = own[-1][0].producer_epoch
        if header.producer_epoch != epoch:
            if header.producer_epoch < epoch:
                return EPOCH
            return WRITTEN if header.base_sequence == 0 else GAP
        current = [(taken, offset) for taken, offset in own if taken.producer_epoch == epoch]
        for taken, offset in current[-BATCHES_KEPT:]:
            if (taken.base_sequence, taken.last_sequence) == (header.base_sequence, header.last_sequence):
                return offset
        sequences = sum(taken.record_count for taken, _ in current) + current[0][0].base_sequence
        return WRITTEN if header.base_sequence == sequences % (MAX + 1) else GAP

    def take(self, header: BatchHeader) -> None:
        self.taken.append((header, self.end_offset))
        self.end_offset += header.record_count


@st.composite
def attempts(draw: st.DrawFn) -> list[bytes]:
    """Batches near each other and near the end of sequences, so that most rules are met."""
    start = draw(st.sampled_from([0, 1, MAX - 2, MAX]))
    return [
        sent(
            (start + draw(st.integers(0, 6))) & MAX if draw(st.booleans()) else draw(st.integers(0, 3)),
            count=draw(st.integers(1, 3)),
            epoch=draw(st.sampled_from([NOW, NOW, NOW, NEW, OLD])),
            producer_id=draw(st.integers(1, 2)),
        )
        for _ in range(draw(st.integers(1, 30)))
    ]


@given(attempts())
def test_producers_agree_with_a_naive_model(batches: list[bytes]) -> None:
    naive, producers = Naive(), ProducerStateManager()
    for batch in batches:
        header = read_header(batch)
        outcome = judge(producers, header)
        assert outcome == naive.judge(header)
        if outcome is WRITTEN:
            update(producers, batch, naive.end_offset)
            naive.take(header)


def known(producers: ProducerStateManager) -> dict[int, object]:
    """What a restart must keep of each producer."""
    return {
        producer_id: (
            state.producer_epoch,
            state.last_sequence,
            state.timestamp_ms,
            state.coordinator_epoch,
            state.transaction_offset,
        )
        for producer_id, state in producers.states.items()
    }


SMALL = LogConfig(segment_bytes=300)


def crash(store: DiskStore, owner: Owner) -> None:
    """Leave the directory as it is: flushed, but not closed."""
    store.flush()
    owner.run_posted()
    abandon(store)


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """What producers with transactions write when all goes well."""
    sequences, open_, history = {1: 0, 2: 0, 3: 0}, set(), []
    for _ in range(draw(st.integers(1, 25))):
        producer = draw(st.sampled_from([1, 2, 3]))
        if producer in open_ and draw(st.booleans()):
            history.append(marker(producer_id=producer, committed=draw(st.booleans())))
            open_.discard(producer)
            continue
        count = draw(st.integers(1, 3))
        history.append(sent(sequences[producer], count=count, producer_id=producer, transactional=producer != 3))
        sequences[producer] += count
        if producer != 3:
            open_.add(producer)
    return history


@pytest.mark.parametrize("leave", [lambda store, _: store.close(), crash], ids=["clean", "crash"])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40, deadline=None
)
@given(history=histories())
def test_a_restart_knows_what_was_known(
    leave: Callable[[DiskStore, Owner], None], history: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory, owner = tmp_path_factory.mktemp("log"), Owner()
    store = owner.disk(directory)
    log = store.open(PARTITION, TOPIC_ID, SMALL)
    for batch in history:
        log.append(batch, leader_epoch=0)
    store.flush()
    before, stable = known(log.producers), log.last_stable_offset
    aborted = log.aborted_transactions(0, log.read(0, bytes_max=1 << 20))
    leave(store, owner)
    again = Owner().disk(directory)
    found = again.open(PARTITION, TOPIC_ID, SMALL)
    assert (known(found.producers), found.last_stable_offset) == (before, stable)
    assert found.aborted_transactions(0, found.read(0, bytes_max=1 << 20)) == aborted
    again.close()


def test_a_snapshot_is_believed_whole_or_not_at_all() -> None:
    data = snapshot_to_bytes(learned(sent(0), sent(5, producer_id=8, transactional=True)))
    assert {state.producer_id for state in snapshot_from_bytes(data)} == {7, 8}
    for cut in range(len(data)):
        with pytest.raises(CorruptError):
            snapshot_from_bytes(data[:cut])
    for position in range(6, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptError):
            snapshot_from_bytes(bytes(damaged))


@pytest.mark.parametrize("damage", [b"", b"\x00\x01torn"])
def test_a_damaged_snapshot_is_made_up_for_by_the_log(tmp_path: Path, damage: bytes) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, SMALL)
    for sequence in range(12):
        log.append(sent(sequence), leader_epoch=0)
    before = known(log.producers)
    crash(store, owner)
    snapshots = sorted(tmp_path.glob("orders-0/*.snapshot"))
    assert snapshots
    snapshots[-1].write_bytes(damage)
    again = Owner().disk(tmp_path)
    assert known(again.open(PARTITION, TOPIC_ID, SMALL).producers) == before
    again.close()


def test_a_transaction_is_unstable_until_the_high_watermark_passes_its_marker() -> None:
    producers = learned(
        sent(0, transactional=True), sent(0, transactional=True, producer_id=8), marker(producer_id=PRODUCER)
    )
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(2)
    assert producers.first_unstable_offset == 0, "the marker at offset 2 is not below the high watermark"
    update(producers, marker(producer_id=8), 3)
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 1
    producers.on_high_watermark(4)
    assert producers.first_unstable_offset is None


def test_open_transactions_of_a_snapshot_are_in_the_order_of_the_log() -> None:
    late = learned(sent(0, transactional=True), sent(0, transactional=True, producer_id=8)).states
    producers = ProducerStateManager([late[8], late[PRODUCER]])
    assert producers.first_unstable_offset == 0
    assert producers.oldest_transaction_ms == late[PRODUCER].timestamp_ms


class Writing:
    """Producers of one partition that write a batch each."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager()
        self._offset = 0
        self._batch = bytearray(sent(0))

    def begin(self, producer_id: int) -> None:
        update(self.producers, sent(0, producer_id=producer_id, transactional=True), self._offset)
        self._offset += 1

    def write(self, producer_id: int, sequence: int = 0) -> None:
        batch = self._batch
        batch[PRODUCER_ID_AT : PRODUCER_ID_AT + 8] = producer_id.to_bytes(8, "big")
        batch[BASE_SEQUENCE_AT : BASE_SEQUENCE_AT + 4] = sequence.to_bytes(4, "big")
        self.producers.update(batch, (0, len(batch), self._offset, self._offset, 0))
        self._offset += 1


def test_the_number_of_producers_of_a_partition_is_bounded() -> None:
    """Those that write, and those with an open transaction, stay. Others begin again, as after their expiration."""
    log = Writing()
    states = log.producers.states
    log.begin(1)
    for number in range(PRODUCERS_OF_PARTITION_MAX + 20_000):
        log.write(1_000 + number)
        if number % 1_000 == 0:
            log.write(2, number // 1_000)
    assert len(states) == PRODUCERS_OF_PARTITION_MAX
    assert states[1].transaction_offset == 0
    assert states[2].last_sequence == 119
    newest = 1_000 + PRODUCERS_OF_PARTITION_MAX + 20_000
    assert all(producer_id in states for producer_id in range(newest - 99_990, newest))


def test_no_order_of_writes_makes_them_more() -> None:
    log = Writing()
    for number in range(PRODUCERS_OF_PARTITION_MAX):
        log.write(number)
    for number in reversed(range(PRODUCERS_OF_PARTITION_MAX)):
        log.write(number, 1)
    for number in range(1_000):
        log.write(PRODUCERS_OF_PARTITION_MAX + number)
    assert len(log.producers.states) == PRODUCERS_OF_PARTITION_MAX
