"""A worker of the simulated queue: a member of the group, with a share session at each broker that it reads from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Parked
from tests.broker.shares.members import GROUP

if TYPE_CHECKING:
    from tests.broker.shares.work_queue_simulation import Queue

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
WRONG: Final = -1
"""An acknowledgement of a record that another member holds by then."""
TOPIC: Final = "t"
PARTITIONS: Final = range(2)
LOCK_MS: Final = 15_000
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


class Held(NamedTuple):
    """
    A record that a member has got and not acknowledged.

    Attributes:
        at: the broker.
        life: the share partition in memory that gave it.
        since_ms: when it was asked for; its lock does not begin before.
        request: the number of the request that asked for it.
    """

    at: int
    life: object
    since_ms: int
    request: int


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
        self._queue.requests += 1
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
        lives: dict[int, object] = {}
        asked = queue.node.clock.now_ms(), queue.requests + 1
        take = partial(self._take_records, at, session, self.let_go(ends), asked, lives)
        session.waiting = self._request(ApiKey.SHARE_FETCH, request, at, take)
        lives |= {index: queue.life(at, index) for index in wanted}

    def _take_records(
        self,
        at: int,
        session: Session,
        ends: Mapping[Where, int],
        asked: tuple[int, int],
        lives: Mapping[int, object],
        answer: Any,
    ) -> None:
        """
        Args:
            asked: when, and the number of the request.
            lives: the share partitions in memory after the request, which may have been dropped since; empty within it.
        """
        if answer.error_code:
            # The session is another one's by now; the client opens a new one on a new connection.
            self.sessions.pop(at, None)
            self._queue.node.call_soon(session.close)
            return
        for topic in answer.responses:
            for partition in topic.partitions:
                index = partition.partition_index
                self._queue.on_outcome(self, ends, asked[0], index, partition.acknowledge_error_code)
                life = self._queue.life(at, index)
                if lives and lives.get(index) is not life:
                    life = object()
                for each in partition.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        held = Held(at, life, *asked)
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
