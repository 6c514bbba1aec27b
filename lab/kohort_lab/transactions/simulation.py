"""
The simulation of transactions: random moves from a seed, and the guarantees that hold whatever happens.

- All partitions of a transaction agree: its records and offsets are committed in all of them or in none. A producer that was
  told the outcome was told the truth. Acknowledged writes of a committed transaction are there, once.
- A producer whose transactional id was taken over writes nothing more, and ends nothing.
- A reader with `read_committed` sees the committed records in the order of the log, each one and no other. The last stable
  offset never moves back.
- After the last fault everything ends. Each producer knows the end of its transaction ten seconds later; a minute later each
  partition of a coordinator is active, every request answered and every transaction ended: nothing is pending, and the last
  stable offset is the end of the log.
- Coordinators answer the same before and after a load of their partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from kohort.model.errors import ErrorCode, UnavailableError
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from kohort.runtime.states import State
from kohort.testing.simulation import SimulationError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.transactions.aging import STEPS_LEFT_MAX, age
from kohort_lab.transactions.broker import DISCONNECTED, PARTITIONS, TOPIC, SimulatedBroker
from kohort_lab.transactions.history import Write, committed_offsets, read_history
from kohort_lab.transactions.ledger import TOOL, Ledger, Outcome, TransactionGuaranteeError
from kohort_lab.transactions.producer import GROUPS, SimulatedProducer
from kohort_lab.transactions.reader import CommittedReader

TRANSACTIONAL_IDS: Final = ("alpha", "beta")
MANY_IDS: Final = (*TRANSACTIONAL_IDS, "gamma", "delta", "epsilon", "zeta")
SMALL_BATCH_BYTES: Final = 400
"""A batch of `__transaction_state` that holds two transactions: more go into several batches."""
PRODUCERS_MAX: Final = 5
TIMES_MS: Final = (0, 1, 20, 50, 100, 500, 5_000, 12_000)
SETTLE_MS: Final = 60_000
"""More than the timeout of a transaction and the interval of the check for it."""
END_MS: Final = 10_000
"""How long after the last fault a producer may need to end its transaction: less than the timeout of the transaction."""
STALL_MS: Final = 40_000
"""How long nothing is committed in a stall: every transaction times out."""
SETTLE_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class TransactionFaults:
    """
    The weights of the faults among a hundred moves, and the shares of delayed and lost messages.

    Attributes:
        crash_in_move: crashes of the node between two appends of a move.
        failing_read: loads of a coordinator's partition that fail once.
        stall: times in which no log commits anything.
        old_epoch: transactional ids whose epochs come to their end.
    """

    failing_append: float = 1.0
    reload: float = 0.5
    crash: float = 0.3
    crash_in_move: float = 0.3
    delay: float = 0.2
    loss: float = 0.03
    failing_read: float = 0.5
    stall: float = 0.3
    old_epoch: float = 1.0


CALM: Final = TransactionFaults()
STORM: Final = TransactionFaults(2.0, 2.0, 1.0, 1.0, 0.4, 0.1)
SLOW: Final = TransactionFaults(0.0, 0.2, 0.1, 0.1, 0.5, 0.02)


class TransactionSimulation:
    """A broker, its clients, and the moves of the simulation."""

    def __init__(self, chance: Random, faults: TransactionFaults) -> None:
        self.chance = chance
        self.ledger = Ledger()
        self.ids = chance.choice((TRANSACTIONAL_IDS, MANY_IDS))
        self.broker = SimulatedBroker(chance, chance.choice((None, SMALL_BATCH_BYTES)))
        self.broker.delay, self.broker.loss = faults.delay, faults.loss
        self.producers: list[SimulatedProducer] = []
        self._stable: dict[TopicPartition, int] = {}
        """The last stable offsets at the last check."""
        self.readers = [
            CommittedReader(self.broker, self.ledger, TopicPartition(TOPIC, index))
            for index in range(PARTITIONS[TOPIC])
        ]

    # Moves

    def step(self) -> None:
        """Let a producer send a request; a new producer may begin, and an old one stop in the middle."""
        chance = self.chance
        alive = self.producers = [producer for producer in self.producers if not producer.is_dead]
        if len(alive) < PRODUCERS_MAX and (not alive or chance.random() < 0.05):
            alive.append(
                SimulatedProducer(self.broker, self.ledger, chance.choice(self.ids), is_version_2=chance.random() < 0.6)
            )
        if chance.random() < 0.01:
            alive.pop(chance.randrange(len(alive)))
            return
        ready = [producer for producer in alive if not producer.is_waiting]
        if ready:
            chance.choice(ready).step()

    def commit_by_tool(self) -> None:
        """Commit an offset outside of transactions."""
        number = self.ledger.next_number()
        entry = m.OffsetCommitRequestPartition(
            partition_index=self.chance.randrange(PARTITIONS[TOPIC]),
            committed_offset=number,
            committed_metadata=f"{TOOL} {number}",
        )
        request = m.OffsetCommitRequest(
            group_id=self.chance.choice(GROUPS),
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[m.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])],
        )
        self.broker.ask(ApiKey.OFFSET_COMMIT, 9, request, lambda _: None)

    def commit(self) -> None:
        """Make some records of a log durable."""
        self.chance.choice(self.broker.store.held_logs()).commit(self.chance.random())

    def fail_next_append(self) -> None:
        log = self.chance.choice(self.broker.store.held_logs())
        log.fail_next_append = UnavailableError("a fault of the simulation")
        log.appends_before_failure = self.chance.choice((0, 0, 0, 1, 2))

    def fail_next_read(self) -> None:
        """The next load of a coordinator's partition fails once."""
        place = self.chance.choice(self.broker.coordinator_partitions())
        self.broker.find(place).fail_next_read = UnavailableError("a fault of the simulation")

    def stall(self) -> None:
        """Let time pass in which no log commits anything."""
        self.broker.node.advance(STALL_MS)

    def age(self) -> None:
        """Let the epochs of a transactional id come to their end; its producers are fenced."""
        name, ledger = self.chance.choice(self.ids), self.ledger
        number = ledger.new_producer()
        age(self.broker, name, self.chance.randrange(1, STEPS_LEFT_MAX), lambda: ledger.take_over(name, number))

    def reload(self) -> None:
        """Another node takes a partition of a coordinator over; maybe this one gets it back at once."""
        place = self.chance.choice(self.broker.coordinator_partitions())
        if self.chance.random() < 0.5:
            self.broker.resign(place)
        else:
            self.broker.lead(place)

    def lead(self) -> None:
        self.broker.lead(self.chance.choice(self.broker.coordinator_partitions()))

    def die_soon(self) -> None:
        """Crash after some more appends, wherever that is."""
        if self.broker.store.appends_left is None:
            self.broker.store.appends_left = self.chance.choice((1, 1, 2, 3, 5))

    def flow(self) -> None:
        """Let everything happen that needs no time, once."""
        broker = self.broker
        broker.deliver(at_most=len(broker.network))
        broker.node.settle()
        for log in broker.store.held_logs():
            log.commit()
        broker.node.settle()

    def read(self) -> None:
        self.chance.choice(self.readers).read()

    # Checks

    def check(self) -> None:
        """
        Check the guarantees that hold at any time.

        Raises:
            TransactionGuaranteeError: a guarantee was broken.
        """
        self.ledger.check()
        for log in self.broker.store.held_logs():
            place, stable = log.topic_partition, log.last_stable_offset
            _promise(stable >= self._stable.get(place, 0), f"the last stable offset of {place} moves back to {stable}")
            self._stable[place] = stable

    def finish(self) -> None:
        """
        Stop the faults, let everything settle, and check all guarantees.

        Raises:
            TransactionGuaranteeError: a guarantee was broken.
        """
        broker = self.broker
        broker.delay = broker.loss = 0.0
        broker.store.appends_left = None
        for log in broker.store.held_logs():
            log.fail_next_append = log.fail_next_read = None
        for place in sorted(broker.resigned):
            broker.lead(place)
        self._end_transactions()
        self._settle()
        self._check_ended()
        answers = self._answers()
        for place in broker.coordinator_partitions():
            broker.lead(place)
        self._settle()
        after = self._answers()
        _promise(answers == after, f"before a load\n  {answers}\nafter it\n  {after}")
        history = {log.topic_partition: read_history(log) for log in broker.store.held_logs()}
        self._check_outcomes(history)
        self._check_readers(history)
        self._check_offsets(history)

    def _settle(self) -> None:
        broker = self.broker
        for duration_ms in (0, 0, SETTLE_MS, 100, 100, 100, 100):
            broker.node.advance(duration_ms)
            for _ in range(SETTLE_ROUNDS):
                broker.deliver_all()
                self.flow()

    def _end_transactions(self) -> None:
        """Let the producers that are in a transaction end it, and no other one send a request."""
        broker = self.broker
        until_ms = broker.node.clock.now_ms() + END_MS
        while True:
            busy = [producer for producer in self.producers if producer.is_in_transaction]
            if not busy:
                return
            _promise(
                broker.node.clock.now_ms() < until_ms,
                "a transaction does not end: "
                + ", ".join(
                    f"{each.transactional_id} waits {each.is_waiting}, last code {each.last_code}" for each in busy
                ),
            )
            for producer in busy:
                producer.step()
            broker.deliver_all()
            self.flow()
            broker.node.advance(100)

    def _check_ended(self) -> None:
        broker = self.broker
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            for partition, state in broker.runtime(topic).states().items():
                _promise(state is State.ACTIVE, f"{topic}-{partition} stays {state} after the last fault")
        _promise(not broker.unanswered, f"{broker.unanswered} requests are not answered after the last fault")
        for log in self.broker.store.held_logs():
            _promise(
                log.last_stable_offset == log.high_watermark == log.end_offset,
                f"{log.topic_partition} does not come to rest: last stable offset {log.last_stable_offset}, "
                f"high watermark {log.high_watermark}, end {log.end_offset}",
            )
        for name, state, *_ in self._answers()["transactions"]:
            _promise(state in ("Empty", "CompleteCommit", "CompleteAbort"), f"{name} stays in state {state}")

    def _answers(self) -> dict[str, Any]:
        """The answers of the coordinators about all transactional ids and groups."""
        described = self._ask(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, m.DescribeTransactionsRequest(transactional_ids=list(self.ids))
        )
        fetched = self._ask(
            ApiKey.OFFSET_FETCH,
            9,
            m.OffsetFetchRequest(
                groups=[m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS],
                require_stable=True,
            ),
        )
        return {
            "transactions": [
                (each.transactional_id, each.transaction_state, each.producer_id, each.producer_epoch, each.error_code)
                for each in described.transaction_states
                if each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            ],
            "offsets": {
                (group.group_id, entry.partition_index): (entry.committed_offset, entry.metadata, entry.error_code)
                for group in fetched.groups
                for topic in group.topics
                for entry in topic.partitions
            },
        }

    def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        answers: list[Any] = []
        self.broker.ask(api_key, version, request, answers.append)
        self.broker.node.settle()
        for log in self.broker.store.held_logs():
            log.commit()
        self.broker.node.settle()
        _promise(len(answers) == 1 and answers[0] is not DISCONNECTED, f"{api_key.api_name} is not answered: {answers}")
        return answers[0]

    def _check_outcomes(self, history: dict[TopicPartition, list[Write]]) -> None:
        outcomes: dict[str, tuple[Outcome, TopicPartition]] = {}
        committed: dict[str, int] = {}
        for place, writes in history.items():
            for write in writes:
                _promise(write.outcome is not None, f"{write.value} in {place} has no outcome")
                assert write.outcome is not None
                if write.transaction == TOOL:
                    continue
                outcome, other = outcomes.setdefault(write.transaction, (write.outcome, place))
                _promise(
                    outcome is write.outcome,
                    f"transaction {write.transaction} is {outcome.value} in {other} and {write.outcome.value} in {place}",
                )
                if write.outcome is Outcome.COMMITTED and place.topic == TOPIC:
                    committed[write.value] = committed.get(write.value, 0) + 1
                    _promise(committed[write.value] == 1, f"{write.value} was written twice")
        values = {write.value for writes in history.values() for write in writes}
        for name, transaction in self.ledger.transactions.items():
            found = outcomes.get(name)
            if transaction.told is not None and found is not None:
                _promise(
                    found[0] is transaction.told, f"{name} was told {transaction.told.value}, and is {found[0].value}"
                )
            is_committed = found is not None and found[0] is Outcome.COMMITTED
            _promise(not is_committed or transaction.may_commit, f"{name} is committed, and nobody asked for it")
            if is_committed or transaction.told is Outcome.COMMITTED:
                lost = transaction.acknowledged - values
                _promise(not lost, f"{name} is committed without its writes {sorted(lost)}")

    def _check_readers(self, history: dict[TopicPartition, list[Write]]) -> None:
        for reader in self.readers:
            reader.read()
            expected = [write.value for write in history[reader.place] if write.outcome is Outcome.COMMITTED]
            _promise(
                reader.values == expected,
                f"a reader of {reader.place} has seen\n  {reader.values}\nand committed are\n  {expected}",
            )

    def _check_offsets(self, history: dict[TopicPartition, list[Write]]) -> None:
        expected: dict[tuple[str, int], tuple[int, str, int]] = {}
        for place, writes in history.items():
            if place.topic == CONSUMER_OFFSETS:
                expected.update(committed_offsets(writes))
        found = self._answers()["offsets"]
        _promise(found == expected, f"groups have the offsets\n  {found}\nand committed are\n  {expected}")


def _promise(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise TransactionGuaranteeError(otherwise)


def simulate_transactions(
    seed: int,
    faults: TransactionFaults | None = None,
    *,
    moves: int = 300,
    repeat: str = "simulate_transactions({seed})",
    prepare: Callable[[TransactionSimulation], None] = lambda _: None,
) -> TransactionSimulation:
    """
    Make random moves, chosen by the seed, and let everything settle.

    Args:
        faults: one of three weathers by default, chosen by the seed.
        repeat: the command that repeats a failure, with `{seed}` in it.
        prepare: called before the first move.

    Raises:
        SimulationError: a guarantee was broken.
    """
    chance = Random(seed)
    faults = faults or chance.choice((CALM, STORM, SLOW))
    simulation = TransactionSimulation(chance, faults)
    history: list[str] = []
    try:
        prepare(simulation)
        for name, move in _moves(simulation, chance, faults, moves):
            history.append(name)
            move()
            simulation.broker.finish_move()
            simulation.check()
        history.append("finish")
        simulation.finish()
        simulation.ledger.check()
    except Exception as error:
        raise SimulationError.of(error, history, seed, repeat) from error
    return simulation


def _moves(
    simulation: TransactionSimulation, chance: Random, faults: TransactionFaults, count: int
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield names and moves; the next one is chosen when the last one has been made."""
    moves: dict[str, tuple[float, Callable[[], None]]] = {
        "step": (40, simulation.step),
        "flow": (14, simulation.flow),
        "commit": (12, simulation.commit),
        "settle": (8, lambda: simulation.broker.node.settle()),  # noqa: PLW0108 -- a crash replaces the node
        "deliver": (10, simulation.broker.deliver),
        "disconnect": (4, simulation.broker.disconnect),
        "pass time": (3, lambda: simulation.broker.node.advance(chance.choice(TIMES_MS))),
        "read": (4, simulation.read),
        "tool": (2, simulation.commit_by_tool),
        "fail next append": (faults.failing_append, simulation.fail_next_append),
        "fail next read": (faults.failing_read, simulation.fail_next_read),
        "stall": (faults.stall, simulation.stall),
        "age": (faults.old_epoch, simulation.age),
        "reload": (faults.reload, simulation.reload),
        "lead": (faults.reload, simulation.lead),
        "crash": (faults.crash, simulation.broker.crash),
        "die soon": (faults.crash_in_move, simulation.die_soon),
    }
    weights = [weight for weight, _ in moves.values()]
    for name in chance.choices(list(moves), weights, k=count):
        yield name, partial(moves[name][1])
