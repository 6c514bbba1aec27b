"""
The ends of partitions at the nodes that lead them: ListOffsets 11, one request a node for the questions of a turn.

Source: Kafka PartitionMetadataClient, NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from kohort.broker.cluster import NO_NODE_ID
from kohort.machine.ports import LatestOffsets
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Defer
from kohort.server.peers.gathering import Form, Gathering
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import REQUEST_MS, Channel, Directory, Peers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_LATEST: Final = -1
_CONSUMER: Final = -1

Answer = int | CoordinatorError
Told = Callable[[Answer], None]


class RemoteLatestOffsets:
    """
    The `kohort.machine.ports.LatestOffsets` of a cluster.

    Args:
        local: knows the partitions that this node leads.
    """

    def __init__(self, directory: Directory, local: LatestOffsets, peers: Peers, defer: Defer) -> None:
        self._directory = directory
        self._local = local
        self._gathering = Gathering(_FORM, peers, defer)
        self._waiting: dict[TopicPartition, list[Told]] = {}
        """The callers that have asked about a partition of another node; they share one question."""

    def latest_offset(self, topic_partition: TopicPartition, done: Told, /) -> None:
        leader = self._directory.leader(*topic_partition)
        if leader in (self._directory.node_id, NO_NODE_ID):
            self._local.latest_offset(topic_partition, done)
            return
        if (waiting := self._waiting.get(topic_partition)) is not None:
            waiting.append(done)
            return
        self._waiting[topic_partition] = [done]
        place = tuple(topic_partition)
        self._gathering.ask(leader, place, topic_partition, partial(self._tell, topic_partition))

    def _tell(self, topic_partition: TopicPartition, answer: Answer) -> None:
        for done in self._waiting.pop(topic_partition):
            done(answer)


def _request(items: Sequence[TopicPartition]) -> m.ListOffsetsRequest:
    found: dict[str, list[int]] = {}
    for topic, index in items:
        found.setdefault(topic, []).append(index)
    return m.ListOffsetsRequest(
        replica_id=_CONSUMER,
        timeout_ms=REQUEST_MS,
        topics=[
            m.ListOffsetsTopic(
                name=name,
                partitions=[m.ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes],
            )
            for name, indexes in found.items()
        ],
    )


def _answers(response: Any) -> Iterator[tuple[tuple[str, int], Answer]]:
    for topic in response.topics:
        for partition in topic.partitions:
            code = partition.error_code
            yield (
                (topic.name, partition.partition_index),
                CoordinatorError(ErrorCode(code)) if code else partition.offset,
            )


def _lost(lost: Lost | None) -> Answer:
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR if lost is None else ErrorCode.NETWORK_EXCEPTION)


_FORM: Final[Form[TopicPartition, Answer]] = Form(Channel.OFFSETS, ApiKey.LIST_OFFSETS, 11, _request, _answers, _lost)
