"""The clients of the demonstration: members of groups and producers, which ask the broker of their own process."""

from collections.abc import Mapping, Sequence

from kohort.control.cluster.inside import Inside
from kohort.control.cluster.topics import NewTopic, Topics
from kohort.model.errors import ErrorCode, KohortError
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

_PRODUCE_VERSION = 11
"""The last one that adds no partition to a transaction, and that has names of topics."""
_COMMIT_VERSION = 9
"""The last one that has names of topics."""
_ADD_VERSION = 3
"""The last one of producers; later ones are of brokers."""
_END_VERSION = 4
"""The last one that leaves the epoch of the producer as it is."""
_LEAVES_EPOCH = -1


class Clients:
    """Producers of a broker, and what members share."""

    def __init__(self, node: Node) -> None:
        self.inside = Inside(node)
        self._topics = Topics(self.inside)
        self._node = node
        self.ends: dict[tuple[str, int], int] = {}

    @property
    def now_ms(self) -> int:
        return self._node.broker.clock.now_ms()

    async def create(self, topic: str, partitions: int) -> None:
        await self._topics.create(NewTopic(name=topic, partitions=partitions))

    async def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[str],
        *,
        producer: tuple[int, int] = (-1, -1),
        transactional_id: str | None = None,
    ) -> int:
        """
        Produce records and return the offset of the first one.

        Args:
            producer: id and epoch of the producer that has the transactional id.
        """
        is_transactional = transactional_id is not None
        records = build_batch(
            [BatchRecord(str(number).encode(), value.encode()) for number, value in enumerate(values)],
            timestamp_ms=self.now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        )
        data = m.ProduceRequestTopicProduceData(
            name=topic, partition_data=[m.ProduceRequestPartitionProduceData(index=partition, records=records)]
        )
        request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = await self.inside.ask(ApiKey.PRODUCE, request, version=_PRODUCE_VERSION)
        (written,) = answer.responses[0].partition_responses
        _check(written.error_code)
        self.ends[topic, partition] = written.base_offset + len(values)
        return int(written.base_offset)

    async def new_producer(self, transactional_id: str) -> tuple[int, int]:
        """The id and the epoch of a transactional producer."""
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = await self.inside.ask(ApiKey.INIT_PRODUCER_ID, request)
        _check(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def transact(self, transactional_id: str, topic: str, partition: int, values: Sequence[str]) -> None:
        """Produce records in a transaction of a new producer, and commit it."""
        producer_id, producer_epoch = producer = await self.new_producer(transactional_id)
        added = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        answer = await self.inside.ask(ApiKey.ADD_PARTITIONS_TO_TXN, added, version=_ADD_VERSION)
        _check(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        await self.produce(topic, partition, values, producer=producer, transactional_id=transactional_id)
        ended = m.EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
        )
        _check((await self.inside.ask(ApiKey.END_TXN, ended, version=_END_VERSION)).error_code)


class Member:
    """
    A member of a group of the consumer protocol.

    Attributes:
        owned: the partitions that the coordinator has given to it.
    """

    def __init__(self, clients: Clients, group: str, name: str, topic: str) -> None:
        self._clients = clients
        self.group = group
        self._name = name
        self._topic = topic
        self._epoch = 0
        self._assigned: Sequence[m.ConsumerGroupHeartbeatRequestTopicPartitions] = ()
        self.owned: list[int] = []

    async def heartbeat(self) -> None:
        is_first = self._epoch == 0
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._name,
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self._topic] if is_first else None,
            topic_partitions=self._assigned,
        )
        answer = await self._clients.inside.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, client_id=self._name)
        _check(answer.error_code)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = [
                m.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                for one in answer.assignment.topic_partitions
            ]
            self.owned = [number for one in self._assigned for number in one.partitions]

    async def leave(self) -> None:
        self._epoch = _LEAVES_EPOCH
        await self.heartbeat()

    async def commit(self, stuck: Mapping[int, int]) -> None:
        """Commit the ends of the partitions that the member has; `stuck` has the offsets of those where it does not get on."""
        if not self.owned:
            return
        places = [
            m.OffsetCommitRequestPartition(
                partition_index=number, committed_offset=stuck.get(number, self._clients.ends[self._topic, number])
            )
            for number in self.owned
        ]
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._name,
            topics=[m.OffsetCommitRequestTopic(name=self._topic, partitions=places)],
        )
        answer = await self._clients.inside.ask(ApiKey.OFFSET_COMMIT, request, version=_COMMIT_VERSION)
        for partition in answer.topics[0].partitions:
            _check(partition.error_code)


def _check(code: int) -> None:
    if code:
        raise KohortError(f"the broker of the demonstration answered {ErrorCode(code).name}")
