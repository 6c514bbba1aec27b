"""The group coordinator in the simulation: lost tails, other writers, transactional offsets, members that come and go."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kohort.group.classic.sync import sync_group
from kohort.group.records import GroupRecordSerde
from kohort.records.values import GroupMetadata
from kohort.testing import Faults, SimulationError, Subject, simulate
from tests.testing import group_simulation
from tests.testing.group_simulation import GroupWorkload, group_subject

SEEDS = 10_000 if os.environ.get("KOHORT_LONG") else 120
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/testing/test_group_simulation.py -k every_seed"
MOVES = 200


def faults(seed: int) -> Faults:
    """After a crash the partition is loaded at once; after an unload it may be away for long. A stall ends all sessions."""
    stalls = int(seed % 4 == 0)
    return Faults(failing_append=2, shifted_append=1, failing_read=stalls, stall=stalls, reload=seed % 2, crash=2)


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    answered: Counter[str] = Counter()
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        workload = GroupWorkload()
        simulate(each, group_subject(), workload, faults(each), moves=MOVES, repeat=REPEAT)
        answered += workload.answered
    if not ONE:
        for kind in ("join", "sync", "heartbeat", "commit", "leave", "transactional commit", "end transaction"):
            assert answered[kind] >= SEEDS // 12, f"the simulation hardly reaches {kind}: {answered}"


def fails(subject: Subject[Any], course: Callable[[int], Faults] = faults) -> SimulationError:
    for seed in range(300):
        try:
            simulate(seed, subject, GroupWorkload(), course(seed), moves=MOVES, repeat=REPEAT)
        except SimulationError as error:
            return error
    raise AssertionError("no seed found it")


class LostAssignments(GroupRecordSerde):
    """Writes the members of a group without their assignments."""

    def encode(self, record: Any, /, version: int | None = None) -> tuple[bytes, bytes | None]:
        if isinstance(record, GroupMetadata):
            members = [msgspec.structs.replace(member, assignment=b"") for member in record.members]
            record = msgspec.structs.replace(record, members=members)
        return super().encode(record, version)


def test_lost_assignments_are_found() -> None:
    subject = group_subject()
    broken = Subject(subject.make_shard, LostAssignments(), subject.picture, partition_count=1)
    assert "sees" in str(fails(broken))


def test_an_assignment_of_another_member_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        result = sync_group(*args)
        if result.response is None or not result.response.assignment:
            return result
        response = msgspec.structs.replace(result.response, assignment=b"1 0 nobody")
        return result.replace(response=response)

    monkeypatch.setattr(group_simulation, "sync_group", broken)
    assert "got the assignment" in str(fails(group_subject()))


def test_a_generation_that_goes_back_is_found() -> None:
    class Backwards(GroupRecordSerde):
        """Reads a group one generation back; the log is read after a lost tail."""

        def decode(self, key: bytes, value: bytes | None, /) -> Any:
            record = super().decode(key, value)
            if isinstance(record, GroupMetadata) and record.generation > 1:
                return msgspec.structs.replace(record, generation=record.generation - 1)
            return record

    subject = group_subject()
    broken = Subject(subject.make_shard, Backwards(), lambda _shard, _offset: None, partition_count=1)
    # Members go on with what they know, so that they soon notice.
    message = str(fails(broken, lambda _seed: Faults(failing_append=0, failing_read=0, stall=0, reload=0, crash=2)))
    assert "generation" in message
