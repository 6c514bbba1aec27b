"""
Simulation of real shards and the real runtime in virtual time, with faults, from one seed.

`Simulation` has the moves: requests, time, the high watermark, failing appends, loads and unloads. `simulate` chooses among
them by a seed; a property test may choose by itself. With any choice these are checked:

- every caller is answered exactly once, and in time: if its request has written records, when the deadline of the write has
  passed, and any other one within ten minutes after the last fault;
- every partition is active ten minutes after the last fault, without a new leader;
- acknowledged records are in the log, in the order in which their operations ran, also after a power cut; refused ones are not;
- a query sees the same state as a shard that is loaded from the log up to the high watermark;
- a shard that is loaded from the log equals the one that wrote it.

A failure names its seed and how to repeat it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar, cast

import msgspec

from kohort.machine.shard import (
    Deadlines,
    EndTransaction,
    Producer,
    RecordSerde,
    Result,
    Shard,
)
from kohort.machine.steps import Wait
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError
from kohort.model.image import ClusterImage
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import WRITE_TIMEOUT_MS, Runtime
from kohort.runtime.states import State
from kohort.testing.image import FixedImage
from kohort.testing.log import FaultyLog
from kohort.testing.virtual import VirtualNode
from kohort.testing.watched import NoDeadlines, WatchedShard, watched_steps
from kohort.wire.batches import read_header, read_records

S = TypeVar("S", bound=Shard[Any])

Pair = tuple[bytes, bytes | None]

MAY_BE_WRITTEN = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR}
"""Errors that do not say whether the records are in the log."""
SETTLE_MS = 600_000
"""How long after the last fault every request is answered and every partition is active."""
STALL_MS = 150_000
"""How long a log commits nothing in a stall: longer than every deadline of a write, and than a session."""
TIMES_MS = (0, 1, 10, 499, 500, 4_999, 5_000, 5_001)


class SimulationError(AssertionError):
    """A guarantee was broken; the message has the seed, the last moves, and the command that repeats them."""

    @classmethod
    def of(cls, error: Exception, history: Sequence[str], seed: int, repeat: str) -> "SimulationError":
        """
        The failure of one seed.

        Args:
            history: the names of the moves so far.
            repeat: the command that repeats the seed, with `{seed}` in its place.
        """
        return cls(
            f"{type(error).__name__}: {error}\n"
            f"moves: {', '.join(history[-30:])}\n"
            f"seed {seed}; repeat with: {repeat.format(seed=seed)}"
        )


@dataclass(frozen=True, slots=True)
class Subject(Generic[S]):
    """
    The shard under simulation.

    Attributes:
        picture: returns the hard state of a shard as of an offset with a snapshot, as a value that can be compared.
        wake: returns a request that has the shard answer all parked ones; None if they are answered in time without one.
        on_effects, is_compacted: see `kohort.runtime.runtime.Runtime`.
    """

    make_shard: Callable[[int, SnapshotRegistry, Deadlines], S]
    serde: RecordSerde[Any]
    picture: Callable[[S, int], object]
    image: ClusterImage = field(default_factory=FixedImage)
    partition_count: int = 2
    wake: "Callable[[], Work] | None" = None
    on_effects: Callable[[int, Sequence[Any]], None] | None = None
    is_compacted: bool = True


class Work(msgspec.Struct, frozen=True):
    """
    One request: an operation, perhaps within a producer's transaction, or the end of one.

    Attributes:
        operation: of the request; None for the end of a transaction.
        on_answer: called with the answer of the request: the response, or the exception. What it raises fails the simulation.
    """

    operation: Callable[[Any, int], Result[Any, Any]] | None = None
    producer: Producer | None = None
    end: EndTransaction | None = None
    on_answer: Callable[[Any], None] | None = None


Workload = Callable[[Random], Work]
"""Returns the next request, with the random numbers of the simulation."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The weights of the faults among a hundred moves."""

    failing_append: int = 4
    shifted_append: int = 1
    failing_read: int = 1
    stall: int = 1
    reload: int = 3
    crash: int = 2


class _Failed(msgspec.Struct, frozen=True):
    error: Exception


@dataclass(slots=True, eq=False)
class _Call:
    """One request with its records and its answers."""

    pairs: list[Pair] = field(default_factory=list)
    is_parked: bool = False
    is_timer: bool = False
    answers: list[Any] = field(default_factory=list)
    deadline_ms: int | None = None
    """When it has to be answered, because it has written records."""

    @property
    def is_acknowledged(self) -> bool:
        return not self.is_parked and not self.is_timer and bool(self.answers) and not self._failed

    @property
    def is_refused(self) -> bool:
        error = self._failed
        return error is not None and not (isinstance(error, CoordinatorError) and error.code in MAY_BE_WRITTEN)

    @property
    def _failed(self) -> Exception | None:
        answer = self.answers[0] if self.answers else None
        return answer.error if isinstance(answer, _Failed) else None


class _Committed(msgspec.Struct, frozen=True):
    """An effect: the records of a request are committed."""

    call: _Call


class Simulation(Generic[S]):
    """A runtime over logs with injected faults, and the moves of a simulation."""

    def __init__(self, subject: Subject[S], *, linger_ms: int = -1, batch_bytes_max: int = 1_048_588) -> None:
        self.subject = subject
        self.node = VirtualNode()
        self.logs = [
            FaultyLog("state", partition, batch_bytes_max=batch_bytes_max)
            for partition in range(subject.partition_count)
        ]
        self.runtime: Runtime[S] = Runtime(
            partition_count=subject.partition_count,
            make_shard=self._make_shard,
            serde=subject.serde,
            image=subject.image,
            clock=self.node.clock,
            processor=InlineProcessor(self.node.wheel, self.node.defer, self.node.call_soon),
            linger_ms=linger_ms,
            on_effects=self._on_effects,
            is_compacted=subject.is_compacted,
        )
        self._epochs = [0] * subject.partition_count
        self._is_led = [False] * subject.partition_count
        self._calls: list[list[_Call]] = [[] for _ in self.logs]
        """By partition, in the order in which the operations ran."""
        self._callers: list[_Call] = []
        self._broken: list[Exception] = []
        """The exceptions that `Work.on_answer` has raised."""

    # -- moves -------------------------------------------------------------------------------------------------

    def request(self, partition: int, work: Work) -> None:
        """Send a request."""
        call = _Call()
        self._callers.append(call)

        def note(answer: Any) -> None:
            call.answers.append(answer)
            if work.on_answer is not None:
                try:
                    work.on_answer(answer.error if isinstance(answer, _Failed) else answer)
                except Exception as error:  # noqa: BLE001 -- the runtime logs the failure of a reply, and goes on
                    self._broken.append(error)

        if work.end is not None:
            self.runtime.end_transaction(
                partition, work.end, lambda error: note("ended" if error is None else _Failed(error))
            )
            return
        operation = work.operation
        assert operation is not None, "a request is an operation or the end of a transaction"

        def run(shard: S, now_ms: int) -> Result[Any, Any]:
            return self._ran(partition, call, operation(shard, now_ms))

        if work.producer is None:
            response = self.runtime.write(partition, run, note, _Failed)
        else:
            response = self.runtime.write_transactional(partition, work.producer, run, note, _Failed)
        if response is not None:
            note(response)

    def lead(self, partition: int) -> None:
        """Load a partition under a new epoch."""
        self._epochs[partition] += 1
        self._is_led[partition] = True
        self.runtime.load(partition, self.logs[partition], self._epochs[partition])

    def resign(self, partition: int) -> None:
        """Unload a partition: another node becomes its leader."""
        self._epochs[partition] += 1
        self._is_led[partition] = False
        self.runtime.unload(partition, self._epochs[partition])

    def crash(self, partition: int) -> None:
        """A power cut of the leader: the log loses its uncommitted tail."""
        self.resign(partition)
        self.logs[partition].lose_uncommitted()
        self.lead(partition)

    def commit(self, partition: int, share: float = 1.0) -> None:
        """Advance the high watermark by that share of the batches above it."""
        log = self.logs[partition]
        ends = [
            header.next_offset for header in map(read_header, log.batches) if header.next_offset > log.high_watermark
        ]
        if ends:
            log.commit(ends[max(int(len(ends) * share), 1) - 1])

    def fail_next_append(self, partition: int) -> None:
        self.logs[partition].fail_next_append = UnavailableError("a fault of the simulation")

    def shift_next_append(self, partition: int) -> None:
        """The next append lands an offset later: another writer appended to the partition before."""
        self.logs[partition].shift_next_append = 1

    def fail_next_read(self, partition: int) -> None:
        """The next load fails once."""
        self.logs[partition].fail_next_read = UnavailableError("a fault of the simulation")

    def stall(self) -> None:
        """Let minutes pass in which no log commits anything."""
        self.node.advance(STALL_MS)

    def end_turn(self) -> None:
        self.node.run_turn()

    def settle(self) -> None:
        self.node.settle()

    def pass_time(self, duration_ms: int) -> None:
        self.node.advance(duration_ms)

    # -- checks ------------------------------------------------------------------------------------------------

    def check(self, partition: int) -> None:
        """
        Check the guarantees that hold at any time.

        Raises:
            SimulationError: a guarantee was broken.
            Exception: raised by `Work.on_answer`.
        """
        self._check_answers()
        now_ms = self.node.clock.now_ms()
        late = [each for each in self._callers if each.deadline_ms is not None and each.deadline_ms < now_ms]
        _promise(all(call.answers for call in late), "a caller waits, and the deadline of its write has passed")
        if self.runtime.states().get(partition) is not State.ACTIVE:
            return
        seen, offset = self.runtime.query(
            partition, lambda shard, committed: (self.subject.picture(shard, committed), committed)
        )
        _promise(offset <= self.logs[partition].high_watermark, "a query sees what is above the high watermark")
        loaded = self._loaded(partition, offset)
        _promise(seen == loaded, f"a query at {offset} sees\n  {seen}\nand the log holds\n  {loaded}")

    def _check_answers(self) -> None:
        if self._broken:
            raise self._broken[0]
        _promise(all(len(call.answers) <= 1 for call in self._callers), "a caller was answered twice")

    def finish(self) -> None:
        """
        Stop the faults, let everything settle, close everything, and check all guarantees.

        Raises:
            SimulationError: a guarantee was broken.
        """
        for partition, log in enumerate(self.logs):
            log.fail_next_append = log.fail_next_read = None
            log.shift_next_append = 0
            if not self._is_led[partition]:
                self.lead(partition)
        self._go_on(SETTLE_MS)
        for partition, log in enumerate(self.logs):
            state = self.runtime.states().get(partition)
            _promise(state is State.ACTIVE, f"partition {partition} stays {state} after the last fault")
            self.check(partition)
            _promise(log.high_watermark == log.end_offset, f"partition {partition} does not come to rest")
            live = self.runtime.query(partition, self.subject.picture)
            _promise(live == self._loaded(partition, log.end_offset), f"partition {partition} differs from its log")
            if self.subject.wake is not None:
                self.request(partition, self.subject.wake())
        self._go_on(WRITE_TIMEOUT_MS)
        _promise(all(call.answers for call in self._callers), "a caller is not answered after the last fault")
        self.runtime.close()
        self.node.advance(SETTLE_MS)
        self._check_answers()
        _promise(all(call.answers for call in self._callers), "a caller was not answered exactly once")
        for partition in range(len(self.logs)):
            self._check_log(partition)

    def _go_on(self, duration_ms: int) -> None:
        """Let time pass while the logs commit whatever is appended."""
        node = self.node
        until_ms = node.clock.now_ms() + duration_ms
        while True:
            node.settle()
            behind = [log for log in self.logs if log.high_watermark < log.end_offset]
            for log in behind:
                log.commit()
            next_ms = node.wheel.next_ms
            if behind:
                continue
            if next_ms is None or next_ms > until_ms:
                break
            node.advance(max(next_ms - node.clock.now_ms(), 0))
        node.advance(until_ms - node.clock.now_ms())

    def _check_log(self, partition: int) -> None:
        """Check that the log consists of operations' records in order: all acknowledged ones, and no refused one."""
        written = [
            (record.key or b"", record.value)
            for batch in self.logs[partition].batches
            if not read_header(batch).is_control
            for record in read_records(batch)
        ]
        ends = {0}
        for call in self._calls[partition]:
            pairs = call.pairs
            if not pairs or call.is_refused:
                continue
            with_it = {end + len(pairs) for end in ends if written[end : end + len(pairs)] == pairs}
            _promise(bool(with_it) or not call.is_acknowledged, f"acknowledged records are not in the log: {pairs}")
            ends = with_it if call.is_acknowledged else with_it | ends
        _promise(len(written) in ends, "the log holds records of no operation, or of a refused one")

    def _loaded(self, partition: int, end: int) -> object:
        """The picture of a shard that is loaded from the log up to an offset."""
        registry = SnapshotRegistry()
        shard = self.subject.make_shard(partition, registry, NoDeadlines())
        log = self.logs[partition]
        failure, log.fail_next_read = log.fail_next_read, None
        start, is_compacted = log.log_start_offset, self.subject.is_compacted
        for _ in load(log, shard, self.subject.serde, LoadSummary(), start=start, end=end, is_compacted=is_compacted):
            """A step of the load."""
        log.fail_next_read = failure
        registry.create(end)
        return self.subject.picture(shard, end)

    # -- watching ----------------------------------------------------------------------------------------------

    def _make_shard(self, partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> S:
        def watch(result: Result[Any, Any]) -> Result[Any, Any]:
            return self._ran(partition, _Call(is_timer=True), result)

        shard = self.subject.make_shard(partition, registry, deadlines)
        return cast("S", WatchedShard(shard, watch))

    def _ran(self, partition: int, call: _Call, result: Result[Any, Any]) -> Result[Any, Any]:
        call.is_parked = isinstance(result.response, Wait)
        if result.on_error is not None:
            result = result.replace(on_error=_Failed)
        if result.has_steps:
            result = watched_steps(result, lambda later: self._ran(partition, _Call(is_timer=True), later))
        pairs = [self.subject.serde.encode(record) for record in result.records]
        if pairs:
            call.deadline_ms = self.node.clock.now_ms() + WRITE_TIMEOUT_MS
        if result.is_atomic:
            call.pairs = pairs
            self._calls[partition].append(call)
        else:
            # An operation that is not atomic may be written in part, unless it is acknowledged.
            self._calls[partition].extend(_Call(pairs=[pair], is_timer=True) for pair in pairs)
        # A request that waits, and whose records are committed, waits on for something else.
        return result.replace(effects=[*result.effects, _Committed(call)]) if call.is_parked and pairs else result

    def _on_effects(self, partition: int, effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, _Committed):
                effect.call.deadline_ms = None
        if self.subject.on_effects is not None:
            self.subject.on_effects(partition, [each for each in effects if not isinstance(each, _Committed)])


def _promise(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise SimulationError(otherwise)


def simulate(
    seed: int,
    subject: Subject[S],
    workload: Workload,
    faults: Faults | None = None,
    *,
    moves: int = 60,
    repeat: str = "simulate({seed}, ...)",
) -> Simulation[S]:
    """
    Make random moves, chosen by the seed, and let everything settle.

    Args:
        moves: the number of moves.
        repeat: the command that repeats a failure, with `{seed}` in it.

    Raises:
        SimulationError: a guarantee was broken.
    """
    chance = Random(seed)
    simulation: Simulation[S] = Simulation(
        subject, linger_ms=chance.choice((-1, -1, 0, 5)), batch_bytes_max=chance.choice((200, 1_000, 1_048_588))
    )
    history: list[str] = []
    try:
        for partition in range(subject.partition_count):
            simulation.lead(partition)
        for name, move in _moves(simulation, chance, workload, faults or Faults(), moves):
            history.append(name)
            move()
        history.append("finish")
        simulation.finish()
    except Exception as error:
        raise SimulationError.of(error, history, seed, repeat) from error
    return simulation


def _moves(
    simulation: Simulation[Any], chance: Random, workload: Workload, faults: Faults, count: int
) -> Iterable[tuple[str, Callable[[], None]]]:
    """Yield names and moves; the next one is chosen when the last one has been made."""
    moves: dict[str, tuple[int, Callable[[int], None]]] = {
        "request": (40, lambda partition: simulation.request(partition, workload(chance))),
        "end turn": (12, lambda _: simulation.end_turn()),
        "commit": (12, lambda partition: simulation.commit(partition, chance.random())),
        "settle": (10, lambda _: simulation.settle()),
        "pass time": (10, lambda _: simulation.pass_time(chance.choice(TIMES_MS))),
        "check": (10, simulation.check),
        "fail next append": (faults.failing_append, simulation.fail_next_append),
        "shift next append": (faults.shifted_append, simulation.shift_next_append),
        "fail next read": (faults.failing_read, simulation.fail_next_read),
        "stall": (faults.stall, lambda _: simulation.stall()),
        "resign": (faults.reload, simulation.resign),
        "lead": (faults.reload, simulation.lead),
        "crash": (faults.crash, simulation.crash),
    }
    weights = [weight for weight, _ in moves.values()]
    for name in chance.choices(list(moves), weights, k=count):
        partition = chance.randrange(len(simulation.logs))
        yield f"{name} {partition}", partial(moves[name][1], partition)
