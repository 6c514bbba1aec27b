"""
Work queues under trouble, from a seed: late and failed answers of the share coordinator, lost connections, locks that run out,
moved leaders, restarts. No record is lost, none comes again after its acknowledgement was confirmed, nobody shares a record.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from tests.broker.harness import batch
from tests.broker.shares.members import Member, configure, initialize
from tests.broker.virtual_cluster import VirtualCluster

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 15_000
LIMIT = 10
SEEDS = range(int(os.environ.get("KOHORT_SHARE_SEEDS", "6")))
STEPS = 250


class Late:
    """A `Persister` in front of the share coordinators: answers come late, or are lost after the work was done, or before."""

    def __init__(self, cluster: VirtualCluster, chance: random.Random) -> None:
        services = cluster.broker.share_services
        self._below = services.persister
        services.persister = self
        self._chance = chance
        self._later = cluster.node.call_later
        self.is_calm = False

    def _call(self, begin: Callable[[Callable[[Any], None]], None], done: Callable[[Any], None]) -> None:
        trouble = 1.0 if self.is_calm else self._chance.random()
        lost = CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "lost")
        if trouble < 0.05:
            self._after(partial(done, lost))
        elif trouble < 0.1:
            begin(lambda _answer: self._after(partial(done, lost)))
        else:
            begin(lambda answer: self._after(partial(done, answer)))

    def _after(self, answer: Callable[[], None]) -> None:
        self._later(0 if self.is_calm else self._chance.choice([0, 5, 200, 3000]), answer)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Any, /) -> None:
        self._below.initialize(key, state_epoch, start_offset, done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Any, /) -> None:
        self._call(partial(self._below.read, key, leader_epoch), done)

    def write(self, key: SharePartitionKey, state: SharePartitionState, done: Any, /) -> None:
        self._call(partial(self._below.write, key, state), done)

    def delete(self, key: SharePartitionKey, done: Any, /) -> None:
        self._below.delete(key, done)

    def summary(self, key: SharePartitionKey, done: Any, /) -> None:
        self._below.summary(key, done)


class Worker:
    """
    A member that notes what it is given.

    Attributes:
        held: deliveries of the records that it has got and not acknowledged, by offset.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self.member = Member(queue.cluster, name, queue.topic_id)
        self.held: dict[int, int] = {}
        self.waiting: list[Any] | None = None
        self.at = 0

    def fetch(self) -> None:
        if self.waiting is not None:
            return
        leader = self._queue.leader
        if self.at != leader:
            self.lose_connection()
            self.at = leader
        limit = self._queue.chance.choice([1, 3, 50])
        mode = self._queue.chance.choice([0, 1])
        self.waiting = self.member.begin(wait_ms=500, at=leader, max_records=limit, share_acquire_mode=mode)

    def look(self) -> None:
        """Take the answer to the fetch, if it is there."""
        if not self.waiting:
            return
        (answer,) = self.waiting
        self.waiting = None
        if answer.error_code:
            self.lose_connection()
            return
        for topic in answer.responses:
            for partition in topic.partitions:
                for each in partition.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        self._queue.on_delivery(self, offset, each.delivery_count)

    def acknowledge(self) -> None:
        self.look()
        if not self.held or self.waiting is not None or not self.at:
            return
        chance = self._queue.chance
        first = chance.choice(list(self.held))
        offsets = [first]
        while offsets[-1] + 1 in self.held and chance.random() < 0.7:
            offsets.append(offsets[-1] + 1)
        kinds = [chance.choices([ACCEPT, RELEASE, REJECT, RENEW], [12, 3, 1, 2])[0] for _ in offsets]
        answers = self.member.begin_acknowledging(offsets[0], offsets[-1], *kinds, at=self.at)
        self._queue.acknowledged.append((self, dict(zip(offsets, kinds, strict=True)), answers))
        for offset, kind in zip(offsets, kinds, strict=True):
            if kind != RENEW:
                del self.held[offset]

    def lose_connection(self) -> None:
        """Close the connection. With the last one of a group, its share partitions leave memory."""
        for worker in self._queue.workers:
            if worker is not self:
                worker.look()
        self.member.disconnect()
        if self.at and not len(self._queue.cluster.broker.apis[self.at].shares.leader):
            self._queue.generation += 1
        self.member.epoch = 0
        self.held.clear()
        self.waiting = None


class Queue:
    """The cluster, the workers, and what is known of each record."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = VirtualCluster(
            share_coordinator_state_topic_num_partitions="1",
            share_coordinator_snapshot_update_records_per_snapshot=str(self.chance.choice([0, 3, 500])),
        )
        self.cluster.coordinators.persister = self.cluster.hosted.persister
        configure(
            self.cluster,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=str(LOCK_MS),
            share_delivery_count_limit=str(LIMIT),
            share_partition_max_record_locks=str(self.chance.choice([100, 2000])),
        )
        self.cluster.assign("t", [2, 3])
        topic = self.cluster.broker.catalog.topic("t")
        assert topic is not None
        self.topic_id = topic.topic_id
        initialize(self.cluster, self.topic_id)
        self.cluster.node.advance(2000)
        self.persister = Late(self.cluster, self.chance)
        self.produced = 0
        self.deliveries: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        self.generation = 0
        self.done: dict[int, int] = {}
        """Records that are acknowledged or rejected for good, by what was confirmed."""
        self.acknowledged: list[tuple[Worker, dict[int, int], list[Any]]] = []
        self.workers = [Worker(self, name) for name in ("a", "b", "c")]

    @property
    def leader(self) -> int:
        partition = self.cluster.broker.partitions.find("t", 0)
        assert partition is not None
        return partition.leader_id

    def produce(self) -> None:
        partition = self.cluster.broker.partitions.find("t", 0)
        assert partition is not None
        count = self.chance.randint(1, 12)
        partition.append(batch(*[b"%d" % number for number in range(count)]))
        self.produced += count

    def on_delivery(self, worker: Worker, offset: int, count: int) -> None:
        assert offset not in self.done, f"{offset} comes again after {self.done[offset]} was confirmed"
        before = self.deliveries.get(offset, 0)
        if self.generations.get(offset) == self.generation:
            assert count > before, f"the count of {offset} falls from {before} to {count}"
        others = [other.member.member_id for other in self.workers if other is not worker and offset in other.held]
        assert not others or self.generations.get(offset) != self.generation, f"{offset} is held by {others}, too"
        for other in self.workers:
            other.held.pop(offset, None)
        self.deliveries[offset], self.generations[offset] = count, self.generation
        worker.held[offset] = count

    def look(self) -> None:
        """Take the answers that are there."""
        self.cluster.node.settle()
        left = []
        for worker, kinds, answers in self.acknowledged:
            if not answers:
                left.append((worker, kinds, answers))
                continue
            (answer,) = answers
            results = [partition.error_code for topic in answer.responses for partition in topic.partitions]
            if answer.error_code == 0 and results == [0]:
                self.done.update({offset: kind for offset, kind in kinds.items() if kind in (ACCEPT, REJECT)})
        self.acknowledged = left
        for worker in self.workers:
            worker.look()

    def pass_time(self, duration_ms: int) -> None:
        """Locks that may have run out are forgotten by those who held them."""
        self.cluster.node.advance(duration_ms)
        self.look()
        if duration_ms >= LOCK_MS:
            for worker in self.workers:
                worker.held.clear()

    def move(self) -> None:
        leader = self.leader
        self.generation += 1
        self.cluster.stop(leader)
        self.cluster.node.advance(self.chance.choice([0, 300]))
        if self.chance.random() < 0.5:
            self.cluster.broker.apis[leader].on_stopped()
        self.cluster.start(leader)
        for worker in self.workers:
            worker.look()
            worker.lose_connection()

    def step(self) -> None:
        kind = self.chance.choices(
            ["produce", "fetch", "acknowledge", "time", "lock", "connection", "move"], [10, 30, 30, 20, 2, 2, 1]
        )[0]
        worker = self.chance.choice(self.workers)
        if kind == "produce":
            self.produce()
        elif kind == "fetch":
            worker.fetch()
        elif kind == "acknowledge":
            worker.acknowledge()
        elif kind == "time":
            self.pass_time(self.chance.choice([1, 50, 600]))
        elif kind == "lock":
            self.pass_time(LOCK_MS)
        elif kind == "connection":
            worker.look()
            worker.lose_connection()
        else:
            self.move()
        self.look()

    def work_off(self) -> None:
        """Without further trouble, one worker takes all that is left."""
        self.persister.is_calm = True
        self.pass_time(2 * LOCK_MS)
        worker = self.workers[0]
        for other in self.workers:
            other.lose_connection()
        seen: set[int] = set()
        for _ in range(2000):
            worker.fetch()
            self.pass_time(600)
            if not worker.held:
                break
            seen.update(worker.held)
            while worker.held:
                first = min(worker.held)
                last = first
                while last + 1 in worker.held:
                    last += 1
                worker.member.begin_acknowledging(first, last, ACCEPT, at=worker.at)
                for offset in range(first, last + 1):
                    del worker.held[offset]
        assert not worker.held


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_lost_and_none_comes_again(seed: int) -> None:
    queue = Queue(seed)
    for _ in range(STEPS):
        queue.step()
    queue.work_off()
    lost = [offset for offset in range(queue.produced) if offset not in queue.deliveries]
    assert not lost, f"never delivered: {lost}"
    answers: list[Any] = []
    queue.cluster.broker.persister.summary(SharePartitionKey("g", queue.topic_id, 0), answers.append)
    queue.cluster.node.settle()
    (state,) = answers
    assert state.start_offset + state.delivery_complete_count == queue.produced
