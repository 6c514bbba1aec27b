"""Simulations find what is broken, and nothing else; from the same seed they are the same."""

import os
from collections.abc import Callable

import pytest

from kohort.runtime.append.appender import Appender
from kohort.runtime.append.deferred import DeferredEvent, DeferredQueue
from kohort.runtime.append.position import Position
from kohort.runtime.context import Context
from kohort.testing import Faults, SimulationError, Subject, simulate
from kohort.wire.batches import read_header
from tests.runtime.shards import Put, PutSerde, TableShard
from tests.runtime.simulated import SUBJECT, picture, workload

SEEDS = 10_000 if os.environ.get("KOHORT_LONG") else 200
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/testing/test_simulation.py -k every_seed"


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_promises(seed: int) -> None:
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        simulate(each, SUBJECT, workload, repeat=REPEAT)


def test_one_seed_is_one_course() -> None:
    courses = [simulate(7, SUBJECT, workload) for _ in range(2)]
    assert courses[0].logs[0].batches == courses[1].logs[0].batches
    assert courses[0].logs[0].batches != simulate(8, SUBJECT, workload).logs[0].batches


def test_without_faults_nothing_fails() -> None:
    simulation = simulate(
        1, SUBJECT, workload, Faults(failing_append=0, shifted_append=0, reload=0, crash=0), moves=200
    )
    assert any(read_header(batch).is_control for log in simulation.logs for batch in log.batches)


class Forgetful(TableShard):
    """Changes its state in an operation, which is not in the log."""

    def put(self, response, *puts, is_atomic=True):  # type: ignore[no-untyped-def]
        self.table.put("not in the log", 1)
        return super().put(response, *puts, is_atomic=is_atomic)


class Lossy(PutSerde):
    """Writes another number than it was given."""

    def encode(self, record: Put, /) -> tuple[bytes, bytes | None]:
        key, value = super().encode(record)
        return key, value and b"0"


def fails(subject: Subject[TableShard]) -> SimulationError:
    for seed in range(300):
        try:
            simulate(seed, subject, workload, repeat=REPEAT)
        except SimulationError as error:
            return error
    raise AssertionError("no seed found it")


@pytest.mark.parametrize(
    "subject", [Subject(Forgetful, PutSerde(), picture), Subject(TableShard, Lossy(), picture)], ids=["shard", "serde"]
)
def test_a_broken_subject_is_found_and_its_seed_is_told(subject: Subject[TableShard]) -> None:
    error = fails(subject)
    assert "sees" in str(error)
    assert "repeat with: KOHORT_SEED=" in str(error)


def answer_before_commit(patch: pytest.MonkeyPatch) -> None:
    def wait(self: Context[TableShard], _: int, events: list[DeferredEvent], /) -> None:
        for event in events:
            event.complete(None, self._outbox)

    patch.setattr(Context, "wait", wait)


def go_on_after_a_failed_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appender, "_flush_or_raise", lambda self: self.flush() and None)


def never_revert(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Position, "revert_last_written_offset", lambda self, offset: None)


def drop_what_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeferredQueue, "take_all", lambda self: iter(()))


def show_what_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Position, "snapshot_at_most", lambda self, _: self.last_written_offset)


@pytest.mark.parametrize(
    "breakage", [answer_before_commit, never_revert, drop_what_waits, go_on_after_a_failed_flush, show_what_is_written]
)
def test_a_broken_runtime_is_found(
    breakage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breakage(monkeypatch)
    fails(SUBJECT)
