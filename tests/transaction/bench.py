"""One transaction coordinator in virtual time: service, runtime and marker sender over logs whose commits a test controls."""

from collections.abc import Callable, Generator, Iterable
from typing import Any
from uuid import UUID

import msgspec

from kohort.machine.shard import Deadlines, EndTransaction, Producer, Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TRANSACTION_STATE, TopicPartition, coordinator_partition
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from kohort.testing.context import FixedContext, take_all
from kohort.testing.log import FaultyLog
from kohort.testing.virtual import VirtualNode
from kohort.transaction.config import TransactionConfig
from kohort.transaction.context import TransactionContext
from kohort.transaction.effects import TransactionEffects
from kohort.transaction.events import TransactionEvent
from kohort.transaction.markers import MarkerSender
from kohort.transaction.records import TransactionRecord, TransactionRecordSerde
from kohort.transaction.service import TransactionService
from kohort.transaction.shard import TransactionShard
from kohort.transaction.states import EMPTY, TransactionState
from kohort.transaction.transaction import Transaction
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import read_records

ID = "tx"
TIMEOUT_MS = 60_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Topic(msgspec.Struct, frozen=True):
    """A `kohort.model.image.TopicImage`."""

    name: str
    partition_count: int
    topic_id: UUID = UUID(int=1)


class Image(dict[str, Topic]):
    """A `kohort.model.image.ClusterImage` that a test changes."""

    version = 0
    has_racks = False

    def racks(self, _topic_id: UUID, _partition: int, /) -> tuple[str, ...]:
        return ()

    def topic(self, name: str) -> Topic | None:
        return self.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self.values() if topic.topic_id == topic_id), None)

    def topics(self) -> Iterable[Topic]:
        return self.values()


class Ids:
    """A `kohort.machine.ports.ProducerIdGenerator` that counts from 1000 on."""

    def __init__(self) -> None:
        self.next = 1000
        self.is_empty = False
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def take(self) -> int | None:
        if self.is_empty:
            return None
        self.next += 1
        return self.next - 1

    def when_available(self, ready: Callable[[ErrorCode], None], /) -> None:
        if self.is_empty:
            self.waiting.append(ready)
        else:
            ready(ErrorCode.NONE)


class HeldMarkers:
    """A `kohort.machine.ports.Markers` whose answers a test gives. `code` answers at once; None holds the answer."""

    def __init__(self) -> None:
        self.code: ErrorCode | None = ErrorCode.NONE
        self.sent: list[tuple[TopicPartition, EndTransaction]] = []
        self.held: list[tuple[TopicPartition, Callable[[ErrorCode], None]]] = []

    def write(self, topic_partition: TopicPartition, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        self.sent.append((topic_partition, end))
        if self.code is None:
            self.held.append((topic_partition, done))
        else:
            done(self.code)

    def answer(self, code: ErrorCode = ErrorCode.NONE, *only: TopicPartition) -> None:
        """Answer the held markers, all of them unless some are named."""
        held, self.held = self.held, []
        for topic_partition, done in held:
            if only and topic_partition not in only:
                self.held.append((topic_partition, done))
            else:
                done(code)


class Bench:
    """
    Args:
        level: the finalised level of `transaction.version`.
        commits: whether appended records are committed at once.
    """

    def __init__(self, *, level: int = 2, commits: bool = True, partition_count: int = 1, **config: int) -> None:
        self.level = level
        self.commits = commits
        self.node = VirtualNode()
        self.ids = Ids()
        self.markers = HeldMarkers()
        self.image = Image({"t": Topic("t", 4), "__consumer_offsets": Topic("__consumer_offsets", 50)})
        self.events: list[TransactionEvent] = []
        self.contexts: dict[int, TransactionContext] = {}
        self.effects = TransactionEffects(self.contexts, self.events.append)
        self.config = TransactionConfig(**config)
        self.partition_count = partition_count
        self.logs = [FaultyLog(TRANSACTION_STATE, index) for index in range(partition_count)]
        self.start()

    def start(self, leader_epoch: int = 0) -> None:
        """Start a coordinator over the logs, as after a restart."""
        self.senders: dict[int, MarkerSender] = {}
        self.runtime = Runtime(
            make_shard=self._make_shard,
            serde=TransactionRecordSerde(lambda: self.level),
            clock=self.node.clock,
            processor=InlineProcessor(self.node.wheel, self.node.defer, self.node.call_soon),
            partition_count=self.partition_count,
            image=self.image,
            on_effects=self.effects,
        )
        self.service = TransactionService(
            self.runtime,
            self.config,
            self.image,
            self.ids,
            lambda partition, transactional_id: self.senders[partition].remaining(transactional_id),
            self.node.clock.now_ms,
            lambda: self.image["__consumer_offsets"].partition_count,
        )
        for index, log in enumerate(self.logs):
            self.runtime.load(index, log, leader_epoch)
        self.settle()

    def restart(self) -> None:
        """Stop the coordinator and start it in the next leader epoch, over what is in the logs."""
        self.runtime.close()
        self.settle()
        self.start(self.logs[0].leader_epoch + 1)

    def _make_shard(self, partition: int, registry: SnapshotRegistry, _deadlines: Deadlines) -> TransactionShard:
        sender = self.senders[partition] = MarkerSender(
            self.runtime, partition, self.markers, self.image, self.node.call_later, self.events.append
        )
        shard = TransactionShard(registry, self.config, self.ids, sender, lambda: self.level)
        self.contexts[partition] = shard.context
        return shard

    def settle(self) -> None:
        """Run everything that does not wait for time; commit what was appended, if the bench commits."""
        self.node.settle()
        while self.commits and any(log.high_watermark < log.end_offset for log in self.logs):
            for log in self.logs:
                log.commit()
            self.node.settle()

    def advance(self, duration_ms: int) -> None:
        """Let time pass in steps, and commit after each."""
        until_ms = self.node.clock.now_ms() + duration_ms
        while self.node.clock.now_ms() < until_ms:
            next_ms = self.node.wheel.next_ms
            step_ms = until_ms if next_ms is None else min(max(next_ms, self.node.clock.now_ms()), until_ms)
            self.node.advance(step_ms - self.node.clock.now_ms())
            self.settle()
            if next_ms is None or next_ms > until_ms:
                break
        self.settle()

    # -- state -------------------------------------------------------------------------------------------------

    def transaction(self, transactional_id: str = ID) -> Transaction | None:
        """The newest state of a transactional id."""
        partition = coordinator_partition(transactional_id, self.partition_count)
        return self.runtime.query(partition, lambda shard, _: shard.transactions.get(transactional_id))

    def state(self, transactional_id: str = ID) -> TransactionState | None:
        found = self.transaction(transactional_id)
        return None if found is None else found.state

    def put(self, transaction: Transaction) -> None:
        """Put a transactional id into a state, as the log would."""
        partition = coordinator_partition(transaction.transactional_id, self.partition_count)
        written = self.runtime.submit(partition, lambda _shard, _now_ms: _put(transaction))
        self.settle()
        assert written.result() is True

    def records(self, partition: int = 0) -> list[TransactionRecord]:
        """The records in a log, decoded."""
        serde = TransactionRecordSerde()
        return [
            serde.decode(record.key or b"", record.value)
            for batch in self.logs[partition].batches
            for record in read_records(batch)
        ]

    def states(self, partition: int = 0) -> list[tuple[str, int, int]]:
        """The state, producer id and epoch of each record; a tombstone is `("", -1, -1)`."""
        return [
            (record.state.wire_name, record.producer_id, record.producer_epoch)
            if isinstance(record, Transaction)
            else ("", -1, -1)
            for record in self.records(partition)
        ]

    # -- requests ----------------------------------------------------------------------------------------------

    def begin(self, api: Callable[..., Any], request: Any, version: int) -> list[Any]:
        """Ask, and return the list into which the answer falls."""
        answers: list[Any] = []
        answer = api(request, FixedContext(version), answers.append)
        if isinstance(answer, Generator):
            take_all(answer, answers.append)
        elif answer is not None:
            answers.append(answer)
        self.settle()
        return answers

    def ask(self, api: Callable[..., Any], request: Any, version: int) -> Any:
        """Ask, let time pass if the answer needs it, and return the answer."""
        answers = self.begin(api, request, version)
        if not answers:
            self.advance(200)
        assert len(answers) == 1, answers
        return answers[0]

    def init(
        self,
        transactional_id: str | None = ID,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
    ) -> tuple[int, int, int]:
        """InitProducerId: error code, producer id and epoch."""
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        answer = self.ask(self.service.init_producer_id, request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def add(
        self,
        producer_id: int,
        producer_epoch: int,
        *partitions: TopicPartition,
        transactional_id: str = ID,
        version: int = 3,
        verify_only: bool = False,
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn: the code of each partition."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        listed = [m.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()]
        if version < 4:
            request = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=producer_epoch,
                v3_and_below_topics=listed,
            )
        else:
            transaction = m.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=verify_only,
                topics=listed,
            )
            request = m.AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self.ask(self.service.handlers()[ApiKey.ADD_PARTITIONS_TO_TXN], request, version)
        if answer.error_code:
            return dict.fromkeys(partitions, ErrorCode(answer.error_code))
        results = (
            answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
        )
        return {
            TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        }

    def added(
        self, producer_id: int, producer_epoch: int, topic_partition: TopicPartition, version: int = 3
    ) -> ErrorCode:
        """AddPartitionsToTxn with one partition: its code."""
        return self.add(producer_id, producer_epoch, topic_partition, version=version)[topic_partition]

    def add_offsets(self, producer_id: int, producer_epoch: int, group_id: str = "g", version: int = 4) -> ErrorCode:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer_id, producer_epoch=producer_epoch, group_id=group_id
        )
        return ErrorCode(self.ask(self.service.partitions.add_offsets_to_txn, request, version).error_code)

    def end(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool = True,
        version: int = 4,
        transactional_id: str = ID,
    ) -> tuple[ErrorCode, int, int]:
        """EndTxn: error code, and from version 5 on the producer id and epoch that follow."""
        request = m.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )
        answer = self.ask(self.service.end_txn, request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def verify(
        self, producer_id: int, producer_epoch: int, topic_partition: TopicPartition, *, adds: bool = False
    ) -> ErrorCode:
        """Ask as a partition leader does."""
        answers: list[CoordinatorError | None] = []
        producer = Producer(ID, producer_id, producer_epoch, adds_partition=adds)
        self.service.partitions.verify(topic_partition, producer, answers.append)
        self.settle()
        if not answers:
            self.advance(200)
        (error,) = answers
        return ErrorCode.NONE if error is None else error.code

    def describe(self, transactional_id: str = ID) -> m.DescribeTransactionsResponseTransactionState:
        request = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (state,) = self.ask(self.service.describe_transactions, request, 0).transaction_states
        return state  # type: ignore[no-any-return]

    def listed(self, version: int = 2, **filters: Any) -> m.ListTransactionsResponse:
        defaults: dict[str, Any] = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        request = m.ListTransactionsRequest(**defaults | {"transactional_id_pattern": None} | filters)
        return self.ask(self.service.list_transactions, request, version)  # type: ignore[no-any-return]


def _put(transaction: Transaction) -> Result[TransactionRecord, bool]:
    return Result([transaction], True)


def transaction(**fields: Any) -> Transaction:
    """A transactional id in state Empty with producer 1000 and epoch 0, unless fields say otherwise."""
    defaults: dict[str, Any] = {
        "transactional_id": ID,
        "producer_id": 1000,
        "producer_epoch": 0,
        "timeout_ms": TIMEOUT_MS,
        "state": EMPTY,
        "partitions": frozenset(),
        "start_timestamp_ms": -1,
        "update_timestamp_ms": 1_700_000_000_000,
    }
    return Transaction(**defaults | fields)
