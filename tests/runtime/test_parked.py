"""Requests that a shard parks with `ParkedReply`: one answer, in time if the log commits nothing."""

from typing import Any

import pytest

from kohort.machine.shard import ParkedReply, Release, Result
from kohort.model.errors import UnavailableError
from tests.runtime.harness import Bench, explain
from tests.runtime.shards import Put, TableShard


def parks(bench: Bench, name: str, *puts: tuple[str, int | None]) -> ParkedReply[Any]:
    """Run an operation that parks its request as services do, and writes records."""
    noted = bench.answers.setdefault(name, [])
    reply: ParkedReply[Any] = ParkedReply(noted.append, explain)

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        shard.park(reply)
        return Result([Put(*put) for put in puts])

    assert bench.runtime.write(0, operation, reply, explain) is None
    return reply


@pytest.mark.parametrize("puts", [[("b", 1)], []], ids=["with records", "it has read what is not committed"])
def test_a_parked_request_whose_write_is_not_committed_in_time_is_answered_once(puts: list[tuple[str, int]]) -> None:
    bench = Bench().load()
    bench.put("before", ("a", 1))
    parks(bench, "parked", *puts)
    bench.node.advance(4_999)
    assert bench.answers["parked"] == []
    bench.node.advance(1)
    assert bench.answers["parked"] == ["REQUEST_TIMED_OUT"]
    bench.log.commit()
    bench.write("release", lambda shard, _: shard.release("released"))
    assert (bench.answers["parked"], bench.answers["release"]) == (["REQUEST_TIMED_OUT"], ["released"])
    assert bench.read() == {"a": 1} | dict(puts)


def test_a_parked_request_whose_write_is_committed_has_no_deadline() -> None:
    bench = Bench().load()
    parks(bench, "parked", ("b", 1))
    bench.node.settle()
    bench.log.commit()
    bench.node.advance(600_000)
    assert bench.answers["parked"] == []
    bench.write("release", lambda shard, _: shard.release("released"))
    assert bench.answers["parked"] == ["released"]


@pytest.mark.parametrize(("puts", "answers"), [([("b", 1)], ["UnavailableError: full"]), ([], [])])
def test_a_parked_request_whose_own_records_cannot_be_written_is_answered(
    puts: list[tuple[str, int]], answers: list[str]
) -> None:
    """One without records waits on: it waits for something else than the batch."""
    bench = Bench().load()
    bench.put("before", ("a", 1))
    parks(bench, "parked", *puts)
    bench.log.fail_next_append = UnavailableError("full")
    bench.node.settle()
    assert bench.answers["parked"] == answers
    bench.write("release", lambda shard, _: shard.release("released"))
    assert bench.answers["parked"] == (answers or ["released"])


def test_a_parked_request_whose_answer_is_not_committed_in_time_is_answered_once() -> None:
    """It waited without a deadline, until an operation answered it that writes records."""
    bench = Bench().load()
    parks(bench, "parked")
    plain: list[str] = []
    bench.write("plain", lambda shard, _: shard.park(plain.append))
    bench.node.advance(600_000)
    bench.write("release", lambda shard, _: shard.release("released", ("a", 1)))
    bench.node.advance(4_999)
    assert bench.answers == {"parked": [], "plain": [], "release": []}
    bench.node.advance(1)
    assert (bench.answers["parked"], bench.answers["release"]) == (["REQUEST_TIMED_OUT"], ["REQUEST_TIMED_OUT"])
    assert plain == [], "it has no deadline without a ParkedReply"
    bench.node.advance(600_000)
    bench.log.commit()
    assert (bench.answers["parked"], plain) == (["REQUEST_TIMED_OUT"], ["released"])


def test_what_the_shard_says_of_a_failure_counts() -> None:
    bench = Bench().load()
    reply = parks(bench, "parked", ("b", 1))

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        return Result([Put("c", 1)], "ok", after=lambda error: [Release(reply, "told")] if error else ())

    bench.write("other", operation)
    bench.log.fail_next_append = UnavailableError("full")
    bench.node.settle()
    assert bench.answers["parked"] == ["told"]
