"""
Results with waits, wakes, deadlines, effects and next operations: who is answered what, and when, by the fate of the batch.

| | batch committed | batch reverted | write timed out | shard unloaded |
|---|---|---|---|---|
| state, waits, deadlines | stay | as before the operation | stay | dropped |
| the caller's answer | sent | the error | REQUEST_TIMED_OUT | NOT_COORDINATOR |
| the answer of one that was woken, replaced or late | sent | it waits on | REQUEST_TIMED_OUT | NOT_COORDINATOR |
| effects, `then` | carried out | dropped; `otherwise` runs | at the commit | dropped |
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kohort.machine.shard import RETRY_BACKOFF_MS, Result
from kohort.machine.steps import Deadline, Operation, Wait, Wake
from kohort.model.errors import UnavailableError
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from tests.runtime.harness import Bench
from tests.runtime.shards import Put, PutSerde, TableShard

KEY = ("key",)
GONE = "UnavailableError: gone"


class StepBench(Bench):
    """A bench that notes effects and the operations that have run."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[Any] = []
        self.runtime = Runtime(
            make_shard=self.make_shard,
            serde=PutSerde(),
            clock=self.node.clock,
            processor=InlineProcessor(self.node.wheel, self.node.defer, self.node.call_soon),
            on_effects=lambda _partition, effects: self.effects.extend(effects),
        )
        self.load()
        self.ran: list[str] = []

    def result(self, name: str, response: Any, *puts: tuple[str, int], **steps: Any) -> None:
        """A request whose operation returns a result."""
        self.write(name, lambda _shard, _: Result([Put(*put) for put in puts], response, **steps))

    def wait(self, name: str, *puts: tuple[str, int], timeout_ms: int = 60_000, late: Any = "late") -> None:
        self.result(name, Wait(KEY, timeout_ms, late, "replaced"), *puts)

    def step(self, name: str, *puts: tuple[str, int], response: Any = None, **steps: Any) -> Operation:
        """An operation that notes that it has run."""
        return Operation(_step, self.ran, name, [Put(*put) for put in puts], response, steps)

    def soft(self, name: str) -> None:
        """A request that changes what is not in the log."""

        def operation(shard: TableShard, _: int) -> Result[Put, str]:
            shard.table.put(name, 1)
            return Result((), "ok")

        self.write(name, operation)

    def commit(self) -> None:
        self.node.settle()
        self.log.commit()

    def lose(self) -> None:
        """Append what is open; the append fails."""
        self.log.fail_next_append = UnavailableError("gone")
        self.node.settle()

    @property
    def ends(self) -> dict[str, Any]:
        """The answers, none of which may come twice."""
        assert all(len(answers) <= 1 for answers in self.answers.values()), self.answers
        return {name: answers[0] if answers else None for name, answers in self.answers.items()}


def _step(
    _shard: TableShard,
    _now_ms: int,
    ran: list[str],
    name: str,
    puts: Sequence[Put],
    response: Any,
    steps: Any,
    _error: Exception | None = None,
) -> Result[Put, Any]:
    ran.append(name)
    return Result(puts, response, **steps)


@pytest.fixture
def bench() -> StepBench:
    return StepBench()


Fate = Callable[[StepBench], None]


def committed(bench: StepBench) -> None:
    bench.node.settle()
    assert bench.ends["caller"] is None, "nothing leaves before the commit"
    assert (bench.effects, bench.ran) == ([], [])
    bench.commit()


def reverted(bench: StepBench) -> None:
    bench.lose()


def timed_out(bench: StepBench) -> None:
    bench.node.settle()
    bench.node.advance(5_000)


def unloaded(bench: StepBench) -> None:
    bench.node.settle()
    bench.runtime.unload(0, 7)
    bench.node.settle()


FATES = [
    (committed, "ok", "answer"),
    (reverted, GONE, None),
    (timed_out, "REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT"),
    (unloaded, "NOT_COORDINATOR", "NOT_COORDINATOR"),
]


@pytest.mark.parametrize(("fate", "caller", "woken"), FATES)
def test_the_caller_and_the_request_that_it_wakes(bench: StepBench, fate: Fate, caller: str, woken: str | None) -> None:
    bench.wait("woken")
    bench.result("caller", "ok", ("a", 1), wakes=[Wake(KEY, "answer"), Wake(("nobody",), "unheard")])
    fate(bench)
    assert bench.ends == {"woken": woken, "caller": caller}
    if woken is None:
        bench.result("again", "ok", wakes=[Wake(KEY, "answer")])
        assert bench.ends["woken"] == "answer", "it waits on"
    bench.node.advance(120_000)
    assert bench.ends["woken"] is not None


@pytest.mark.parametrize(("fate", "caller", "woken"), FATES)
def test_the_request_that_is_replaced(bench: StepBench, fate: Fate, caller: str, woken: str | None) -> None:
    bench.wait("first")
    bench.result("caller", "ok", ("a", 1))
    bench.wait("second")
    fate(bench)
    is_committed = fate is committed
    assert bench.ends["first"] == ("replaced" if is_committed else woken)
    assert bench.ends["caller"] == caller
    lost = GONE if fate is reverted else "NOT_COORDINATOR" if fate is unloaded else None
    assert bench.ends["second"] == lost, "one that waits has brought no records: no deadline of a write ends it"


@pytest.mark.parametrize(("fate", "caller", "woken"), FATES)
def test_a_request_that_waits_and_brought_records(bench: StepBench, fate: Fate, caller: str, woken: str | None) -> None:
    """A failure answers it and ends its wait, so that a later wake finds nobody."""
    bench.result("caller", Wait(KEY, 60_000, "late", "replaced"), ("a", 1))
    fate(bench)
    assert bench.ends == {"caller": None if fate is committed else caller}
    if fate is not unloaded:
        bench.result("waker", "ok", wakes=[Wake(KEY, "answer")])
        bench.commit()
        assert bench.ends["caller"] == ("answer" if fate is committed else caller)


@pytest.mark.parametrize(("fate", "caller", "woken"), FATES)
@pytest.mark.parametrize("is_operation", [False, True])
def test_a_request_that_is_late(
    bench: StepBench, fate: Fate, caller: str, woken: str | None, is_operation: bool
) -> None:
    """It is answered with the batch that was open then; if that fails it is late again after 500 ms."""
    late = bench.step("late", response="answer") if is_operation else "answer"
    bench.wait("late", timeout_ms=1_000, late=late)
    bench.node.advance(999)
    assert bench.ends == {"late": None}
    bench.result("caller", "ok", ("a", 1))
    bench.node.clock.set(bench.node.clock.now_ms() + 1)
    bench.node.wheel.advance(bench.node.clock.now_ms())
    assert bench.ran == ["late"] * is_operation
    bench.ran.clear()
    fate(bench)
    assert bench.ends == {"late": woken, "caller": caller}
    if fate is reverted:
        bench.node.advance(499)
        assert bench.ends["late"] is None
        bench.node.advance(2)
        assert bench.ends["late"] == "answer"


@pytest.mark.parametrize(("fate", "caller", "woken"), FATES)
def test_effects_and_next_operations(bench: StepBench, fate: Fate, caller: str, woken: str | None) -> None:
    bench.result("caller", "ok", ("a", 1), effects=["told"], then=bench.step("then"), otherwise=bench.step("otherwise"))
    fate(bench)
    if fate is timed_out:
        assert (bench.effects, bench.ran) == ([], [])
        bench.commit()
    is_committed = fate in (committed, timed_out)
    assert bench.effects == ["told"] * is_committed
    assert bench.ran == (["then"] if is_committed else ["otherwise"] * (fate is reverted))
    assert bench.ends == {"caller": caller}


def test_what_follows_a_revert_sees_the_state_before_all_operations_of_the_batch(bench: StepBench) -> None:
    seen: list[Any] = []

    def look(shard: TableShard, _: int, error: Exception) -> Result[Put, Any]:
        seen.append((dict(shard.table), str(error)))
        return Result()

    bench.put("kept", ("a", 1))
    bench.commit()
    bench.result("first", "ok", ("a", 2), otherwise=Operation(look))
    bench.result("second", "ok", ("b", 3))
    bench.lose()
    assert seen == [({"a": 1}, "gone")]


def test_an_operation_wakes_a_request_with_the_state_after_the_commit(bench: StepBench) -> None:
    """The operation of a wake runs after the commit; its own records decide when the request is answered."""
    bench.wait("woken")
    bench.result("caller", "ok", ("a", 1), wakes=[Wake(KEY, bench.step("late", ("b", 2), response="answer"))])
    bench.node.settle()
    assert bench.ran == []
    bench.log.commit()
    assert bench.ran == ["late"]
    assert bench.ends == {"woken": None, "caller": "ok"}
    bench.lose()
    assert bench.ends == {"woken": None, "caller": "ok"}, "its batch failed: it waits on"
    bench.result("again", "ok", wakes=[Wake(KEY, bench.step("late", ("b", 2), response="answer"))])
    bench.commit()
    assert bench.ends["woken"] == "answer"


def test_a_woken_request_may_wait_on_under_another_key(bench: StepBench) -> None:
    bench.wait("woken", timeout_ms=1_000)
    wait = Wait(("other",), 10_000, "later", "replaced")
    bench.result("caller", "ok", wakes=[Wake(KEY, bench.step("moves", response=wait))])
    bench.node.advance(9_999)
    assert bench.ends["woken"] is None
    bench.node.advance(1)
    assert bench.ends["woken"] == "later"


# Deadlines


def test_a_step_of_a_long_work_runs_in_a_later_turn(bench: StepBench) -> None:
    """A hundred partitions may have a step in the same millisecond."""
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 0, bench.step("step"))])
    bench.node.settle()
    bench.node.wheel.advance(bench.node.clock.now_ms())
    assert bench.ran == []
    bench.node.run_later_turn()
    assert bench.ran == ["step"]
    bench.node.advance(60_000)
    assert bench.ran == ["step"]


def test_a_step_that_is_replaced_meanwhile_does_not_run(bench: StepBench) -> None:
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 0, bench.step("step"))])
    bench.node.settle()
    bench.node.wheel.advance(bench.node.clock.now_ms())
    bench.result("replace", "ok", deadlines=[Deadline(KEY, 10, bench.step("second"))])
    bench.node.settle()
    assert bench.ran == []
    bench.node.advance(10)
    assert bench.ran == ["second"]


def test_a_deadline_runs_once_in_its_millisecond(bench: StepBench) -> None:  # [28, 33]
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("due"))])
    bench.node.advance(999)
    assert bench.ran == []
    bench.node.advance(1)
    assert bench.ran == ["due"]
    bench.node.advance(60_000)
    assert bench.ran == ["due"]


def test_a_deadline_is_replaced_extended_and_cancelled(bench: StepBench) -> None:  # [29, 30]
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("first"))])
    bench.result("replace", "ok", deadlines=[Deadline(KEY, 2_000, bench.step("second"))])
    bench.node.advance(1_000)

    def extend(shard: TableShard, _: int) -> Result[Put, str]:
        shard.deadlines.extend(KEY, 500)
        shard.deadlines.extend(("nothing",), 1)
        return Result((), "ok")

    bench.write("extend", extend)
    bench.node.advance(499)
    assert bench.ran == []
    bench.node.advance(1)
    assert bench.ran == ["second"]
    bench.result("arm again", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("third"))])
    bench.result("cancel", "ok", deadlines=[Deadline(KEY)])
    bench.node.advance(60_000)
    assert bench.ran == ["second"]


def test_a_revert_takes_deadlines_away_and_puts_them_back(bench: StepBench) -> None:
    old = ("old",)
    bench.result(
        "arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("first")), Deadline(old, 900, bench.step("old"))]
    )
    bench.result(
        "lost",
        "ok",
        ("a", 1),
        deadlines=[Deadline(KEY, 200, bench.step("lost")), Deadline(old), Deadline(("new",), 50)],
    )
    bench.lose()
    bench.node.advance(899)
    assert bench.ran == []
    bench.node.advance(101)
    assert bench.ran == ["old", "first"]


@pytest.mark.parametrize("fails", ["append", "operation"])
def test_a_deadline_whose_operation_fails_is_due_again_in_half_a_second(bench: StepBench, fails: str) -> None:  # [31]
    attempts: list[int] = []

    def due(_shard: TableShard, now_ms: int) -> Result[Put, Any]:
        attempts.append(now_ms)
        if fails == "operation" and len(attempts) == 1:
            raise RuntimeError("a fault of the test")
        return Result([Put("a", 1)])

    began_ms = bench.node.clock.now_ms()
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, Operation(due))])
    if fails == "append":
        bench.log.fail_next_append = UnavailableError("gone")
    bench.node.advance(10_000)
    assert [at_ms - began_ms for at_ms in attempts] == [1_000, 1_500]
    bench.commit()
    assert bench.read() == {"a": 1}


def test_what_follows_a_revert_may_set_the_deadline_anew(bench: StepBench) -> None:  # [32]
    again = bench.step("again", deadlines=[Deadline(KEY, 3_000, bench.step("anew"))])
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("due", ("a", 1), otherwise=again))])
    bench.log.fail_next_append = UnavailableError("gone")
    bench.node.advance(1_000)
    assert bench.ran == ["due", "again"]
    bench.node.advance(2_999)
    assert bench.ran == ["due", "again"]
    bench.node.advance(1)
    assert bench.ran == ["due", "again", "anew"]


def test_a_deadline_that_is_cancelled_in_its_millisecond_does_not_run(bench: StepBench) -> None:
    """Its event is queued behind the operation that cancels it."""

    def cancels(_shard: TableShard, _: int) -> Result[Put, str]:
        bench.node.clock.set(bench.node.clock.now_ms() + 1_000)
        bench.node.wheel.advance(bench.node.clock.now_ms())
        return Result((), "ok", deadlines=[Deadline(KEY)])

    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("due"))])
    bench.write("cancel", cancels)
    assert bench.ends == {"arm": "ok", "cancel": "ok"}
    assert bench.ran == []


def test_an_unload_ends_deadlines(bench: StepBench) -> None:
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, bench.step("due"))])
    bench.runtime.unload(0, 7)
    bench.node.advance(60_000)
    assert bench.ran == []


# Marks: an operation belongs to the batch that is open when it begins


def test_an_operation_that_raises_is_undone_and_no_other(bench: StepBench) -> None:
    def raises(shard: TableShard, _: int) -> Result[Put, str]:
        shard.table.put("soft", 2)
        raise RuntimeError("a fault of the test")

    bench.soft("soft")
    bench.write("raises", raises)
    assert bench.answers == {"soft": ["ok"], "raises": ["RuntimeError: a fault of the test"]}
    assert bench.shard.table == {"soft": 1}


@pytest.mark.parametrize("before", ["nothing", "a batch that is not committed"])
def test_a_batch_that_fails_takes_back_its_operations_and_those_after_its_beginning(
    bench: StepBench, before: str
) -> None:
    expected = {"before": 1}
    if before != "nothing":
        bench.put("appended", ("appended", 1))
        bench.node.settle()
        expected["appended"] = 1
    bench.soft("before")

    def mixed(shard: TableShard, _: int) -> Result[Put, str]:
        shard.table.put("mixed", 1)
        return Result([Put("hard", 1)], "ok")

    bench.write("mixed", mixed)
    bench.soft("within")
    assert bench.shard.table == expected | {"mixed": 1, "hard": 1, "within": 1}
    bench.lose()
    bench.soft("after")
    assert bench.shard.table == expected | {"after": 1}
    bench.commit()
    assert bench.ends == {
        **({} if before == "nothing" else {"appended": "ok"}),
        "before": "ok",
        "mixed": GONE,
        "within": GONE,
        "after": "ok",
    }


def test_queries_see_changes_that_are_not_logged_unless_they_belong_to_a_batch(bench: StepBench) -> None:
    bench.soft("first")
    assert bench.read() == {"first": 1}
    bench.put("appended", ("appended", 1))
    bench.node.settle()
    bench.soft("second")
    assert bench.read() == {"first": 1}, "it has read what is not committed"
    bench.put("open", ("open", 1))
    bench.soft("third")
    assert bench.read() == {"first": 1}
    bench.log.commit()
    assert bench.read() == {"first": 1, "appended": 1, "second": 1}
    bench.commit()
    assert bench.read() == {"first": 1, "appended": 1, "second": 1, "open": 1, "third": 1}


def test_an_operation_that_nobody_waits_for_runs_again_if_it_is_undone(bench: StepBench) -> None:
    """It has no caller that would hear of the failure. Here it belongs to a batch of others, and has no records."""
    bench.put("before", ("a", 1))
    bench.node.settle()
    bench.put("open", ("b", 2))
    bench.runtime._contexts[0].begin(bench.step("started", deadlines=[Deadline(KEY, 5_000, bench.step("due"))]))
    assert bench.ran == ["started"]
    bench.lose()
    bench.node.advance(RETRY_BACKOFF_MS)
    assert bench.ran == ["started"] * 2
    bench.commit()
    bench.node.advance(60_000)
    assert bench.ran == ["started", "started", "due"]


def test_an_operation_that_nobody_waits_for_runs_again_if_it_fails_and_its_batch_is_lost(bench: StepBench) -> None:
    """The revert goes back to a state in which it had not begun."""
    ran: list[int] = []

    def started(_: TableShard, now_ms: int) -> Result[Put, None]:
        ran.append(now_ms)
        if len(ran) == 1:
            raise ValueError("the first time")
        return Result()

    bench.put("before", ("a", 1))
    bench.node.settle()
    bench.put("open", ("b", 2))
    bench.runtime._contexts[0].begin(Operation(started))
    assert len(ran) == 1
    bench.lose()
    bench.node.advance(RETRY_BACKOFF_MS)
    assert len(ran) == 2


def test_a_deadline_may_keep_an_earlier_one(bench: StepBench) -> None:  # [34]
    for name, delay_ms in (("first", 1_000), ("second", 500)):
        bench.result(name, "ok", deadlines=[Deadline(KEY, delay_ms, bench.step(name), keeps_earlier=True)])
    bench.node.advance(999)
    assert bench.ran == []
    bench.node.advance(1)
    assert bench.ran == ["first"]
    bench.result("again", "ok", deadlines=[Deadline(KEY, 500, bench.step("again"), keeps_earlier=True)])
    bench.node.advance(500)
    assert bench.ran == ["first", "again"]


def test_a_request_may_wait_for_ever(bench: StepBench) -> None:
    """Another deadline of its shard ends the wait."""
    bench.result("waits", Wait(KEY, None, "late", "replaced"))
    bench.node.advance(1 << 40)
    assert bench.answers.get("waits", []) == []
    bench.result("caller", "ok", wakes=[Wake(KEY, "woken")])
    assert bench.answers["waits"] == ["woken"]


@pytest.mark.parametrize("waits", [False, True])
def test_a_result_may_say_how_an_error_is_answered(bench: StepBench, waits: bool) -> None:
    response = Wait(KEY, 60_000, "late", "replaced") if waits else "ok"
    bench.result(
        "caller", response, *([] if waits else [("a", 1)]), on_error=lambda error: f"own {type(error).__name__}"
    )
    if waits:
        bench.runtime.unload(0, 1)
        bench.node.settle()
    else:
        bench.lose()
    assert bench.answers["caller"] == [f"own {'CoordinatorError' if waits else 'UnavailableError'}"]


def test_the_deadline_of_an_operation_of_which_a_part_is_written_is_due_again(bench: StepBench) -> None:
    """The first part stays, and with it the end of the deadline. The rest would be lost."""
    puts = [Put(letter * 150, 1) for letter in "abcdef"]

    def due(shard: TableShard, _: int) -> Result[Put, None]:
        bench.ran.append("due")
        return Result([put for put in puts if put.name not in shard.table], is_atomic=False)

    bench.log.batch_bytes_max = 400
    bench.result("arm", "ok", deadlines=[Deadline(KEY, 1_000, Operation(due))])
    bench.log.fail_next_append, bench.log.appends_until_failure = UnavailableError("gone"), 1
    bench.node.advance(1_000)
    assert 0 < len(bench.shard.table) < len(puts)
    bench.node.advance(RETRY_BACKOFF_MS - 1)
    assert bench.ran == ["due"]
    bench.node.advance(1)
    bench.commit()
    assert bench.ran == ["due"] * 2
    assert len(bench.shard.table) == len(puts)
