"""
The share coordinator in the simulation: lost tails, other writers, failing appends.

Beside the guarantees of every simulation (a loaded shard equals the live one, acknowledged records are in the log) an
acknowledged write is in the state until the share partition is initialised anew or deleted, and the start offset never falls.
"""

import os
from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.machine.shard import Deadlines, Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import KohortError
from kohort.share import operations
from kohort.share.config import ShareConfig
from kohort.share.records import ShareRecordSerde
from kohort.share.shard import ShareShard
from kohort.share.upkeep import Pruned
from kohort.testing import Faults, Subject, simulate
from kohort.testing.image import FixedImage, FixedTopic
from kohort.testing.simulation import Work

SEEDS = 2_000 if os.environ.get("KOHORT_LONG") else 40
ONE = os.environ.get("KOHORT_SEED")
REPEAT = "KOHORT_SEED={seed} pytest tests/share/test_machine.py -k every_seed"
CONFIG = ShareConfig(
    share_coordinator_snapshot_update_records_per_snapshot=3,
    share_coordinator_state_topic_prune_interval_ms=40_000,
    share_coordinator_cold_partition_snapshot_interval_ms=70_000,
)
TOPIC_ID = UUID(int=7)
IMAGE = FixedImage([FixedTopic("t", TOPIC_ID, 2)])


class Effects:
    """Notes that logs may be cut, and checks that they may."""

    def __init__(self) -> None:
        self.pruned = 0

    def __call__(self, _partition: int, effects: Any) -> None:
        for effect in effects:
            assert isinstance(effect, Pruned)
            self.pruned += 1


def subject(effects: Effects) -> Subject[ShareShard]:
    def make_shard(_partition: int, registry: SnapshotRegistry, _deadlines: Deadlines) -> ShareShard:
        return ShareShard(registry, CONFIG, IMAGE)

    return Subject(
        make_shard,
        ShareRecordSerde(),
        lambda shard, offset: dict(shard.states.items_at(offset)),
        image=IMAGE,
        partition_count=1,
        on_effects=effects,
        is_compacted=False,
    )


class Workload:
    """A group coordinator and a leader, of two share partitions."""

    def __init__(self) -> None:
        self.keys = [SharePartitionKey("g", TOPIC_ID, partition) for partition in range(2)]
        self.unknown = SharePartitionKey("g", UUID(int=1), 0)
        self.counts: Counter[str] = Counter()
        self.written: dict[SharePartitionKey, dict[int, int]] = {}
        """Acknowledged writes, by offset: the delivery count."""
        self.lives: Counter[SharePartitionKey] = Counter()
        """How often a share partition may have begun anew."""

    def __call__(self, chance: Random) -> Work:
        key = chance.choice(self.keys)
        requests = (self._write, self._read, self._begin, self._end, self._lost)
        (request,) = chance.choices(requests, (40, 25, 20, 2, 5))
        return request(key, chance)

    def _write(self, key: SharePartitionKey, chance: Random) -> Work:
        first, life = chance.randrange(20), self.lives[key]
        batch = StateBatch(first, first + chance.randrange(4), chance.choice((0, 2, 4)), chance.randrange(1, 5))
        changed = SharePartitionState(9, 9, 0, 0, (batch,))

        def answered(answer: Any) -> None:
            if answer == operations.NO_STATE and life == self.lives[key]:
                self.counts["written"] += 1
                counts = self.written.setdefault(key, {})
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    counts[offset] = max(counts.get(offset, 0), batch.delivery_count)

        return Work(lambda shard, now_ms: operations.write(shard, now_ms, key, changed), on_answer=answered)

    def _read(self, key: SharePartitionKey, chance: Random) -> Work:
        epoch = chance.randrange(3)
        expected, life = dict(self.written.get(key, {})), self.lives[key]

        def answered(answer: Any) -> None:
            if isinstance(answer, SharePartitionState) and life == self.lives[key]:
                self.counts["read"] += 1
                held = {
                    offset: batch.delivery_count
                    for batch in answer.batches
                    for offset in range(batch.first_offset, batch.last_offset + 1)
                }
                assert all(held.get(offset, 0) >= count for offset, count in expected.items()), "a write is lost"

        return Work(lambda shard, now_ms: operations.read(shard, now_ms, key, epoch), on_answer=answered)

    def _begin(self, key: SharePartitionKey, chance: Random) -> Work:
        epoch = chance.randrange(9)
        return self._anew(key, lambda shard, now_ms: operations.initialize(shard, now_ms, key, epoch, 0))

    def _end(self, key: SharePartitionKey, _chance: Random) -> Work:
        return self._anew(key, lambda shard, now_ms: operations.delete(shard, now_ms, key))

    def _anew(self, key: SharePartitionKey, operation: Any) -> Work:
        def run(shard: ShareShard, now_ms: int) -> Result[Any, Any]:
            self.lives[key] += 1
            self.written.pop(key, None)
            return operation(shard, now_ms)  # type: ignore[no-any-return]

        return Work(run)

    def _lost(self, _key: SharePartitionKey, _chance: Random) -> Work:
        def answered(answer: Any) -> None:
            assert isinstance(answer, KohortError), "there is no such topic"
            self.counts["refused"] += 1

        return Work(lambda shard, now_ms: operations.initialize(shard, now_ms, self.unknown, 0, 0), on_answer=answered)


@pytest.mark.timeout(7_200)
def test_every_seed_keeps_the_guarantees(seed: int) -> None:
    effects, total = Effects(), Counter[str]()
    for each in [int(ONE)] if ONE else range(seed, seed + SEEDS):
        workload = Workload()
        simulate(
            each,
            subject(effects),
            workload,
            Faults(2, 1, 1, stall=each % 2, reload=1, crash=2),
            moves=200,
            repeat=REPEAT,
        )
        total += workload.counts
    if not ONE:
        for kind in ("written", "read", "refused"):
            assert total[kind] >= SEEDS, f"the simulation hardly reaches {kind}: {total}"
        assert effects.pruned >= SEEDS // 4
