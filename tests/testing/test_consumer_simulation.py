"""Consumer groups in the simulation: members that stall, die and come back, lost answers, lost tails. Broken code is found."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kohort.group.consumer.group import ConsumerGroup, PartitionOwners
from kohort.group.consumer.member import ConsumerMember
from kohort.group.records import GroupRecordSerde
from kohort.records.values import ConsumerGroupCurrentMemberAssignment
from kohort.testing import Faults, SimulationError, Subject, simulate
from tests.conftest import LONG, watches_calls
from tests.testing.consumer_simulation import CONFIG, PATIENT, ConsumerWorkload, consumer_subject

SEEDS = 10_000 if LONG else 200
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/testing/test_consumer_simulation.py -k every_seed"
MOVES = 150
KINDS = (
    "join",
    "heartbeat",
    "leave",
    "died",
    "topics",
    "UNKNOWN_MEMBER_ID",
    "UNRELEASED_INSTANCE_ID",
    "classic join_group",
)
RARE_KINDS = ("overtaken", "classic sync_group", "classic heartbeat", "upgrade", "downgrade")


def faults(seed: int) -> Faults:
    """After a crash the partition is loaded at once; after an unload it may be away for long. A stall ends all sessions."""
    stalls = int(seed % 4 == 0)
    return Faults(failing_append=2, shifted_append=1, failing_read=stalls, stall=stalls, reload=seed % 2, crash=2)


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    answered: Counter[str] = Counter()
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        workload = ConsumerWorkload()
        subject = consumer_subject(workload, PATIENT if each % 4 >= 2 else CONFIG)
        simulate(each, subject, workload, faults(each), moves=MOVES, repeat=REPEAT)
        answered += workload.answered
    if not ONE:
        for kind in KINDS:
            assert answered[kind] >= SEEDS // 12, f"the simulation hardly reaches {kind}: {answered}"
        for kind in RARE_KINDS:
            assert answered[kind] >= SEEDS // 100, f"the simulation hardly reaches {kind}: {answered}"


# Broken code


def fails(make: Callable[[ConsumerWorkload], Subject[Any]]) -> str:
    for seed in range(100):
        try:
            workload = ConsumerWorkload(is_plain=True)
            simulate(seed, make(workload), workload, faults(seed), moves=MOVES, repeat=REPEAT)
        except SimulationError as error:
            return str(error)
    raise AssertionError("no seed found it")


class LostRevocations(GroupRecordSerde):
    """Writes members without what they have yet to revoke."""

    def encode(self, record: Any, /, version: int | None = None) -> tuple[bytes, bytes | None]:
        if isinstance(record, ConsumerGroupCurrentMemberAssignment):
            record = msgspec.structs.replace(record, partitions_pending_revocation=())
        return super().encode(record, version)


def test_lost_revocations_are_found() -> None:
    def make(workload: ConsumerWorkload) -> Subject[Any]:
        subject = consumer_subject(workload)
        serde = LostRevocations([2, 3, 4, 5, 6, 7, 8, 16])
        return Subject(subject.make_shard, serde, subject.picture, image=subject.image, partition_count=1)

    assert "sees" in fails(make)


def a_partition_passes_before_it_is_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionOwners, "free", lambda _self, _topic_id, partitions, *_own: list(partitions))


def a_partition_to_be_revoked_is_free(patch: pytest.MonkeyPatch) -> None:
    original = ConsumerGroup._own

    def broken(self: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        without = [
            None if each is None else msgspec.structs.replace(each, pending_revocation={}) for each in (old, new)
        ]
        original(self, *without)

    patch.setattr(ConsumerGroup, "_own", broken)


@watches_calls
@pytest.mark.parametrize(
    "break_it",
    [a_partition_passes_before_it_is_released, a_partition_to_be_revoked_is_free],
    ids=lambda each: each.__name__,
)
def test_broken_code_is_found(break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    message = fails(consumer_subject)
    assert "overtaken" in message or "sees" in message
