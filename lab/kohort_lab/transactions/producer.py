"""A transactional producer as clients are, of transaction version 1 or 2: it retries, aborts, gives up, and is fenced."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from kohort.machine.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.transactions.aging import is_exhausted
from kohort_lab.transactions.broker import DISCONNECTED, PARTITIONS, TOPIC, SimulatedBroker
from kohort_lab.transactions.ledger import Ledger, Outcome, SimulatedTransaction

GROUPS: Final = ("one", "other")
TIMEOUT_MS: Final = 20_000
RETRY_SHARE: Final = 0.8
"""The share of failed writes that are repeated; otherwise the producer aborts the transaction."""

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
"""The transaction has timed out or was fenced; EndTxn tells which."""

_LOST: Final = -1_000
"""In place of an error code: the connection broke."""


class SimulatedProducer:
    """
    One producer. `step` sends its next request, unless it waits for an answer.

    Args:
        is_version_2: whether it speaks transaction version 2 (KIP-890), else version 1 of KIP-98.
    """

    def __init__(self, broker: SimulatedBroker, ledger: Ledger, transactional_id: str, *, is_version_2: bool) -> None:
        self._broker = broker
        self._ledger = ledger
        self.transactional_id = transactional_id
        self.number = ledger.new_producer()
        self.is_version_2 = is_version_2
        self.is_waiting = False
        self.is_dead = False
        self.last_code = 0
        """The error code of its last answer."""
        self._producer_id, self._epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._needs_epoch = True
        self._sequences: dict[int, int] = {}
        self._transaction: SimulatedTransaction | None = None
        self._added: set[object] = set()
        self._actions: list[Callable[[], None]] = []
        self._commits = False
        self._retry: Callable[[], None] | None = None
        """The request to repeat: its answer was lost, or it asked to be repeated."""

    @property
    def _chance(self) -> Random:
        return self._broker.chance

    @property
    def is_in_transaction(self) -> bool:
        """Whether it has a transaction whose end it does not know."""
        return not self.is_dead and self._transaction is not None

    def step(self) -> None:
        """Send a request."""
        if self.is_waiting or self.is_dead:
            return
        if self._retry is not None:
            retry, self._retry = self._retry, None
            retry()
        elif self._needs_epoch:
            self._init()
        elif self._transaction is None:
            self._begin()
        elif self._actions:
            self._actions.pop(0)()
        else:
            self._end()

    def _ask(
        self,
        kind: str,
        api_key: ApiKey,
        version: int,
        request: Any,
        heard: Callable[[int, Any], None],
        *,
        may_be_late: bool = False,
    ) -> None:
        """Send a request; `heard(code, response)` gets the answer."""
        self.is_waiting = True
        # A new producer may always take the id over.
        owner = self._ledger.owner(self.transactional_id) if self._epoch != NO_PRODUCER_EPOCH else 0

        def answered(response: Any) -> None:
            self.is_waiting = False
            code = self.last_code = _LOST if response is DISCONNECTED else _code(response)
            if code == ErrorCode.NONE:
                self._ledger.acknowledge(kind, self.transactional_id, self.number, owner)
            elif code in _FENCED:
                self._ledger.counts["fenced"] += 1
                self.is_dead = True
            elif code == ErrorCode.UNKNOWN_SERVER_ERROR and is_exhausted(self._broker, self.transactional_id):
                # Kafka's answer to a producer that has the last epoch, or whose epochs another one has used up, and to a new
                # producer while a transaction of the last epoch is open. A new one asks again.
                self.is_dead = self._epoch != NO_PRODUCER_EPOCH
            elif code == ErrorCode.UNKNOWN_SERVER_ERROR or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._ledger.broken(f"{kind} of {self.transactional_id} is answered {ErrorCode(code).name}")
            heard(code, response)

        self._broker.ask(api_key, version, request, answered, may_be_late=may_be_late)

    # Epochs

    def _init(self) -> None:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )

        def heard(code: int, response: Any) -> None:
            if code == ErrorCode.NONE:
                self._ledger.take_over(self.transactional_id, self.number)
                self._take_epoch(response.producer_id, response.producer_epoch)

        self._ask("init", ApiKey.INIT_PRODUCER_ID, 5 if self.is_version_2 else 4, request, heard)

    def _take_epoch(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self._producer_id, self._epoch):
            self._sequences.clear()
        self._producer_id, self._epoch = producer_id, producer_epoch
        self._needs_epoch = False

    # A transaction

    def _begin(self) -> None:
        chance = self._chance
        self._transaction = self._ledger.begin(self.transactional_id)
        self._added.clear()
        self._commits = chance.random() < 0.7
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            if chance.random() < 0.5:
                self._plan_produce(chance.randrange(PARTITIONS[TOPIC]), chance.choice((1, 1, 3)))
            else:
                self._plan_commit(chance.choice(GROUPS), chance.randrange(PARTITIONS[TOPIC]))

    def _plan_produce(self, partition: int, count: int) -> None:
        assert self._transaction is not None
        values = [f"{self._transaction.name} {self._ledger.next_number()}" for _ in range(count)]
        if not self.is_version_2 and partition not in self._added:
            self._added.add(partition)
            self._actions.append(lambda: self._add_partition(partition))
        self._actions.append(lambda: self._produce(partition, values))

    def _plan_commit(self, group: str, partition: int) -> None:
        number = self._ledger.next_number()
        if not self.is_version_2 and group not in self._added:
            self._added.add(group)
            self._actions.append(lambda: self._add_offsets(group))
        self._actions.append(lambda: self._commit_offset(group, partition, number))

    def _heard(self, again: Callable[[], None], code: int) -> bool:
        """Decide what follows an answer; True if the request has succeeded."""
        if code == ErrorCode.NONE:
            return True
        if self.is_dead:
            return False
        if code == _LOST or code in _RETRIABLE:
            if self._chance.random() < RETRY_SHARE:
                self._retry = again
                return False
        elif code not in _ABORTABLE:
            self._ledger.broken(f"unexpected error {ErrorCode(code).name} for {self.transactional_id}")
        self._actions.clear()
        self._commits = False
        return False

    def _add_partition(self, partition: int) -> None:
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )
        self._ask(
            "add partitions",
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            request,
            lambda code, _: self._on_added(lambda: self._add_partition(partition), code),
        )

    def _add_offsets(self, group: str) -> None:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )
        self._ask(
            "add offsets",
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            request,
            lambda code, _: self._on_added(lambda: self._add_offsets(group), code),
        )

    def _on_added(self, again: Callable[[], None], code: int) -> None:
        self._heard(again, code)

    def _produce(self, partition: int, values: list[str]) -> None:
        sequence = self._sequences.get(partition, 0)
        records = build_batch(
            [BatchRecord(b"key", value.encode()) for value in values],
            timestamp_ms=self._broker.node.clock.now_ms(),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = m.ProduceRequestPartitionProduceData(index=partition, records=records)
        request = m.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[m.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])],
        )

        def heard(code: int, _: Any) -> None:
            if self._heard(lambda: self._produce(partition, values), code):
                assert self._transaction is not None
                self._sequences[partition] = sequence + len(values)
                self._transaction.acknowledged.update(values)

        self._ask("produce", ApiKey.PRODUCE, 12 if self.is_version_2 else 11, request, heard, may_be_late=True)

    def _commit_offset(self, group: str, partition: int, number: int) -> None:
        assert self._transaction is not None
        value = f"{self._transaction.name} {number}"
        entry = m.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=number, committed_metadata=value
        )
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id_or_member_epoch=-1,
            topics=[m.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[entry])],
        )

        def heard(code: int, _: Any) -> None:
            if self._heard(lambda: self._commit_offset(group, partition, number), code):
                assert self._transaction is not None
                self._transaction.acknowledged.add(value)

        # In version 1 a late commit could get into the next transaction, which version 2 prevents.
        self._ask(
            "commit offset",
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.is_version_2 else 4,
            request,
            heard,
            may_be_late=self.is_version_2,
        )

    # The end

    def _end(self) -> None:
        transaction = self._transaction
        assert transaction is not None
        commits = self._commits
        transaction.may_commit |= commits
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )

        def heard(code: int, response: Any) -> None:
            if code == ErrorCode.NONE:
                transaction.told = Outcome.COMMITTED if commits else Outcome.ABORTED
                self._ledger.counts[transaction.told.value] += 1
                self._transaction = None
                if self.is_version_2:
                    self._take_epoch(response.producer_id, response.producer_epoch)
                else:
                    # KIP-360: a batch of the aborted transaction may still be on its way.
                    self._needs_epoch = not commits
            elif code == ErrorCode.INVALID_TXN_STATE:
                # Timed out; or, in version 1, nothing was added.
                self._transaction = None
                self.is_dead = self.is_version_2
                self._needs_epoch = True
            elif code == _LOST or code in _RETRIABLE:
                self._retry = self._end
            elif not self.is_dead:
                self._ledger.broken(f"unexpected error {ErrorCode(code).name} at the end")

        self._ask("end", ApiKey.END_TXN, 5 if self.is_version_2 else 4, request, heard, may_be_late=self.is_version_2)


def _code(response: Any) -> int:
    """The error code of a response about one partition or transactional id."""
    if isinstance(response, m.ProduceResponse):
        return int(response.responses[0].partition_responses[0].error_code)
    if isinstance(response, m.TxnOffsetCommitResponse):
        return int(response.topics[0].partitions[0].error_code)
    if isinstance(response, m.AddPartitionsToTxnResponse):
        return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(response.error_code)
