"""
A work queue in virtual time, from a seed: the group coordinator, the share coordinators and the leaders of two partitions, on
three brokers of one process.

Calls of the share coordinators come late, and answers come late or are lost. Connections break, locks and sessions of members
run out, leaders and coordinators move, and the process is killed and started again on its logs. These are checked:

- no record is lost: in the end the state of each one is acknowledged or archived, because somebody accepted or rejected it, or
  because it was delivered as often as it may be;
- no record is delivered or acknowledged again after its acknowledgement was confirmed, and no two members hold one at a time;
- delivery counts rise while a share partition is in memory, and are above those that the leader has read;
- the epochs that a member is told never go back, and a group that had members is known after a restart;
- in the end the group has no lag, and what is loaded from the log is what was served.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final
from uuid import UUID

from kohort.broker.shares.record_states import ACKNOWLEDGED, ARCHIVED
from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.model.ids import TopicPartition
from kohort.storage.memory import MemoryStore
from kohort.storage.memory.log import LogContent
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.broker.shares.late_persister import Late
from tests.broker.shares.members import GROUP, configure
from tests.broker.shares.queue_worker import (
    ACCEPT,
    LOCK_MS,
    PARTITIONS,
    REJECT,
    RENEW,
    TOPIC,
    WRONG,
    Held,
    Where,
    Worker,
)
from tests.broker.virtual_cluster import BROKERS, VirtualCluster

SESSION_MS: Final = 45_000
STEPS: Final = 150
ROUNDS_MAX: Final = 400
"""Of a second each, in which the queue has to be worked off without trouble."""


class Queue:
    """The cluster, the workers, and what is known of each record."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.limit = self.chance.choice([2, 5, 10])
        self._snapshot_every = self.chance.choice([0, 3, 500])
        self.requests = 0
        self.done: dict[Where, int] = {}
        """
        Records whose end was confirmed, and how many requests there had been. A fetch may be answered after its broker has lost
        the records, because it waits for the acknowledgements that came with it.
        """
        self.sent: set[tuple[Where, int]] = set()
        """Records and how somebody wanted to acknowledge them, confirmed or not."""
        self.ended: set[Where] = set()
        """Records whose end share coordinators were told. A crash may hide that they have it."""
        self.counts: dict[Where, tuple[object, int]] = {}
        """The last delivery count of a record, and the share partition in memory that gave it."""
        self.loaded: dict[object, Mapping[Where, int]] = {}
        """The delivery counts that share partitions in memory began with."""
        self.loading: Mapping[Where, int] = {}
        """Those of the state that a leader is being told."""
        self.seen: Counter[str] = Counter()
        self._open(VirtualNode(), {})
        configure(
            self.cluster,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=str(LOCK_MS),
            share_delivery_count_limit=str(self.limit),
            share_partition_max_record_locks=str(self.chance.choice([100, 2000])),
        )
        # The id decides which share coordinator has a state.
        self.cluster.broker.creation.new_id = lambda: UUID(int=self.chance.getrandbits(128))
        self.cluster.assign(TOPIC, [2, 3, 1], [3, 1, 2])
        topic = self.cluster.broker.catalog.topic(TOPIC)
        assert topic is not None
        self.topic_id = topic.topic_id
        self.workers = [Worker(self, name) for name in ("a", "b", "c", "d")]
        for _ in range(2):
            self.node.advance(2000)
            for worker in self.workers:
                worker.beat()

    def _open(self, node: VirtualNode, content: Mapping[TopicPartition, LogContent]) -> None:
        self.node = node
        store = MemoryStore(node.defer, clock=node.clock)
        store.fill(content)
        self.cluster = VirtualCluster(
            store=store,
            node=node,
            share_coordinator_state_topic_num_partitions="2",
            share_coordinator_snapshot_update_records_per_snapshot=str(self._snapshot_every),
            group_share_assignment_interval_ms="0",
        )
        below = self.cluster.hosted.persister
        assert below is not None
        self.persister = Late(below, node, self)
        self.cluster.coordinators.persister = self.persister

    def crash(self) -> None:
        """Kill the process, and start it again on its logs."""
        self.count("crash")
        for _ in range(self.chance.randrange(4)):
            self.node.run_later_turn()
        for worker in self.workers:
            worker.forget_all()
        assert isinstance(self.cluster.store, MemoryStore)
        self._open(VirtualNode(self.node.clock.now_ms() + 500), self.cluster.store.content())

    def count(self, event: str) -> None:
        self.seen[event] += 1

    def leader(self, index: int) -> int:
        partition = self.cluster.broker.partitions.find(TOPIC, index)
        assert partition is not None
        return partition.leader_id

    def life(self, at: int, index: int) -> object:
        """The share partition in memory."""
        return self.cluster.broker.apis[at].shares.leader.find(GROUP, self.topic_id, index) or object()

    def produce(self, index: int) -> None:
        values = [b"%d" % number for number in range(self.chance.randint(1, 12))]
        request = produce_request(TOPIC, {index: batch(*values)})
        self.cluster.begin(ApiKey.PRODUCE, request, version=12, at=self.leader(index))

    def on_write(self, key: SharePartitionKey, state: SharePartitionState) -> None:
        for first, last, delivery_state, count in state.batches:
            for offset in range(first, last + 1):
                where = key.partition, offset
                if delivery_state == ACKNOWLEDGED:
                    assert (where, ACCEPT) in self.sent, f"nobody has accepted {where}"
                elif delivery_state == ARCHIVED:
                    assert (where, REJECT) in self.sent or count >= self.limit, f"{where} is archived without a reason"
                if delivery_state in (ACKNOWLEDGED, ARCHIVED):
                    self.ended.add(where)

    def on_outcome(self, worker: Worker, kinds: Mapping[Where, int], since_ms: int, index: int, code: int) -> None:
        """An acknowledgement of a partition was answered."""
        self.count("refused acknowledgement" if code else "acknowledgement")
        for where, kind in kinds.items() if not code else ():
            if where[0] != index:
                continue
            assert kind != WRONG, f"{worker.member_id} may acknowledge {where}, which another one holds"
            if kind in (ACCEPT, REJECT):
                assert where not in self.done, f"{where} is ended twice"
                self.done[where] = self.requests
            elif kind == RENEW and where in worker.held:
                worker.held[where] = worker.held[where]._replace(since_ms=since_ms)

    def is_held_by_another(self, worker: Worker, where: Where, life: object) -> bool:
        """Whether another member has a lock on a record of a share partition in memory for certain."""
        now_ms = self.node.clock.now_ms()
        return any(
            where in other.held and now_ms < other.held[where].since_ms + LOCK_MS and other.held[where].life is life
            for other in self.workers
            if other is not worker
        )

    def on_read(self, key: SharePartitionKey, state: SharePartitionState, answer: Callable[[], None]) -> None:
        """Answer a leader, which may have dropped the share partition by now."""
        self.loading = {
            (key.partition, offset): count
            for first, last, _, count in state.batches
            for offset in range(first, last + 1)
        }
        answer()
        for at in BROKERS:
            led = self.cluster.broker.apis[at].shares.leader.find(GROUP, self.topic_id, key.partition)
            if led is not None and led.records is not None:
                self.loaded.setdefault(led, self.loading)
        self.loading = {}

    def on_delivery(self, worker: Worker, where: Where, count: int, held: Held) -> None:
        self.count("delivery")
        loaded = self.loaded.get(held.life, self.loading).get(where, 0)
        assert held.request <= self.done.get(where, held.request), f"{where} comes again after its end was confirmed"
        assert count > loaded, f"the count of {where} is {count}, and {loaded} was loaded"
        life, before = self.counts.get(where, (None, 0))
        assert life is not held.life or count > before, f"the count of {where} falls from {before} to {count}"
        assert not self.is_held_by_another(worker, where, held.life), f"another member holds {where}, too"
        self.counts[where] = held.life, count
        worker.held[where] = held

    def move(self) -> None:
        """Stop a broker and start it again; what it led moves to others."""
        self.count("move")
        node_id = self.chance.choice(BROKERS)
        self.cluster.stop(node_id)
        self.node.advance(self.chance.choice([0, 300]))
        if self.chance.random() < 0.5:
            for worker in self.workers:
                if node_id in worker.sessions:
                    worker.lose_connection(node_id)
            self.cluster.broker.apis[node_id].on_stopped()
        self.cluster.start(node_id)

    def step(self) -> None:
        kinds = {
            "produce": 10,
            "fetch": 30,
            "acknowledge": 25,
            "beat": 15,
            "time": 20,
            "lock": 2,
            "silence": 0.5,
            "connection": 2,
            "leave": 0.5,
            "move": 1.5,
            "crash": 1.5,
        }
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        worker = self.chance.choice(self.workers)
        if kind == "produce":
            self.produce(self.chance.choice(PARTITIONS))
        elif kind == "fetch":
            worker.fetch()
        elif kind == "acknowledge":
            worker.acknowledge()
        elif kind == "beat":
            worker.beat()
        elif kind == "connection" and worker.sessions:
            worker.lose_connection(self.chance.choice(sorted(worker.sessions)))
        elif kind == "leave":
            worker.leave()
        elif kind == "move":
            self.move()
        elif kind == "crash":
            self.crash()
        else:
            times = {"lock": LOCK_MS, "silence": SESSION_MS}
            self.node.advance(times.get(kind) or self.chance.choice([1, 50, 600]))
        if self.chance.random() < 0.7:
            self.node.settle()

    def work_off(self) -> None:
        """Without further trouble, the workers take all that is left."""
        self.persister.is_calm = True
        self.node.advance(2 * LOCK_MS)
        # A leader does not repeat a failed write that archives exhausted records: the next acknowledgement has their end, too.
        for index in PARTITIONS:
            self.produce(index)
        for _ in range(ROUNDS_MAX):
            self.node.advance(1_000)
            for worker in self.workers:
                worker.beat()
                kinds: dict[int, dict[Where, int]] = defaultdict(dict)
                for where, held in worker.held.items():
                    kinds[held.at][where] = ACCEPT
                for at, those in kinds.items():
                    worker.end(at, those)
                worker.fetch()
            self.node.settle()
            if not any(worker.held for worker in self.workers) and not self.lag():
                return
        raise AssertionError(f"the group has stopped with a lag of {self.lag()}")

    def ends(self) -> dict[int, int]:
        found = {index: self.cluster.broker.partitions.find(TOPIC, index) for index in PARTITIONS}
        return {index: partition.log.high_watermark for index, partition in found.items() if partition is not None}

    def states(self) -> dict[int, SharePartitionState]:
        """What the share coordinators have of each partition."""
        answers: list[Any] = []
        for index in PARTITIONS:
            self.cluster.broker.persister.summary(SharePartitionKey(GROUP, self.topic_id, index), answers.append)
        self.node.settle()
        return dict(zip(PARTITIONS, answers, strict=True))

    def lag(self) -> int:
        """As DescribeShareGroupOffsets tells it; -1 if a partition has no state."""
        asked = m.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        request = m.DescribeShareGroupOffsetsRequest(groups=[asked])
        at = self.cluster.coordinator(GROUP)
        (group,) = self.cluster.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request, at=at).groups
        lags = {partition.partition_index: partition.lag for topic in group.topics for partition in topic.partitions}
        return sum(abs(lags.get(index, -1)) for index in PARTITIONS)

    def check(self) -> None:
        """What has to hold when the queue is worked off."""
        ends = self.ends()
        for where in [(index, offset) for index in PARTITIONS for offset in range(ends[index])]:
            # The write that archives a record after its last delivery may fail, and the start offset passes it all the same.
            is_exhausted = self.counts.get(where, (None, 0))[1] >= self.limit
            assert where in self.ended or is_exhausted, f"share coordinators were not told the end of {where}"
        served = self.states()
        for index, state in served.items():
            assert state.start_offset + state.delivery_complete_count == ends[index]
        self.crash()
        self.persister.is_calm = True
        assert self.states() == served


def simulate(seed: int) -> Counter[str]:
    """
    Let a queue of a seed run, and return how often each kind of event was seen.

    Raises:
        AssertionError: something that has to hold does not.
    """
    queue = Queue(seed)
    for _ in range(STEPS):
        queue.step()
    queue.work_off()
    queue.check()
    return queue.seen
