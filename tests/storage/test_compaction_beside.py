"""
What happens to a log while a pass of the cleaner is under way: appends, transactions of both kinds, rolls, deletions,
retention, checkpoints, stops and kills, and the deletion of the whole partition. A reader gets what the model says at any time,
and a restart knows the producers that were known before.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.storage.log import CleanerConfig
from tests.conftest import LONG
from tests.storage.compacted import end_transaction, make_durable, put
from tests.storage.owner import PARTITION, Owner, abandon
from tests.storage.test_compaction_property import PRODUCERS, RETENTION_MS, Run, Written, data_dir, do, pairs

BUMPED = (21, 22)
"""Producers whose markers carry a higher epoch than the data: transaction version 2."""
AGE_MS = 5 * RETENTION_MS

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pairs),
        st.tuples(st.just("idempotent"), pairs),
        st.tuples(st.just("transactional"), st.sampled_from(PRODUCERS), pairs),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
        st.tuples(st.just("put_bumped"), st.sampled_from(BUMPED), pairs),
        st.tuples(st.just("end_bumped"), st.sampled_from(BUMPED), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.just("begin"), st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1])),
        st.tuples(st.just("turn")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("idle")),
        st.tuples(st.just("make_anew")),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=5,
    max_size=60,
)


class RunBeside(Run):
    """A log that is looked at while it is being cleaned."""

    def __init__(self, path: Path, policy: str) -> None:
        self.policy = policy
        self.bumped: dict[int, tuple[int, int]] = {}
        """Of each such producer the epoch and the next sequence."""
        super().__init__(path)

    def open(self) -> None:
        retention_ms = AGE_MS if "delete" in self.policy else -1
        self.config = msgspec.structs.replace(self.config, cleanup_policy=self.policy, retention_ms=retention_ms)
        super().open()

    @property
    def timestamp_ms(self) -> int:
        return self.owner.clock.now_ms()

    def put_bumped(self, found: list[tuple[str, bool]], producer_id: int) -> None:
        self.count += 1
        sent = [(key, f"{self.count}.{place}" if has_value else None) for place, (key, has_value) in enumerate(found)]
        epoch, sequence = self.bumped.get(producer_id, (0, 0))
        base_offset = self.log.end_offset
        self.log.producers.check(
            producer_id=producer_id, producer_epoch=epoch, first_sequence=sequence, is_transactional=True
        )
        put(
            self.log,
            *sent,
            timestamp_ms=self.timestamp_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.bumped[producer_id] = epoch, sequence + len(sent)
        self.model.written += [
            Written(base_offset + place, key.encode(), None if value is None else value.encode(), producer_id, "open")
            for place, (key, value) in enumerate(sent)
        ]

    def end_bumped(self, producer_id: int, committed: bool) -> None:
        if not self.log.producers.has_transaction(producer_id):
            return
        epoch = self.bumped[producer_id][0] + 1
        self.bumped[producer_id] = epoch, 0
        end_transaction(self.log, producer_id, committed=committed, producer_epoch=epoch)
        for record in self.model.written:
            if record.producer_id == producer_id and record.state == "open":
                record.state = "committed" if committed else "aborted"

    def begin(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        self.store.clean(CleanerConfig())

    def turn(self) -> None:
        self.owner.run_posted()
        self.owner.run_turn()

    def idle(self) -> None:
        self.owner.wait_for(lambda: not self.store.cleaner.in_progress)

    def make_anew(self) -> None:
        self.store.delete(PARTITION)
        self.bumped.clear()
        self.model = type(self.model)()
        self.log = self.store.open(PARTITION, uuid4(), self.config)

    def restart(self, is_clean: bool) -> None:
        topic_id, before = self.log.topic_id, set(self.producers())
        self.store.flush()
        if is_clean:
            self.store.close()
        else:
            abandon(self.store)
            now_ms, self.owner = self.owner.clock.now_ms(), Owner()
            self.owner.clock.set(now_ms)
        self.store = self.owner.disk(self.path)
        self.log = self.store.open(PARTITION, topic_id, self.config)
        assert set(self.producers()) == before

    def producers(self) -> Iterator[tuple[int, int, int, int | None]]:
        for state in self.log.producers.states.values():
            yield state.producer_id, state.producer_epoch, state.last_sequence, state.transaction_offset

    def check(self) -> None:
        assert not self.store.cleaner.uncleanable
        assert self.log.refusal is None
        if "delete" in self.policy:
            assert self.log.log_start_offset >= self.model.start
            self.model.start = self.log.log_start_offset
        super().check()


def do_beside(run: RunBeside, step: tuple[object, ...]) -> None:
    match step:
        case ("put_bumped", producer_id, found):
            run.put_bumped(found, producer_id)  # type: ignore[arg-type]
        case ("checkpoint",):
            make_durable(run.owner, run.store)
        case _:
            do(run, step)


@settings(max_examples=2000 if LONG else 40)
@given(st.sampled_from(["compact", "compact,delete"]), steps)
def test_a_log_agrees_with_a_list_while_it_is_cleaned(policy: str, chosen: list[tuple[object, ...]]) -> None:
    with data_dir() as path:
        run = RunBeside(path, policy)
        for step in chosen:
            do_beside(run, step)
            run.check()
        run.idle()
        for _ in range(3):
            run.clean(RETENTION_MS)
            run.check()
        make_durable(run.owner, run.store)
        run.store.close()
        shutil.rmtree(path)
