"""
DescribeProducers (61), version 0: the producer state of partitions.

Source: KIP-664; Kafka KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers.
"""

from __future__ import annotations

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.partitions.partitions import LocalPartitions
from kohort.broker.ports import Context
from kohort.broker.topics.topic_names import name_error
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.producer_states import ProducerStateEntry
from kohort.wire import messages as m

NOT_HOSTED = "This server does not host this topic-partition."
"""Kafka's text for a topic that does not exist. A missing partition of an existing topic has no text."""
_NO_TRANSACTION = -1


class DescribeProducers:
    """Handler of DescribeProducers, with which an admin finds hanging transactions."""

    def __init__(self, catalog: Catalog, partitions: LocalPartitions) -> None:
        self._catalog = catalog
        self._partitions = partitions

    def describe_producers(
        self, request: m.DescribeProducersRequest, _context: Context, _reply: Reply[m.DescribeProducersResponse]
    ) -> m.DescribeProducersResponse:
        return m.DescribeProducersResponse(
            topics=[
                m.DescribeProducersResponseTopicResponse(
                    name=topic.name, partitions=[self._describe(topic.name, index) for index in topic.partition_indexes]
                )
                for topic in request.topics
            ]
        )

    def _describe(self, topic: str, index: int) -> m.DescribeProducersResponsePartitionResponse:
        if self._catalog.topic(topic) is None:
            invalid = name_error(topic)
            if invalid:
                return _refusal(index, ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        try:
            partition = self._partitions.find_replica(topic, index)
        except StorageError as error:
            return _refusal(index, error.code, None)
        if partition is None:
            return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        return m.DescribeProducersResponsePartitionResponse(
            partition_index=index,
            error_code=ErrorCode.NONE,
            error_message=None,
            active_producers=[_producer(state) for state in partition.log.producers.states.values()],
        )


def _producer(state: ProducerStateEntry) -> m.DescribeProducersResponseProducerState:
    return m.DescribeProducersResponseProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.timestamp_ms,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=_NO_TRANSACTION if state.transaction_offset is None else state.transaction_offset,
    )


def _refusal(index: int, code: ErrorCode, message: str | None) -> m.DescribeProducersResponsePartitionResponse:
    return m.DescribeProducersResponsePartitionResponse(
        partition_index=index, error_code=code, error_message=message, active_producers=()
    )
