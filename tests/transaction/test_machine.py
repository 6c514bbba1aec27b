"""
Random requests to one coordinator: a shard that is loaded from the log equals the live one, and every transaction ends.

What a load loses by Kafka's rules, the last epoch of a retry, is left out of the comparison.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kohort.model.errors import ErrorCode, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.runtime.states import State
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.states import PREDECESSORS, is_prepared, is_unfinished
from kohort.transaction.transaction import EPOCH_EXHAUSTED, EPOCH_MAX, Transaction
from tests.conftest import LONG
from tests.transaction.bench import Bench, transaction

IDS = st.sampled_from(["a", "b"])
PARTITIONS = st.sampled_from([TopicPartition("t", index) for index in range(3)])
VERSION = st.sampled_from([4, 5])


class Transactions(RuleBasedStateMachine):
    """Producers that keep, forget or use up their epochs, refused markers, failing appends and reads, restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

    @initialize(level=st.sampled_from([0, 1, 2]))
    def begin(self, level: int) -> None:
        self.bench = Bench(level=level)

    def producer(self, name: str, back: int) -> tuple[int, int]:
        known = self.known[name]
        return known[max(len(known) - 1 - back, 0)] if known else (1000, 0)

    def learn(self, name: str, code: int, producer_id: int, epoch: int) -> None:
        if code == 0 and producer_id >= 0:
            self.known[name].append((producer_id, epoch))

    @precondition(lambda self: not self.bench.ids.is_empty)
    @rule(name=IDS, back=st.integers(-1, 2))
    def init(self, name: str, back: int) -> None:
        expected = (-1, -1) if back < 0 else self.producer(name, back)
        self.learn(name, *self.bench.init(name, *expected))

    @rule(name=IDS, back=st.integers(0, 2), topic_partition=PARTITIONS, version=st.sampled_from([3, 4]))
    def add(self, name: str, back: int, topic_partition: TopicPartition, version: int) -> None:
        self.bench.add(*self.producer(name, back), topic_partition, transactional_id=name, version=version)

    @rule(name=IDS, back=st.integers(0, 2), committed=st.booleans(), version=VERSION)
    def end(self, name: str, back: int, committed: bool, version: int) -> None:
        answer = self.bench.end(*self.producer(name, back), committed=committed, version=version, transactional_id=name)
        self.learn(name, *answer)

    @rule(duration_ms=st.sampled_from([50, 10_000, 70_000]))
    def wait(self, duration_ms: int) -> None:
        self.bench.advance(duration_ms)

    @rule(code=st.sampled_from([None, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    def change_markers(self, code: ErrorCode | None) -> None:
        self.bench.markers.code = code

    @rule()
    def answer_markers(self) -> None:
        self.bench.markers.answer()
        self.bench.settle()

    @rule()
    def fail_an_append(self) -> None:
        self.bench.logs[0].fail_next_append = UnavailableError("offline")

    @rule()
    def restart(self) -> None:
        self.bench.logs[0].fail_next_append = None
        before = self.state()
        self.bench.markers.code = None
        self.bench.restart()
        assert self.state() == before

    @rule()
    def restart_with_a_read_that_fails(self) -> None:
        log = self.bench.logs[0]
        log.fail_next_append = None
        log.fail_next_read = UnavailableError("offline")
        self.bench.markers.code = None
        self.bench.restart()
        log.fail_next_read = None
        self.bench.advance(1_000)
        assert self.bench.runtime.states()[0] is State.ACTIVE, "a second after the last fault"

    @rule(name=IDS)
    def use_up_the_epochs(self, name: str) -> None:
        """One epoch before the last one, as after 32 765 other transactions."""
        found = self.bench.transaction(name)
        if found is None or is_unfinished(found.state) or found.producer_epoch >= EPOCH_EXHAUSTED:
            return
        self.bench.logs[0].fail_next_append = None
        epoch = EPOCH_EXHAUSTED - 1
        self.bench.put(transaction(transactional_id=name, producer_id=found.producer_id, producer_epoch=epoch))
        self.learn(name, 0, found.producer_id, epoch)

    @rule()
    def use_up_the_ids(self) -> None:
        self.bench.ids.is_empty = True

    @rule()
    def reserve_ids(self) -> None:
        """End the reservation, if a request has begun one."""
        ids = self.bench.ids
        waiting, ids.waiting = ids.waiting, []
        ids.is_empty = ids.is_empty and not waiting
        for ready in waiting:
            ready(ErrorCode.NONE)
        self.bench.settle()

    def state(self) -> dict[str, Any]:
        serde = TransactionRecordSerde(lambda: self.bench.level)
        found = {name: self.bench.transaction(name) for name in ("a", "b")}
        return {name: serde.encode(each) for name, each in found.items() if each is not None}

    @invariant()
    def records_follow_each_other(self) -> None:
        last: dict[str, Transaction] = {}
        for record in self.bench.records() if hasattr(self, "bench") else ():
            assert isinstance(record, Transaction)
            before = last.get(record.transactional_id)
            if before is not None:
                assert before.state in PREDECESSORS[record.state]
                same_id = before.producer_id == record.producer_id
                assert not same_id or before.producer_epoch <= record.producer_epoch
                if is_prepared(before.state):
                    assert not is_prepared(record.state)
                if is_prepared(record.state) and is_unfinished(before.state):
                    assert record.partitions == before.partitions
            last[record.transactional_id] = record

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.markers.code = ErrorCode.NONE
        self.bench.markers.answer()
        self.bench.logs[0].fail_next_append = None
        self.reserve_ids()
        self.bench.advance(200_000)
        self.retriable_errors_end()
        for name in ("a", "b"):
            found = self.bench.transaction(name)
            assert found is None or not is_unfinished(found.state), "every transaction ends once faults stop"
        states = self.state()
        self.bench.restart()
        assert self.state() == states

    def retriable_errors_end(self) -> None:
        """Whoever asks for an id gets it: at once, or after the reservation that its own request has begun."""
        for name in ("a", "b"):
            found = self.bench.transaction(name)
            if found is None or found.producer_epoch >= EPOCH_MAX:
                continue
            codes = []
            for _ in range(2):
                answer = self.bench.end(
                    found.producer_id, found.producer_epoch, committed=False, version=5, transactional_id=name
                )
                codes.append(answer[0])
                self.reserve_ids()
            assert codes[-1] != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=1_000 if LONG else 30, stateful_step_count=40, deadline=None)
