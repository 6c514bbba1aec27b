"""A share partition against one with an object for each record: members, locks in virtual time, failed writes, lost records."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kohort.broker.shares.acknowledgement import (
    Acknowledgement,
    AcknowledgementBatch,
    commit,
    expire,
    release,
    roll_back,
)
from kohort.broker.shares.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT, Acquisition, LogBatches, archive_aborted
from kohort.broker.shares.record_states import PENDING, ShareSettings
from kohort.broker.shares.runs import BEGINS, SPLIT
from kohort.broker.shares.share_partition import Change, Letter, SharePartition
from kohort.machine.ports import StateBatch
from kohort.model.errors import CoordinatorError
from tests.broker.shares.naive_share_partition import NaiveSharePartition, Pending

MEMBERS = st.sampled_from(["m1", "m2", "m3"])
LOCK_MS = 100

REFUSALS = {
    "not found": "The request batch offsets are not found",
    "first is past": "The first offset in request is past",
    "last is past": "The last offset in request is past",
    "offset state": "The offset is not acquired",
    "batch state": "The batch is not in the acquired state",
    "offset owner": "Member is not the owner of offset",
    "batch owner": "Member is not the owner of batch record",
    "renew": "Renewing acquisition locks is not enabled",
}


class SharePartitions(RuleBasedStateMachine):
    @initialize(
        limit=st.integers(2, 6),
        locks_max=st.sampled_from([7, 20, 200]),
        can_renew=st.booleans(),
        has_dead_letters=st.booleans(),
        start=st.integers(0, 5),
        persisted=st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from([0, 2, 3, 4]), st.integers(1, 6)),
            max_size=5,
        ),
    )
    def load(
        self,
        limit: int,
        locks_max: int,
        can_renew: bool,
        has_dead_letters: bool,
        start: int,
        persisted: list[tuple[int, int, int, int]],
    ) -> None:
        self.now = 1000
        self.settings = ShareSettings(LOCK_MS, limit, locks_max, can_renew, has_dead_letters)
        batches = []
        offset = start
        for gap, size, state, count in persisted:
            offset += gap
            batches.append(StateBatch(offset, offset + size - 1, state, count))
            offset += size
        self.real = SharePartition(start)
        self.letters: list[Letter] = self.real.load(batches)
        self.naive = NaiveSharePartition(start, self.settings, batches)
        self.log: list[tuple[int, int]] = []
        """The batches of the log: all offsets up to the end, in batches of three, with batches that compaction took."""
        self.log_end = 0
        self.log_start = 0
        self.produce([3] * (offset // 3 + 1), holes=set())
        self.writes: list[tuple[Change, Pending]] = []
        self.acquired: list[tuple[str, int, int]] = []

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4), holes=st.sets(st.integers(0, 9), max_size=1))
    def produce(self, sizes: list[int], holes: set[int]) -> None:
        for number, size in enumerate(sizes):
            if number not in holes:
                self.log.append((self.log_end, self.log_end + size - 1))
            self.log_end += size

    def _read(self, offset: int, batches: int) -> list[tuple[int, int]]:
        return [each for each in self.log if each[1] >= offset and each[1] >= self.log_start][:batches]

    @rule(
        member=MEMBERS,
        is_limited=st.booleans(),
        batch_size=st.integers(1, 8),
        records_max=st.integers(1, 20),
        batches=st.integers(1, 4),
        aborted=st.none() | st.sets(st.integers(0, 3)),
    )
    def fetch(
        self,
        member: str,
        is_limited: bool,
        batch_size: int,
        records_max: int,
        batches: int,
        aborted: set[int] | None,
    ) -> None:
        offset = self.real.next_offset()
        assert offset == self.naive.next_offset()
        assert self.real.may_fetch(self.settings.locks_max) == self.naive.may_fetch()
        if offset < self.log_start:
            self.real.on_log_start(self.log_start)
            self.naive.on_log_start(self.log_start)
            return
        log = self._read(offset, batches)
        mode = RECORD_LIMIT if is_limited else BATCH_OPTIMIZED
        acquisition = Acquisition(self.real, member, mode, batch_size, self.now, self.settings)
        found = acquisition.acquire(records_max, offset, LogBatches([low for low, _ in log], [high for _, high in log]))
        assert found == self.naive.acquire(
            member,
            is_limited=is_limited,
            batch_size=batch_size,
            records_max=records_max,
            log=log,
            fetch_offset=offset,
            now=self.now,
        )
        if aborted is not None:
            ranges = [log[number] for number in sorted(aborted) if number < len(log)]
            expected = self.naive.archive_aborted(found, ranges)
            found = archive_aborted(self.real, found, ranges)
            assert found == expected
        self.acquired += [(member, first, last) for first, last, _ in found]

    @precondition(lambda self: self.acquired)
    @rule(
        data=st.data(),
        types=st.lists(st.integers(0, 4), min_size=1, max_size=1)
        | st.lists(st.integers(0, 4), min_size=30, max_size=30),
        is_own=st.integers(0, 5),
        cuts=st.tuples(st.integers(-1, 2), st.integers(-1, 2)),
    )
    def acknowledge(self, data: st.DataObject, types: list[int], is_own: int, cuts: tuple[int, int]) -> None:
        member, first, last = data.draw(st.sampled_from(self.acquired))
        self._acknowledge(member if is_own else "m1", [(first, last)], types, cuts)

    @precondition(lambda self: len(self.acquired) > 1)
    @rule(data=st.data(), types=st.lists(st.integers(0, 4), min_size=30, max_size=30))
    def acknowledge_several(self, data: st.DataObject, types: list[int]) -> None:
        chosen = sorted(data.draw(st.lists(st.sampled_from(self.acquired), min_size=2, max_size=4)))
        mine = [(first, last) for member, first, last in chosen if member == chosen[0][0]]
        self._acknowledge(chosen[0][0], mine, types, (0, 0))

    def _acknowledge(
        self, member: str, ranges: Sequence[tuple[int, int]], types: list[int], cuts: tuple[int, int]
    ) -> None:
        batches = []
        for first, last in ranges:
            low = max(first + cuts[0], 0)
            high = max(last - cuts[1], low)
            size = high - low + 1
            batches.append(AcknowledgementBatch(low, high, types if len(types) == 1 else [*types, *[1] * size][:size]))
        expected = self.naive.acknowledge(member, batches, self.now)
        try:
            change = Acknowledgement(self.real, member, self.now, self.settings).acknowledge(batches)
        except CoordinatorError as error:
            refusal = error.message or ""
        else:
            assert isinstance(expected, Pending)
            self._write(change, expected)
            return
        assert isinstance(expected, str)
        assert REFUSALS[expected] in refusal

    def _write(self, change: Change, expected: Pending) -> None:
        written = {
            offset: (batch.delivery_state, batch.delivery_count)
            for batch in change.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        records = self.naive.records()
        assert written == {offset: (records[offset].state, records[offset].count) for offset in expected.changed}
        assert (change.start_offset, change.complete_count) == (self.naive.start, self.naive.complete_count)
        self.writes.append((change, expected))

    @precondition(lambda self: self.writes)
    @rule(has_failed=st.booleans())
    def end_write(self, has_failed: bool) -> None:
        change, expected = self.writes.pop(0)
        if has_failed:
            self.naive.roll_back(expected, self.now)
            roll_back(self.real, change, self.now, self.settings)
        else:
            self.naive.commit(expected)
            commit(self.real, change)
            self.letters += change.letters

    @rule(member=MEMBERS)
    def end_session(self, member: str) -> None:
        expected = self.naive.release(member)
        self._write(release(self.real, member, self.settings), expected)

    @rule(passed_ms=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def pass_time(self, passed_ms: int) -> None:
        self.now += passed_ms
        deadline = self.real.next_deadline
        locks = [record.lock for record in self.naive.records().values() if record.state == 1 and not record.is_pending]
        assert not locks or 0 < deadline <= min(locks)
        if deadline and deadline <= self.now:
            self.naive.expire(self.now)
            self.letters += expire(self.real, self.now, self.settings).letters

    @precondition(lambda self: self.letters)
    @rule()
    def write_letter(self) -> None:
        letter = self.letters.pop(0)
        self.naive.archive_letters(letter.first, letter.last)
        self.real.archive_letters(letter)

    @rule(by=st.integers(1, 8))
    def delete_records(self, by: int) -> None:
        self.log_start = min(self.log_start + by, self.log_end)

    @invariant()
    def they_are_equal(self) -> None:
        if not hasattr(self, "real"):
            return
        real, naive, runs = self.real, self.naive, self.real.runs
        assert (real.start_offset, real.end_offset) == (naive.start, naive.end)
        assert real.in_flight == naive.in_flight
        assert real.complete_count == naive.complete_count
        found = []
        expected = []
        for index in range(len(runs)):
            state, split = runs.states[index], bool(runs.flags[index] & SPLIT)
            assert bool(runs.flags[index] & BEGINS) or runs.lasts[index - 1] + 1 == runs.firsts[index]
            for offset in range(runs.firsts[index], runs.lasts[index] + 1):
                owner = real._members[runs.owners[index]]
                found.append(
                    (
                        offset,
                        state & ~PENDING,
                        bool(state & PENDING),
                        runs.counts[index],
                        owner,
                        runs.locks[index],
                        split,
                    )
                )
        for batch in naive.batches:
            for offset, record in batch.items():
                each = (
                    offset,
                    record.state,
                    record.is_pending,
                    record.count,
                    record.owner,
                    record.lock,
                    batch.is_split,
                )
                expected.append(each)
        assert found == expected


TestSharePartitions = SharePartitions.TestCase


def test_a_failed_release_of_a_batch_whose_first_records_the_log_has_lost() -> None:
    """The lock has run out meanwhile: only the records that the log still has are available."""
    state = SharePartitions()
    state.load(limit=2, locks_max=7, can_renew=False, start=0, has_dead_letters=False, persisted=[])
    state.produce(sizes=[5], holes=set())
    state.fetch(member="m1", is_limited=False, batch_size=1, records_max=9, batches=2, aborted=None)
    state.end_session(member="m1")
    state.pass_time(passed_ms=LOCK_MS)
    state.delete_records(by=5)
    state.real.on_log_start(state.log_start)
    state.naive.on_log_start(state.log_start)
    state.end_write(has_failed=True)
    state.they_are_equal()
    state.fetch(member="m2", is_limited=False, batch_size=9, records_max=9, batches=2, aborted=None)
    state.they_are_equal()
    assert state.acquired[-1] == ("m2", 5, 7)
