"""
Any mix of what can happen to a log, beside a list: appends of every kind, rolls, deletions, retention, cleaning, clean stops,
and power cuts that take what was not acknowledged. Every read, every search by time, and what readers of committed data see
agree.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.storage.log import LogConfig, TimestampOffset
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_header, read_records
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.compacted import clean, make_durable, roll
from tests.storage.conftest import IN_MEMORY
from tests.storage.listed import ListedBatch, ListedLog, ListedRecord
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon
from tests.storage.power_cut import cut_power
from tests.storage.read_committed import committed_records
from tests.wire.control_batches import control_batch

RETENTION_MS = 1000
CONFIGS = {
    "delete": LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=RETENTION_MS),
    "compact": LogConfig(
        segment_bytes=900,
        index_interval_bytes=150,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=RETENTION_MS,
    ),
}
WAITS = [0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1]

times = st.integers(-30, 30)
contents = st.lists(st.tuples(st.sampled_from("abcde"), st.booleans(), times), min_size=1, max_size=4)
sets = st.lists(st.tuples(st.integers(0, 4), contents), min_size=1, max_size=3)
"""Batches that are appended at once: codec, and keys, whether there is a value, and times."""
producers = st.sampled_from([1, 2, 3])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), sets),
        st.tuples(st.just("idempotent"), st.sampled_from([7, 8]), contents),
        st.tuples(st.just("transactional"), producers, contents),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.just("flush")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("roll")),
        st.tuples(st.just("lead")),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.just("retain"), st.sampled_from(WAITS)),
        st.tuples(st.just("clean"), st.sampled_from(WAITS)),
        st.tuples(st.just("stop")),
        st.tuples(st.just("crash"), st.integers(0, 1 << 16)),
    ),
    min_size=5,
    max_size=50,
)


class Run(ExitStack):
    """A log and its list, side by side. Each power cut is followed by a start on another directory."""

    def __init__(self, config: LogConfig) -> None:
        super().__init__()
        self.config = config
        self.owner, self.model = Owner(), ListedLog()
        self.base = Path(self.enter_context(TemporaryDirectory(dir=IN_MEMORY)))
        self.starts = self.values = self.epoch = 0
        self.path = self.base / "0"
        self.files = self.enter_context(FaultyFiles(self.path))
        self.open()

    def open(self) -> None:
        self.store: Any = self.owner.disk(self.path)
        self.log: Any = self.store.open(PARTITION, TOPIC_ID, self.config)
        self.epoch = max(self.epoch, self.log.leader_epoch)

    # What happens

    def append(self, chosen: list[tuple[int, Any]]) -> None:
        data = b"".join(self.batch(found, compression=codec) for codec, found in chosen)
        self.log.append(data, leader_epoch=self.epoch)

    def produce(self, producer_id: int, found: Any, *, is_transactional: bool) -> None:
        sequence = self.model.next_sequence(producer_id)
        self.check_sequences(producer_id, sequence, is_transactional=is_transactional)
        self.log.append(
            self.batch(
                found,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=is_transactional,
            ),
            leader_epoch=self.epoch,
        )

    def check_sequences(self, producer_id: int, sequence: int, *, is_transactional: bool) -> None:
        """The next one is taken; one that leaves something out is not, if the producer is known at all."""
        self.log.producers.check(
            producer_id=producer_id, producer_epoch=0, first_sequence=sequence, is_transactional=is_transactional
        )
        state = self.log.producers.states.get(producer_id)
        if state is not None and state.producer_epoch >= 0:
            with pytest.raises(CoordinatorError) as refused:
                self.log.producers.check(
                    producer_id=producer_id,
                    producer_epoch=0,
                    first_sequence=sequence + 1,
                    is_transactional=is_transactional,
                )
            assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def batch(self, found: Any, **header: Any) -> bytes:
        """A batch, entered into the list as if it were in the log."""
        now_ms, base_offset = self.owner.clock.now_ms(), self.model.end
        self.values += 1
        records = [
            BatchRecord(key.encode(), b"%d.%d" % (self.values, n) if has_value else None, timestamp_ms=now_ms + time)
            for n, (key, has_value, time) in enumerate(found)
        ]
        self.model.batches.append(
            ListedBatch(
                base_offset,
                base_offset + len(records) - 1,
                [
                    ListedRecord(base_offset + n, record.key, record.value, record.timestamp_ms or 0)
                    for n, record in enumerate(records)
                ],
                header.get("producer_id", -1),
                header.get("base_sequence", -1) + len(records),
                is_transactional=header.get("transactional", False),
            )
        )
        return build_batch(records, timestamp_ms=now_ms, **header)

    def end(self, producer_id: int, committed: bool) -> None:
        if producer_id not in self.model.open_producers():
            assert not self.log.producers.has_transaction(producer_id)
            return
        marker = control_batch(
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp_ms=self.owner.clock.now_ms(),
        )
        end_offset = self.log.append(marker, leader_epoch=self.epoch)
        (record,) = read_records(marker)
        self.model.batches.append(
            ListedBatch(
                end_offset - 1,
                end_offset - 1,
                [ListedRecord(end_offset - 1, record.key, record.value, record.timestamp)],
                producer_id,
                is_transactional=True,
                committed=committed,
            )
        )

    def lead(self) -> None:
        self.epoch += 1
        self.log.become_leader(self.epoch)

    def delete(self, percent: int) -> None:
        """Not into an open transaction: what is told of one that is gone in part is a matter of its own."""
        stable = self.model.stable_end(self.log.high_watermark)
        self.raise_start(self.model.start + max(stable - self.model.start, 0) * percent // 100)

    def raise_start(self, offset: int) -> None:
        model = self.model

        def done() -> None:
            model.durable_start = max(model.durable_start, offset)

        if offset > model.start:
            model.start = offset
            self.log.delete_before(offset, done)

    def retain(self, elapsed_ms: int) -> None:
        self.end_all()
        self.store.flush()
        self.owner.node.advance(elapsed_ms)
        before, limit_ms = self.model.start, self.owner.clock.now_ms() - RETENTION_MS
        self.log.apply_retention(self.owner.clock.now_ms())
        if self.config.cleanup_policy != "delete":
            assert self.log.log_start_offset == before
            return
        self.model.start = max(before, self.log.log_start_offset)
        gone = (record for record in self.model.records(before) if record.offset < self.model.start)
        assert all(record.timestamp_ms < limit_ms for record in gone)
        ends = [segment.base_offset for segment in self.log.segments[1:]]
        last = next((end for end in ends if end > self.log.log_start_offset), self.model.end)
        if self.log.high_watermark == self.model.end > self.log.log_start_offset:
            first = next(base for base in [0, *ends][::-1] if base <= self.log.log_start_offset)
            kept = [record for record in self.model.records(first) if record.offset < last]
            assert any(record.timestamp_ms >= limit_ms for record in kept), "a segment that has expired is there"

    def end_all(self) -> None:
        for producer_id in sorted(self.model.open_producers()):
            self.end(producer_id, True)

    def clean(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        self.store.flush()
        before = self.model.newest_of_keys(self.log.last_stable_offset)
        clean(self.owner, self.store)
        assert not self.store.cleaner.uncleanable
        if self.config.cleanup_policy == "compact":
            self.model.is_whole = False
            self.see_what_is_left()
            after = self.model.newest_of_keys(self.log.last_stable_offset)
            for key, record in before.items():
                assert after.get(key, record) == record
                assert key in after or record.value is None

    def see_what_is_left(self) -> None:
        """A cleaner may take, and nothing else."""
        log, offset = self.log, self.log.log_start_offset
        left: dict[int, set[int]] = {}
        while data := log.read(offset, bytes_max=1 << 20):
            for position, header in iter_batches(data):
                found = read_records(memoryview(data)[position:], header=header)
                left[header.base_offset] = {record.offset for record in found}
                offset = header.next_offset
        assert left.keys() <= {batch.base_offset for batch in self.model.batches}
        for batch in self.model.batches:
            if batch.last_offset >= log.log_start_offset:
                batch.is_present = batch.base_offset in left
                offsets = left.get(batch.base_offset, set())
                batch.records = [record for record in batch.records if record.offset in offsets]

    def stop(self) -> None:
        self.store.close()
        self.model.durable_start = self.model.start
        self.open()
        assert self.log.end_offset == self.model.end
        assert self.log.log_start_offset == self.model.start

    def crash(self, seed: int) -> None:
        """What was acknowledged is there, and of the rest as much as can be read in order."""
        acknowledged = self.log.high_watermark
        self.abandon()
        self.starts += 1
        self.path = self.base / str(self.starts)
        cut_power(self.files, seed, self.path)
        self.files = self.enter_context(FaultyFiles(self.path))
        self.open()
        self.take_up(acknowledged)

    def take_up(self, acknowledged: int) -> None:
        """Go on with what the start after a crash has found."""
        assert acknowledged <= self.log.end_offset <= self.model.end
        assert self.model.durable_start <= self.log.log_start_offset <= self.model.start
        self.model.cut(self.log.end_offset)
        assert self.model.end == self.log.end_offset
        self.model.start = self.log.log_start_offset

    def abandon(self) -> None:
        """The process is gone."""
        abandon(self.store)
        now_ms, self.owner = self.owner.clock.now_ms(), Owner()  # what the dead one has still to do is done by nobody
        self.owner.clock.set(now_ms)

    # What is so

    def check(self) -> None:
        log, model = self.log, self.model
        assert log.end_offset == model.end
        assert log.log_start_offset == model.start
        assert log.last_stable_offset == model.stable_end(log.high_watermark)
        assert {
            state for state in log.producers.states if log.producers.has_transaction(state)
        } == model.open_producers()
        self.check_reads()
        self.check_times()
        for offset in {model.start, (model.start + model.end) // 2}:
            wanted = model.committed(offset, log.last_stable_offset)
            assert list(self.committed(offset)) == [record.offset for record in wanted]

    def check_reads(self) -> None:
        """From each offset: the batch that holds it, or the next one; and in all its records."""
        log, bound = self.log, self.log.high_watermark
        for offset in range(self.model.start, bound + 1):
            data = log.read(offset, bytes_max=1, up_to=bound)
            wanted = self.model.batch_at(offset, bound)
            if wanted is None:
                assert data == b""
                continue
            header = read_header(data)
            assert (header.base_offset, header.last_offset, header.size_bytes) == (
                wanted.base_offset,
                wanted.last_offset,
                len(data),
            )
            if offset in (wanted.base_offset, self.model.start):
                found = [
                    ListedRecord(record.offset, record.key, record.value, record.timestamp)
                    for record in read_records(data)
                ]
                assert found == wanted.records

    def check_times(self) -> None:
        """At each time that there is, just before, and just after."""
        model, log = self.model, self.log
        known = {record.timestamp_ms for record in model.records(0)}
        for timestamp_ms in {time + step for time in known for step in (-1, 0, 1)}:
            assert place(log.offset_for_timestamp(timestamp_ms)) == place_of(model.first_at_least(timestamp_ms))
        if model.is_whole:
            assert place(log.max_timestamp()) == place_of(model.newest())

    def committed(self, offset: int) -> Iterator[int]:
        """The offsets that a consumer with `read_committed` is given."""
        log, start, bound = self.log, offset, self.log.last_stable_offset
        while offset < bound and (data := log.read(offset, bytes_max=300, up_to=bound)):
            aborted = [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(offset, data)]
            yield from (record.offset for record in committed_records(data, aborted) if record.offset >= start)
            offset = [header.next_offset for _, header in iter_batches(data)][-1]


def place(found: TimestampOffset | None) -> tuple[int, int] | None:
    return None if found is None else (found.offset, found.timestamp_ms)


def place_of(found: ListedRecord | None) -> tuple[int, int] | None:
    return None if found is None else (found.offset, found.timestamp_ms)


def do(run: Run, step: tuple[Any, ...]) -> None:
    match step:
        case ("append", chosen):
            run.append(chosen)
        case ("idempotent" | "transactional" as kind, producer_id, found):
            run.produce(producer_id, found, is_transactional=kind == "transactional")
        case ("flush",):
            run.store.flush()
        case ("checkpoint",):
            make_durable(run.owner, run.store)
        case ("roll",):
            roll(run.log)
        case (str(name), *arguments):
            getattr(run, name)(*arguments)


@settings(max_examples=3000 if LONG else 60)
@given(st.sampled_from(sorted(CONFIGS)), steps)
def test_a_log_agrees_with_a_list(policy: str, chosen: list[tuple[Any, ...]]) -> None:
    with Run(CONFIGS[policy]) as run:
        for step in chosen:
            do(run, step)
            run.check()
        do(run, ("flush",))
        run.check()
        assert run.log.high_watermark == run.model.end
        run.stop()
        run.check()
        run.store.close()
