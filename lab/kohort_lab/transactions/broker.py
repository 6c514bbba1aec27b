"""One broker with its coordinators in virtual time, whose messages to itself are delayed, repeated and lost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from kohort.broker.broker import Broker
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import MarkerWriter
from kohort.machine.ports import Markers, Persister, Verification
from kohort.machine.shard import EndTransaction, Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from kohort.server.coordinators.entries import GROUPS, TRANSACTIONS
from kohort.server.coordinators.hosted_coordinator import HostedCoordinator
from kohort.testing.context import FixedContext
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from kohort_lab.transactions.store import SimulatedLog, SimulatedStore

TOPIC: Final = "data"
PARTITIONS: Final = {TOPIC: 3, TRANSACTION_STATE: 2, CONSUMER_OFFSETS: 2}
"""The number of partitions by topic."""

SETTINGS: Final[Mapping[str, Any]] = {
    "transaction.state.log.num.partitions": str(PARTITIONS[TRANSACTION_STATE]),
    "offsets.topic.num.partitions": str(PARTITIONS[CONSUMER_OFFSETS]),
}

TRANSACTION_VERSION_2: Final = 2


class _Message:
    """
    A message on its way.

    Attributes:
        earliest: the number of the move before which it does not arrive.
        survives: whether it arrives after a crash of its sender.
    """

    __slots__ = ("deliver", "earliest", "survives")

    def __init__(self, deliver: Callable[[], None], earliest: int, survives: bool) -> None:
        self.deliver = deliver
        self.earliest = earliest
        self.survives = survives


class _Waiting:
    """A client that waits for an answer. The first one counts."""

    __slots__ = ("_answered", "may_be_late")

    def __init__(self, answered: Callable[[Any], None], may_be_late: bool) -> None:
        self._answered: Callable[[Any], None] | None = answered
        self.may_be_late = may_be_late

    def answer(self, response: Any) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(response)


class Disconnected:
    """The answer to a client whose connection broke: the request may have taken effect, or may yet take effect."""


DISCONNECTED: Final = Disconnected()


class SimulatedBroker:
    """
    The real broker, transaction coordinator and group coordinator over a `SimulatedStore`.

    Attributes:
        delay: the share of messages that `deliver` has to deliver: markers, verifications, requests of clients.
        loss: the share of answers that clients do not get.
        incarnation: the number of crashes.
        resigned: the coordinators' partitions that another node leads.

    Args:
        batch_bytes_max: the size of a batch of `__transaction_state`; None for the default.
    """

    def __init__(self, chance: Random, batch_bytes_max: int | None = None) -> None:
        self.chance = chance
        self.delay = 0.3
        self.loss = 0.05
        self.incarnation = 0
        self.resigned: set[TopicPartition] = set()
        self.network: list[_Message] = []
        self.moves = 0
        """The number of moves so far, which slow messages wait for."""
        self._epochs: dict[TopicPartition, int] = {}
        self._waiting: list[_Waiting] = []
        self.node = VirtualNode()
        self.store = SimulatedStore(self.node.defer, self.node.clock, lambda place: place.topic in PARTITIONS)
        self._start()
        for topic, count in PARTITIONS.items():
            self._create(topic, count, batch_bytes_max if topic == TRANSACTION_STATE else None)
        self._host()

    # Life

    def _start(self) -> None:
        self.broker = Broker(
            self.store,
            Cluster(1, "simulated-cluster", "localhost", 9092),
            BrokerConfig(SETTINGS),
            self.node.clock,
            self.node.call_later,
            coordinators=self,
            verification=_Verification(self),
        )
        self.broker.markers = _Network(self, self.broker.markers)
        self._coordinators: dict[str, HostedCoordinator] = {}

    def _create(self, topic: str, partitions: int, batch_bytes_max: int | None) -> None:
        size = m.CreateTopicsRequestCreatableTopicConfig(name="max.message.bytes", value=str(batch_bytes_max))
        wanted = m.CreateTopicsRequestCreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[] if batch_bytes_max is None else [size],
        )
        answers: list[Any] = []
        request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=1_000)
        self._handle(ApiKey.CREATE_TOPICS, 7, request, answers.append)
        self.node.settle()
        (result,) = answers[0].topics
        assert result.error_code == ErrorCode.NONE, result

    def _host(self) -> None:
        processor = partial(InlineProcessor, self.node.wheel, self.node.defer, self.node.call_soon)
        for entry in (TRANSACTIONS, GROUPS):
            coordinator = HostedCoordinator(entry, self.broker, processor())
            self._coordinators[coordinator.topic] = coordinator
            for api_key, handler in coordinator.handlers().items():
                self.broker.serve(api_key, handler)
        for topic, count in PARTITIONS.items():
            for index in range(count):
                self.find(TopicPartition(topic, index))
                if topic in self._coordinators:
                    self.lead(TopicPartition(topic, index))

    def find(self, place: TopicPartition) -> SimulatedLog:
        """The log of a partition."""
        partition = self.broker.partitions.find(*place)
        assert partition is not None
        log = partition.log
        assert isinstance(log, SimulatedLog)
        return log

    def crash(self) -> None:
        """A power cut and a restart. Markers that are on their way arrive all the same, as if another node had sent them."""
        self.incarnation += 1
        self.network = [message for message in self.network if message.survives]
        self.node = VirtualNode(self.node.clock.now_ms())
        self.store = self.store.after_crash(self.chance, self.node.defer, self.node.clock)
        self._start()
        self._host()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.answer(DISCONNECTED)

    def finish_move(self) -> None:
        """Crash if the node has died since the last move (`SimulatedStore.appends_left`)."""
        self.moves += 1
        if self.store.is_dead:
            self.crash()

    # Leadership of the coordinators' partitions

    def coordinator_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for topic in self._coordinators for index in range(PARTITIONS[topic])]

    def lead(self, place: TopicPartition) -> None:
        """Load a coordinator's partition under a new leader epoch."""
        self.resigned.discard(place)
        self._coordinators[place.topic].runtime.load(place.partition, self.find(place), self._next_epoch(place))

    def resign(self, place: TopicPartition) -> None:
        """Unload a coordinator's partition."""
        self.resigned.add(place)
        self._coordinators[place.topic].runtime.unload(place.partition, self._next_epoch(place))

    def runtime(self, topic: str) -> Runtime[Any]:
        """The runtime of a coordinator."""
        return self._coordinators[topic].runtime

    @property
    def unanswered(self) -> int:
        """The number of requests whose clients wait."""
        return len(self._waiting)

    def _next_epoch(self, place: TopicPartition) -> int:
        self._epochs[place] = self._epochs.get(place, 0) + 1
        return self._epochs[place]

    # The `kohort.broker.ports.CoordinatorDirectory` of the broker

    def is_hosted(self, topic: str) -> bool:
        return topic in self._coordinators

    def marker_writer(self, topic: str) -> MarkerWriter | None:
        coordinator = self._coordinators.get(topic)
        return None if coordinator is None else coordinator.marker_writer

    @property
    def verification(self) -> Verification | None:
        coordinator = self._coordinators.get(TRANSACTION_STATE)
        return None if coordinator is None else coordinator.verification

    @property
    def persister(self) -> Persister | None:
        return None

    # The network

    def send(self, deliver: Callable[[], None], *, survives: bool = False) -> None:
        """Deliver a message now, or let it wait for `deliver`; some messages are slow."""
        chance = self.chance
        if chance.random() < self.delay:
            wait = chance.choice((0, 0, 0, 5, 20, 60))
            self.network.append(_Message(deliver, self.moves + wait, survives))
        else:
            deliver()

    def deliver(self, *, at_most: int = 1) -> None:
        """Deliver some of the messages that are on their way; they may overtake each other."""
        due = [message for message in self.network if message.earliest <= self.moves]
        self.chance.shuffle(due)
        for message in due[:at_most]:
            if message in self.network:
                self.network.remove(message)
                message.deliver()

    def deliver_all(self) -> None:
        """Deliver every message, slow or not."""
        while self.network:
            self.network.pop(0).deliver()

    def ask(
        self,
        api_key: ApiKey,
        version: int,
        request: Any,
        answered: Callable[[Any], None],
        *,
        may_be_late: bool = False,
    ) -> None:
        """
        Send a request of a client. `answered` is called once, now or later, with the response or `DISCONNECTED`.

        Args:
            may_be_late: the request may go on after the client has given it up.
        """
        waiting = _Waiting(answered, may_be_late)
        self._waiting.append(waiting)

        def reply(response: Any) -> None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            is_lost = self.store.is_dead or self.chance.random() < self.loss
            waiting.answer(DISCONNECTED if is_lost else response)

        handle = partial(self._handle, api_key, version, request, reply)
        if may_be_late and self.chance.random() < self.loss:
            self.network.append(_Message(handle, self.moves, False))
        else:
            handle()

    def disconnect(self) -> None:
        """Break the connection of a client whose request may be late. The request goes on."""
        late = [waiting for waiting in self._waiting if waiting.may_be_late]
        if late:
            waiting = self.chance.choice(late)
            self._waiting.remove(waiting)
            waiting.answer(DISCONNECTED)

    def _handle(self, api_key: ApiKey, version: int, request: Any, reply: Callable[[Any], None]) -> None:
        response = self.broker.handlers[api_key](request, FixedContext(version, "simulated", "/127.0.0.1"), reply)
        if isinstance(response, Generator):
            response = drain(response)
        if response is not None:
            reply(response)


class _Network:
    """Markers on their way to partitions; some are delayed, some arrive twice."""

    def __init__(self, owner: SimulatedBroker, markers: Markers) -> None:
        self._owner = owner
        self._markers = markers

    def write(self, place: TopicPartition, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        owner = self._owner
        incarnation = owner.incarnation

        def deliver(reply: Callable[[ErrorCode], None]) -> None:
            # After a crash the marker of the earlier coordinator arrives at the new broker.
            is_same = owner.incarnation == incarnation
            markers = self._markers if is_same else _inner(owner)
            markers.write(place, end, reply if is_same else _ignore)

        owner.send(partial(deliver, done), survives=True)
        # In version 1 a marker of the same coordinator that arrives in the next transaction would end that one: the hole that
        # version 2 closes. So markers are repeated in version 2 only.
        if end.transaction_version >= TRANSACTION_VERSION_2 and owner.chance.random() < owner.delay / 3:
            owner.send(partial(deliver, _ignore), survives=True)


def _inner(owner: SimulatedBroker) -> Markers:
    network = owner.broker.markers
    assert isinstance(network, _Network)
    return network._markers


def _ignore(_code: ErrorCode) -> None:
    """The sender of a repeated marker, or of one before a crash, gets no answer."""


class _Verification:
    """Verifications, and their answers, on their way."""

    def __init__(self, owner: SimulatedBroker) -> None:
        self._owner = owner

    def verify(
        self, place: TopicPartition, producer: Producer, verified: Callable[[CoordinatorError | None], None], /
    ) -> None:
        owner = self._owner

        def ask() -> None:
            coordinator = owner.verification
            assert coordinator is not None
            coordinator.verify(place, producer, lambda error: owner.send(partial(verified, error)))

        owner.send(ask)
