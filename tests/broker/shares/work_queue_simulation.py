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
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from kohort.broker.shares.record_states import ACKNOWLEDGED, ARCHIVED
from kohort.machine.ports import Persister, SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.memory import MemoryStore
from kohort.storage.memory.log import LogContent
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Parked, batch, produce_request
from tests.broker.shares.members import GROUP, configure
from tests.broker.virtual_cluster import BROKERS, VirtualCluster

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
WRONG: Final = -1
"""An acknowledgement of a record that another member holds by then."""
TOPIC: Final = "t"
PARTITIONS: Final = range(2)
LOCK_MS: Final = 15_000
SESSION_MS: Final = 45_000
STEPS: Final = 150
ROUNDS_MAX: Final = 400
"""Of a second each, in which the queue has to be worked off without trouble."""
_LOST: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
_DELAYS_MS: Final = (0, 0, 5, 200, 3000)
_STRANGERS: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_LATER: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)

Where: TypeAlias = tuple[int, int]
"""A record: its partition and offset."""


class Answers(list[Any]):
    """Where the answer to a request falls: it is looked at when it comes, unless the one who asked is gone by then."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        super().__init__()
        self._take = take
        self.is_awaited = True

    def append(self, answer: Any) -> None:
        super().append(answer)
        if self.is_awaited:
            self._take(answer)


class Late:
    """
    A `Persister` in front of the share coordinators.

    Attributes:
        is_calm: from now on nothing is late or lost.
    """

    def __init__(self, below: Persister, node: VirtualNode, queue: Queue) -> None:
        self._below = below
        self._node = node
        self._queue = queue
        self.is_calm = False

    def _call(self, begin: Callable[[Callable[[Any], None]], None], done: Callable[[Any], None]) -> None:
        chance = self._queue.chance
        trouble = 1.0 if self.is_calm else chance.random()
        lost = partial(done, CoordinatorError(chance.choice(_LOST), "lost"))
        if trouble < 0.04:
            self._after(lost)
        elif trouble < 0.1:
            begin(lambda _answer: self._after(lost))
        else:
            self._after(lambda: begin(lambda answer: self._after(partial(done, answer))))

    def _after(self, action: Callable[[], None]) -> None:
        delay_ms = 0 if self.is_calm else self._queue.chance.choice(_DELAYS_MS)
        if delay_ms:
            self._node.call_later(delay_ms, action)
        else:
            action()

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Any, /) -> None:
        self._call(partial(self._below.initialize, key, state_epoch, start_offset), done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Any, /) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, SharePartitionState):
                self._queue.on_read(key, answer, lambda: done(answer))
            else:
                done(answer)

        self._call(partial(self._below.read, key, leader_epoch), answered)

    def write(self, key: SharePartitionKey, state: SharePartitionState, done: Any, /) -> None:
        def begin(answered: Callable[[Any], None]) -> None:
            self._queue.on_write(key, state)
            self._below.write(key, state, answered)

        self._call(begin, done)

    def delete(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call(partial(self._below.delete, key), done)

    def summary(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call(partial(self._below.summary, key), done)


class Held(NamedTuple):
    """
    A record that a member has got and not acknowledged.

    Attributes:
        at: the broker.
        life: the share partition in memory that gave it.
        since_ms: when it was asked for; its lock does not begin before.
    """

    at: int
    life: object
    since_ms: int


class Session:
    """A share session with one broker, on a connection of its own."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: set[int] = set()
        self.waiting: Answers | None = None
        self.open: list[Answers] = []
        self.forgetting: list[Callable[[], None]] = []
        self.parked: list[Callable[[], None]] = []

    def close(self) -> None:
        for answers in self.open:
            answers.is_awaited = False
        for forget in [*self.parked, *self.forgetting]:
            forget()


class Worker:
    """A member of the group."""

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self._name = name
        self._lives = 0
        self.sessions: dict[int, Session] = {}
        self.held: dict[Where, Held] = {}
        self._become_new()

    def _become_new(self) -> None:
        self._lives += 1
        self.member_id = f"{self._name}{self._lives}"
        self.epoch = 0
        self.assigned: set[int] = set()

    def beat(self, epoch: int | None = None) -> None:
        """Send a heartbeat, with which a stranger joins."""
        queue, cluster = self._queue, self._queue.cluster
        coordinator = cluster.coordinator(GROUP)
        if coordinator < 0:
            return
        request = m.ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=None if self.epoch else [TOPIC],
        )
        answers = cluster.begin(ApiKey.SHARE_GROUP_HEARTBEAT, request, at=coordinator)
        cluster.node.settle()
        for answer in answers:
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                queue.count("heartbeat")
                assert answer.member_epoch >= self.epoch or epoch is not None, "a member's epoch goes back"
                self.epoch = answer.member_epoch
                if answer.assignment is not None:
                    self.assigned = {
                        index for topic in answer.assignment.topic_partitions for index in topic.partitions
                    }
            elif code in _STRANGERS:
                queue.count("expired member")
                self.epoch = 0
                self.assigned = set()
            else:
                assert code in _LATER, code

    def leave(self) -> None:
        if self.epoch:
            self.beat(-1)
        self.lose_connections()
        self._become_new()

    def _request(self, api_key: ApiKey, request: Any, at: int, take: Callable[[Any], None]) -> Answers:
        session = self.sessions[at]
        session.epoch += 1
        answers = Answers(take)
        session.open = [each for each in session.open if not each] + [answers]
        self._queue.cluster.begin(
            api_key, request, at=at, into=answers, parked=Parked(session.parked), forgetting=session.forgetting
        )
        return answers

    def fetch(self) -> None:
        """Fetch from one broker what it leads of the assigned partitions, and perhaps acknowledge with it."""
        queue = self._queue
        leaders = {index: queue.leader(index) for index in self.assigned}
        if not leaders:
            return
        at = queue.chance.choice(sorted(set(leaders.values())))
        session = self.sessions.setdefault(at, Session())
        if session.waiting is not None and not session.waiting:
            return
        wanted = {index for index, leader in leaders.items() if leader == at}
        added, forgotten = wanted - session.partitions, session.partitions - wanted
        ends: dict[Where, int] = {}
        if session.epoch and queue.chance.random() < 0.3:
            ends = self._choose(at, wanted, RELEASE)
        batches = _batches(ends, m.ShareFetchRequestAcknowledgementBatch)
        named = [
            m.ShareFetchRequestFetchPartition(partition_index=index, acknowledgement_batches=batches.get(index, ()))
            for index in sorted(added | batches.keys())
        ]
        topic_id = queue.topic_id
        out = [m.ShareFetchRequestForgottenTopic(topic_id=topic_id, partitions=sorted(forgotten))] if forgotten else []
        request = m.ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=queue.chance.choice([1, 3, 50]),
            batch_size=50,
            share_acquire_mode=queue.chance.choice([0, 1]),
            topics=[m.ShareFetchRequestFetchTopic(topic_id=topic_id, partitions=named)] if named else [],
            forgotten_topics_data=out,
        )
        session.partitions = wanted
        take = partial(self._take_records, at, session, self.let_go(ends), queue.node.clock.now_ms())
        session.waiting = self._request(ApiKey.SHARE_FETCH, request, at, take)

    def _take_records(self, at: int, session: Session, ends: Mapping[Where, int], since_ms: int, answer: Any) -> None:
        if answer.error_code:
            # The session is another one's by now; the client opens a new one on a new connection.
            self.sessions.pop(at, None)
            self._queue.node.call_soon(session.close)
            return
        for topic in answer.responses:
            for partition in topic.partitions:
                index = partition.partition_index
                self._queue.on_outcome(self, ends, since_ms, index, partition.acknowledge_error_code)
                life = self._queue.life(at, index)
                for each in partition.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        held = Held(at, life, since_ms)
                        self._queue.on_delivery(self, (index, offset), each.delivery_count, held)

    def acknowledge(self) -> None:
        """Acknowledge some of the records of one broker."""
        queue = self._queue
        brokers = sorted({held.at for held in self.held.values()})
        if not brokers:
            return
        at = queue.chance.choice(brokers)
        session = self.sessions[at]
        if session.waiting is not None and not session.waiting:
            return
        kinds = self._choose(at, set(PARTITIONS), RENEW)
        self.end(at, kinds)

    def end(self, at: int, kinds: Mapping[Where, int]) -> None:
        queue = self._queue
        batches = _batches(kinds, m.ShareAcknowledgeRequestAcknowledgementBatch)
        partitions = [
            m.ShareAcknowledgeRequestAcknowledgePartition(partition_index=index, acknowledgement_batches=those)
            for index, those in batches.items()
        ]
        request = m.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.sessions[at].epoch,
            is_renew_ack=RENEW in kinds.values(),
            topics=[m.ShareAcknowledgeRequestAcknowledgeTopic(topic_id=queue.topic_id, partitions=partitions)],
        )

        since_ms, telling = queue.node.clock.now_ms(), self.let_go(kinds)

        def take(answer: Any) -> None:
            for topic in answer.responses:
                for partition in topic.partitions:
                    queue.on_outcome(self, telling, since_ms, partition.partition_index, partition.error_code)

        self._request(ApiKey.SHARE_ACKNOWLEDGE, request, at, take)

    def _choose(self, at: int, partitions: Iterable[int], worst: int) -> dict[Where, int]:
        """How to acknowledge some of the records of a broker; all that are not renewed are out of hand."""
        chance = self._queue.chance
        mine = [where for where, held in self.held.items() if held.at == at and where[0] in partitions]
        if not mine:
            return {}
        partition, offset = chance.choice(mine)
        chosen: list[Where] = []
        while (partition, offset) in self.held and (not chosen or chance.random() < 0.8):
            chosen.append((partition, offset))
            offset += 1
        weights = [(ACCEPT, 12), (REJECT, 1), (RELEASE, 3), (RENEW, 2 if worst == RENEW else 0)]
        return {where: chance.choices(*zip(*weights, strict=True))[0] for where in chosen}

    def let_go(self, kinds: Mapping[Where, int]) -> dict[Where, int]:
        """
        Forget the records that are about to be acknowledged, and return those whose outcome means something.

        After the end of its lock a record may be archived, with a write that is still on its way. Acknowledgements below the
        start offset succeed, and change nothing.
        """
        queue = self._queue
        now_ms = queue.node.clock.now_ms()
        telling = {}
        for where, kind in kinds.items():
            if queue.is_held_by_another(self, where, queue.life(self.held[where].at, where[0])):
                telling[where] = WRONG
            elif now_ms < self.held[where].since_ms + LOCK_MS:
                telling[where] = kind
            if kind != RENEW:
                del self.held[where]
            queue.sent.add((where, kind))
        return telling

    def lose_connection(self, at: int) -> None:
        self.held = {where: held for where, held in self.held.items() if held.at != at}
        self.sessions.pop(at).close()

    def lose_connections(self) -> None:
        for at in list(self.sessions):
            self.lose_connection(at)

    def forget_all(self) -> None:
        """Whoever was asked is dead."""
        for session in self.sessions.values():
            for answers in session.open:
                answers.is_awaited = False
        self.sessions.clear()
        self.held.clear()


def _batches(kinds: Mapping[Where, int], make: Any) -> dict[int, list[Any]]:
    """Acknowledgement batches by partition, for neighbours of one partition."""
    by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (partition, offset), kind in kinds.items():
        by_partition[partition].append((offset, kind))
    found: dict[int, list[Any]] = {}
    for partition, those in by_partition.items():
        runs: list[list[tuple[int, int]]] = []
        for offset, kind in sorted(those):
            if not runs or runs[-1][-1][0] + 1 != offset:
                runs.append([])
            runs[-1].append((offset, kind))
        found[partition] = [
            make(first_offset=run[0][0], last_offset=run[-1][0], acknowledge_types=[kind for _, kind in run])
            for run in runs
        ]
    return found


class Queue:
    """The cluster, the workers, and what is known of each record."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.limit = self.chance.choice([2, 5, 10])
        self._snapshot_every = self.chance.choice([0, 3, 500])
        self.done: dict[Where, int] = {}
        """Records whose end was confirmed: acknowledged or rejected."""
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
                assert where not in self.done, f"{where} is ended by {kind}, after {self.done[where]} was confirmed"
                self.done[where] = kind
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
        assert where not in self.done, f"{where} comes again after {self.done[where]} was confirmed"
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
