"""
A cluster of several scripted brokers with transactions: answers as Kafka 4.2.1 gives them, from state that a test sets.

Each broker refuses what Kafka's broker would refuse: another partition leader's requests, and another coordinator's ids.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import read_header
from tests.client.scripted_broker import ScriptedBroker, versions

Command = Callable[..., Any]
"""Runs `kohort transactions` with --json and returns the decoded output; the exit code must be 0."""
Refused = Callable[..., str]
"""Runs `kohort transactions`, which must end with exit code 2 and print nothing but a sentence, and returns the sentence."""

SERVED = {
    "METADATA": (0, 13),
    "FIND_COORDINATOR": (0, 6),
    "LIST_TRANSACTIONS": (0, 2),
    "DESCRIBE_TRANSACTIONS": (0, 0),
    "DESCRIBE_PRODUCERS": (0, 0),
    "LIST_OFFSETS": (1, 11),
    "WRITE_TXN_MARKERS": (1, 2),
    "INIT_PRODUCER_ID": (0, 5),
    "PRODUCE": (0, 13),
    "TXN_OFFSET_COMMIT": (0, 5),
    "DESCRIBE_CONFIGS": (1, 4),
    "INCREMENTAL_ALTER_CONFIGS": (0, 1),
}
VERIFICATION = "transaction.partition.verification.enable"
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_CONFIG = 2


@dataclass
class Producer:
    """A producer in a partition."""

    producer_id: int
    producer_epoch: int = 0
    last_timestamp: int = 0
    start_offset: int = -1
    coordinator_epoch: int = -1


@dataclass
class Transaction:
    """A transactional id. `start_ms` is -1 if there is no transaction."""

    producer_id: int
    state: str = "Ongoing"
    coordinator: int = 1
    partitions: list[TopicPartition] = field(default_factory=list)
    producer_epoch: int = 0
    timeout_ms: int = 60_000
    start_ms: int = -1


@dataclass(frozen=True)
class Asked:
    """A request that a broker got."""

    broker: int
    api: ApiKey
    version: int
    request: Any


class TransactionCluster:
    """
    Brokers 1 to `count`.

    Attributes:
        leaders: leader by partition; a partition whose leader is -1 has none.
        replicas: of every partition.
        producers: producer states by partition.
        transactions: transactional ids.
        high_watermark: of every partition.
        asked: all requests except ApiVersions, Metadata and FindCoordinator, in order.
        refusals: error codes for the next requests of an API, in order.
        ends_after_listing: producers whose transactions end when a coordinator has listed them.
        verification: value and source of the configuration, as the brokers describe it; None if they have none.
    """

    def __init__(self, count: int = 2, served: dict[str, tuple[int, int]] | None = None) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.producers: dict[TopicPartition, list[Producer]] = defaultdict(list)
        self.transactions: dict[str, Transaction] = {}
        self.high_watermark = 10
        self.asked: list[Asked] = []
        self.refusals: dict[ApiKey, list[ErrorCode]] = defaultdict(list)
        self.replicas = list(range(1, count + 1))
        self.ends_after_listing: set[int] = set()
        self.verification: tuple[str, int] | None = ("true", DEFAULT_CONFIG)
        self.next_producer_id = 1000
        self._served = versions(**(SERVED if served is None else served))
        self._brokers = {number: ScriptedBroker(partial(self._answer, number)) for number in range(1, count + 1)}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for broker in self._brokers.values():
            self._stack.enter_context(broker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return self._brokers[1].address

    def address(self, broker: int) -> str:
        return self._brokers[broker].address

    def requests(self, api: ApiKey) -> list[Asked]:
        return [each for each in self.asked if each.api is api]

    def add_topic(self, name: str, leaders: Iterable[int]) -> None:
        self.leaders.update({TopicPartition(name, index): leader for index, leader in enumerate(leaders)})

    def _answer(self, broker: int, api: ApiKey, version: int, request: Any) -> Any:
        if api is ApiKey.API_VERSIONS:
            return self._served
        if api not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
            self.asked.append(Asked(broker, api, version, request))
        code = self.refusals[api].pop(0) if self.refusals[api] else ErrorCode.NONE
        return getattr(self, f"_{api.name.lower()}")(broker, request, code)

    def _metadata(self, _broker: int, request: Any, _code: ErrorCode) -> Any:
        known = list(dict.fromkeys(each.topic for each in self.leaders))
        names = known if request.topics is None else [each.name for each in request.topics]
        return m.MetadataResponse(
            brokers=[
                m.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=broker.port)
                for number, broker in self._brokers.items()
            ],
            topics=[self._topic(name) for name in names],
            controller_id=1,
        )

    def _topic(self, name: str) -> Any:
        partitions = [
            m.MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=self.replicas,
                isr_nodes=self.replicas,
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.NONE,
            )
            for (topic, index), leader in self.leaders.items()
            if topic == name
        ]
        code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return m.MetadataResponseTopic(error_code=code, name=name, partitions=partitions)

    def _find_coordinator(self, _broker: int, request: Any, _code: ErrorCode) -> Any:
        """Broker 2 coordinates all groups, and broker 1 the transactional ids that do not exist."""
        (key,) = request.coordinator_keys
        number = 2 if request.key_type == 0 else self.transactions[key].coordinator if key in self.transactions else 1
        found = m.FindCoordinatorResponseCoordinator(
            key=key, node_id=number, host="127.0.0.1", port=self._brokers[number].port
        )
        return m.FindCoordinatorResponse(coordinators=[found])

    def _list_transactions(self, broker: int, request: Any, code: ErrorCode) -> Any:
        states = [
            m.ListTransactionsResponseTransactionState(
                transactional_id=name, producer_id=each.producer_id, transaction_state=each.state
            )
            for name, each in self.transactions.items()
            if each.coordinator == broker
            and (not request.state_filters or each.state in request.state_filters)
            and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
        ]
        for each in (each for producers in self.producers.values() for each in producers):
            if each.producer_id in self.ends_after_listing:
                each.start_offset = -1
        return m.ListTransactionsResponse(error_code=code, transaction_states=() if code else states)

    def _describe_transactions(self, broker: int, request: Any, code: ErrorCode) -> Any:
        (name,) = request.transactional_ids
        described = m.DescribeTransactionsResponseTransactionState
        found = self.transactions.get(name)
        if found is not None and found.coordinator != broker:
            code = ErrorCode.NOT_COORDINATOR
        if found is None:
            code = code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if code or found is None:
            state = described(error_code=code, transactional_id=name, transaction_state="", transaction_start_time_ms=0)
            return m.DescribeTransactionsResponse(transaction_states=[state])
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in found.partitions:
            by_topic[topic].append(index)
        state = described(
            transactional_id=name,
            transaction_state=found.state,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                m.DescribeTransactionsResponseTopicData(topic=topic, partitions=indexes)
                for topic, indexes in by_topic.items()
            ],
        )
        return m.DescribeTransactionsResponse(transaction_states=[state])

    def _describe_producers(self, broker: int, request: Any, code: ErrorCode) -> Any:
        return m.DescribeProducersResponse(
            topics=[
                m.DescribeProducersResponseTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._described(broker, TopicPartition(topic.name, index), code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _described(self, _broker: int, partition: TopicPartition, code: ErrorCode) -> Any:
        """Any replica answers."""
        return m.DescribeProducersResponsePartitionResponse(
            partition_index=partition.partition,
            error_code=code,
            active_producers=[
                m.DescribeProducersResponseProducerState(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    last_sequence=0,
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.start_offset,
                )
                for each in (() if code else self.producers[partition])
            ],
        )

    def _list_offsets(self, broker: int, request: Any, _code: ErrorCode) -> Any:
        return m.ListOffsetsResponse(
            topics=[
                m.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        m.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self._not_leader(broker, TopicPartition(topic.name, each.partition_index)),
                            timestamp=-1,
                            offset=self.high_watermark,
                            leader_epoch=0,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _write_txn_markers(self, broker: int, request: Any, code: ErrorCode) -> Any:
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        partition = TopicPartition(topic.name, index)
        code = code or self._not_leader(broker, partition)
        if not code:
            for each in self.producers[partition]:
                if each.producer_id == marker.producer_id:
                    each.start_offset = -1
        return m.WriteTxnMarkersResponse(
            markers=[
                m.WriteTxnMarkersResponseWritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        m.WriteTxnMarkersResponseWritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                            ],
                        )
                    ],
                )
            ]
        )

    def _init_producer_id(self, _broker: int, request: Any, code: ErrorCode) -> Any:
        found = self.transactions.get(request.transactional_id)
        if code:
            return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        if found is None:
            self.next_producer_id += 1
            return m.InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)
        found.producer_epoch += 1
        if found.state == "Ongoing":
            found.state, found.partitions = "CompleteAbort", []
            code = ErrorCode.CONCURRENT_TRANSACTIONS
            return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        return m.InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    def _produce(self, broker: int, request: Any, code: ErrorCode) -> Any:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        partition = TopicPartition(topic.name, data.index)
        code = code or self._not_leader(broker, partition)
        if not code and self.verification is not None and self.verification[0] == "true":
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not code:
            header = read_header(data.records)
            opened = Producer(
                header.producer_id, header.producer_epoch, header.max_timestamp, start_offset=self.high_watermark
            )
            self.producers[partition].append(opened)
        produced = m.ProduceResponsePartitionProduceResponse(
            index=data.index, error_code=code, base_offset=-1 if code else self.high_watermark, log_append_time_ms=-1
        )
        return m.ProduceResponse(
            responses=[m.ProduceResponseTopicProduceResponse(name=topic.name, partition_responses=[produced])]
        )

    def _txn_offset_commit(self, _broker: int, request: Any, code: ErrorCode) -> Any:
        """The group is in partition 0 of `__consumer_offsets`."""
        (topic,) = request.topics
        (data,) = topic.partitions
        if not code and self.verification is not None and self.verification[0] == "true":
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not code:
            opened = Producer(request.producer_id, request.producer_epoch, start_offset=self.high_watermark)
            self.producers[TopicPartition("__consumer_offsets", 0)].append(opened)
        committed = m.TxnOffsetCommitResponsePartition(partition_index=data.partition_index, error_code=code)
        return m.TxnOffsetCommitResponse(
            topics=[m.TxnOffsetCommitResponseTopic(name=topic.name, partitions=[committed])]
        )

    def _describe_configs(self, broker: int, request: Any, _code: ErrorCode) -> Any:
        (resource,) = request.resources
        assert (resource.resource_type, resource.resource_name) == (4, str(broker))
        configs = [
            m.DescribeConfigsResourceResult(
                name=VERIFICATION, value=self.verification[0], config_source=self.verification[1]
            )
            for _ in [None]
            if self.verification is not None
        ]
        result = m.DescribeConfigsResult(resource_type=4, resource_name=resource.resource_name, configs=configs)
        return m.DescribeConfigsResponse(results=[result])

    def _incremental_alter_configs(self, broker: int, request: Any, code: ErrorCode) -> Any:
        (resource,) = request.resources
        (change,) = resource.configs
        assert (resource.resource_type, resource.resource_name, change.name) == (4, str(broker), VERIFICATION)
        if not code:
            is_set = change.config_operation == 0
            self.verification = (change.value, DYNAMIC_BROKER_CONFIG) if is_set else ("true", DEFAULT_CONFIG)
        respond = m.IncrementalAlterConfigsResponseAlterConfigsResourceResponse
        return m.IncrementalAlterConfigsResponse(
            responses=[
                respond(error_code=code, error_message=None, resource_type=4, resource_name=resource.resource_name)
            ]
        )

    def _not_leader(self, broker: int, partition: TopicPartition) -> ErrorCode:
        return ErrorCode.NONE if self.leaders.get(partition) == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER
