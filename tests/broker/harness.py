"""
One broker over memory, in virtual time.

Requests and responses pass through the codec, so a handler sees what that version has, and what it answers can be written.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kohort.broker.broker import Broker
from kohort.broker.cluster import DEFAULT_LISTENER, Cluster, Endpoint, RegisteredBroker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.features import Features
from kohort.broker.ports import Elsewhere, MarkerWriter, NoResponse, at_once
from kohort.broker.topics.directory_check import check_directory
from kohort.machine.gradual import take_steps
from kohort.machine.ports import Persister, Verification
from kohort.model.context import ClientInformation
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.model.principals import ANONYMOUS, Principal
from kohort.runtime.processors import InlineProcessor
from kohort.security.authorization import Authorizer
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import SHARES, TRANSACTIONS
from kohort.server.coordinators.hosted_coordinator import CoordinatorEntry
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogStore
from kohort.storage.memory import MemoryStore
from kohort.testing.context import take_all
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader, response_reader
from tests.storage.owner import AWAITED

CLUSTER_ID = "kohort-test-cluster-id"


class Parked:
    """How to forget one request that waits, at its place among those of other requests. A later call replaces it."""

    def __init__(self, all_requests: list[Callable[[], None]]) -> None:
        self._all = all_requests
        self._place: int | None = None

    def put(self, forget: Callable[[], None]) -> None:
        if self._place is None:
            self._place = len(self._all)
            self._all.append(forget)
        else:
            self._all[self._place] = forget


class Asker(NamedTuple):
    """Who asks; a handler's context."""

    api_version: int
    client_id: str = "test"
    client_host: str = "/127.0.0.1"
    listener: str = "PLAINTEXT"
    parked: Parked | None = None
    """Where it is noted how to forget a request that waits."""

    throttled: Sequence[int] | list[int] = ()
    """Where the durations are noted for which the connection is not read."""

    later: Callable[[Callable[[], None]], Any] = VirtualNode().call_soon
    """Calls a function in a later turn."""

    client: ClientInformation = ClientInformation("tests", "1.0", 4711)
    principal: Principal = ANONYMOUS
    forgetting: Sequence[Callable[[], None]] | list[Callable[[], None]] = ()
    """Where it is noted what to call when the client disconnects."""

    @property
    def is_forwarded(self) -> bool:
        return False

    def identify(self, software_name: str, software_version: str, /) -> None:
        pass

    def when_disconnected(self, key: Hashable, forget: Callable[[], None], /) -> Callable[[], None]:
        if isinstance(self.forgetting, list):
            self.forgetting.append(forget)
        return lambda: None

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        if isinstance(self.parked, Parked):
            self.parked.put(forget)

    def throttle(self, throttle_ms: int, /) -> None:
        if isinstance(self.throttled, list):
            self.throttled.append(throttle_ms)

    def go_on(self, steps: Generator[Any, None, Any], reply: Callable[[Any], None], /) -> None:
        self.later(partial(take_all, steps, reply))


class Hosted(dict[str, MarkerWriter | None]):
    """The internal topics whose coordinators the broker hosts, with the writers of their markers."""

    def is_hosted(self, topic: str) -> bool:
        return topic in self

    def marker_writer(self, topic: str) -> MarkerWriter | None:
        return self.get(topic)

    verification: Verification | None = None
    persister: Persister | None = None


class Harness:
    """
    A broker and the means to ask it.

    `ask` waits, without time passing, for an answer that is not given at once; `begin` leaves it open and returns the list
    into which it falls.

    Attributes:
        user: who asks.
    """

    user: Principal = ANONYMOUS

    def __init__(
        self,
        *,
        store: LogStore | None = None,
        node: VirtualNode | None = None,
        verification: Verification | None = None,
        features: Features | None = None,
        elsewhere: Elsewhere = at_once,
        reads: Elsewhere = at_once,
        searches: Elsewhere = at_once,
        racks: Sequence[str | None] = (None,),
        release: str = DEFAULT_RELEASE,
        authorizer: Authorizer | None = None,
        **settings: Any,
    ) -> None:
        self.node = node or VirtualNode()
        self.parked: list[Callable[[], None]] = []
        """How to forget the requests that have waited."""
        self.throttled: list[int] = []
        """For how long connections were throttled, request by request."""
        self.held: list[Callable[[], None]] | None = None
        self.store = store or MemoryStore(self._defer, clock=self.node.clock)
        self.cluster = Cluster(1, CLUSTER_ID, "localhost", 9092, racks[0])
        for number, rack in enumerate(racks[1:], 2):
            broker = self.cluster.register(RegisteredBroker(number, rack))
            broker.endpoints[DEFAULT_LISTENER] = Endpoint("localhost", 9091 + number)
        config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()}, release=release)
        self.coordinators = Hosted({CONSUMER_OFFSETS: None})
        self.broker = Broker(
            self.store,
            self.cluster,
            config,
            self.node.clock,
            self.node.call_later,
            coordinators=self.coordinators,
            verification=verification,
            features=features,
            elsewhere=elsewhere,
            elsewhere_reads=reads,
            elsewhere_searches=searches,
            authorizer=authorizer,
        )

    def host_transactions(self, *, has_topic: bool = True) -> Coordinators:
        """Host the transaction coordinator, as a node does."""
        if has_topic:
            self.create(TRANSACTION_STATE, self.broker.config.get_int("transaction.state.log.num.partitions"))
        return self.host(TRANSACTIONS)

    def host_shares(self, *, has_topic: bool = True) -> Coordinators:
        """Host the share coordinator, as a node does."""
        if has_topic:
            self.create(SHARE_GROUP_STATE, self.broker.config.get_int("share.coordinator.state.topic.num.partitions"))
        return self.host(SHARES)

    def host(self, *entries: CoordinatorEntry) -> Coordinators:
        """Host coordinators, as a node does."""
        node = self.node
        hosted = Coordinators(node.defer)
        hosted.start(entries, self.broker, partial(InlineProcessor, node.wheel, node.defer, node.call_soon))
        hosted.load()
        for topic in INTERNAL_TOPICS:
            if hosted.is_hosted(topic):
                self.coordinators[topic] = hosted.marker_writer(topic)
        self.coordinators.verification = hosted.verification
        self.coordinators.persister = hosted.persister
        node.settle()
        return hosted

    def _defer(self, action: Callable[[], None]) -> None:
        if self.held is None:
            self.node.defer(action)
        else:
            self.held.append(action)

    def hold(self) -> None:
        """From now on nothing becomes durable, as if the disk hung."""
        self.held = []

    def let_go(self) -> None:
        """What was held becomes durable after all."""
        held, self.held = self.held, None
        for action in held or ():
            self.node.defer(action)
        self.node.settle()

    def begin(
        self,
        api_key: ApiKey,
        request: Any,
        *,
        version: int | None = None,
        client_id: str = "test",
        at: int = 1,
        into: list[Any] | None = None,
        **asker: Any,
    ) -> list[Any]:
        """
        Args:
            into: the list for the answer; a new one by default.
            asker: further fields of the `Asker`.
        """
        handler = self.broker.apis[at].handlers[api_key]
        oldest, newest = self.broker.versions[api_key]
        version = newest if version is None else version
        assert oldest <= version <= newest
        answers: list[Any] = [] if into is None else into

        def answered(response: Any) -> None:
            is_silent = isinstance(response, NoResponse)
            answers.append(response if is_silent else through_wire(api_key, version, response))

        frame = request_encoder(api_key, version)(7, client_id, request)[4:]
        read = request_reader(api_key, version)(frame, read_request_header(frame)[4])
        known: dict[str, Any] = {"parked": Parked(self.parked), "throttled": self.throttled, "principal": self.user}
        known["later"] = self.node.call_soon
        response = handler(read, Asker(version, client_id, **known | asker), answered)
        if isinstance(response, Generator):
            response = take_steps(response, answered)
        if response is not None:
            answered(response)
        return answers

    def ask(
        self,
        api_key: ApiKey,
        request: Any,
        *,
        version: int | None = None,
        client_id: str = "test",
        at: int = 1,
        **asker: Any,
    ) -> Any:
        """
        Args:
            at: the broker that is asked.
            asker: further fields of the `Asker`.
        """
        answers = self.begin(api_key, request, version=version, client_id=client_id, at=at, **asker)
        self.node.settle()
        assert len(answers) == 1, answers
        return answers[0]

    def create(self, name: str, partitions: int = 1, **configs: Any) -> UUID:
        """A topic; its id."""
        wanted = m.CreateTopicsRequestCreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequestCreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
        (result,) = self.ask(ApiKey.CREATE_TOPICS, request).topics
        assert result.error_code == 0, result
        assert result.topic_id is not None
        return UUID(int=result.topic_id.int)

    def write(self, topic: str, *values: bytes, partition: int = 0, timestamp_ms: int | None = None) -> int:
        """Produce one batch; the offset of its first record."""
        records = batch(*values, timestamp_ms=self.node.clock.now_ms() if timestamp_ms is None else timestamp_ms)
        (answer,) = self.produce(topic, {partition: records})
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def produce(
        self,
        topic: str,
        records: dict[int, bytes | None],
        *,
        acks: int = -1,
        version: int = 12,
        client_id: str = "test",
    ) -> Sequence[m.ProduceResponsePartitionProduceResponse]:
        request = produce_request(topic, records, acks=acks)
        (answer,) = self.ask(ApiKey.PRODUCE, request, version=version, client_id=client_id).responses
        found: Sequence[m.ProduceResponsePartitionProduceResponse] = answer.partition_responses
        return found


def disk_store(path: Path, node: VirtualNode, **options: Any) -> DiskStore:
    """The store of a broker on disk, in virtual time: the owner waits for each flush."""
    what: dict[str, Any] = {"flush": "os", "node_id": 1, "clock": node.clock, "cluster_id": "kohort"}
    what["check"] = check_directory
    return DiskStore(path, defer=node.defer, call_soon_threadsafe=node.call_soon, **what | AWAITED | options)


def reopened(path: Path, node: VirtualNode) -> Harness:
    """A broker over a directory, as after a restart."""
    return Harness(store=disk_store(path, node), node=node)


def through_wire(api_key: ApiKey, version: int, response: Any) -> Any:
    """The response as a client of that version reads it."""
    frame = response_encoder(api_key, version)(7, response)
    return response_reader(api_key, version)(frame, 8 + api_key.response_header_version(version))


def batch(*values: bytes | None, timestamp_ms: int = 1_700_000_000_000, key: bytes | None = b"k", **what: Any) -> bytes:
    """A record batch as a producer makes it."""
    return build_batch([BatchRecord(key, value) for value in values], timestamp_ms=timestamp_ms, **what)


def produce_request(
    topic: str, records: dict[int, bytes | None], *, acks: int = -1, timeout_ms: int = 1000, **what: Any
) -> m.ProduceRequest:
    data = [m.ProduceRequestPartitionProduceData(index=index, records=batch) for index, batch in records.items()]
    topics = [m.ProduceRequestTopicProduceData(name=topic, partition_data=data)]
    fields: dict[str, Any] = {"transactional_id": None, "acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}
    return m.ProduceRequest(**fields | what)
