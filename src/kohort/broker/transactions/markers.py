"""
Transaction markers to the partitions of this node.

The coordinator of an internal topic appends to its partitions alone, so it is asked to write their markers. To any other
partition the marker is appended here.

Source: Kafka KafkaApis.handleWriteTxnMarkersRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import CoordinatorDirectory
from kohort.machine.shard import EndTransaction
from kohort.model.errors import CoordinatorError, ErrorCode, NotLeaderError, NotReplicaError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.ports import Clock, HoldAt

Done = Callable[[ErrorCode], None]

_NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class LocalMarkers:
    """
    The `kohort.machine.ports.Markers` of one process, or of one of its brokers.

    Args:
        find: finds a partition that has a leader, or that is led by the broker.

    Attributes:
        hold: asked before a marker is written.
    """

    def __init__(
        self, find: Callable[[str, int], Partition | None], clock: Clock, coordinators: CoordinatorDirectory
    ) -> None:
        self._find = find
        self._clock = clock
        self._coordinators = coordinators
        self.hold: HoldAt | None = None

    def write(self, topic_partition: TopicPartition, end: EndTransaction, done: Done, /) -> None:
        if self.hold is None or not self.hold(topic_partition, partial(self._write, topic_partition, end, done)):
            self._write(topic_partition, end, done)

    def _write(self, topic_partition: TopicPartition, end: EndTransaction, done: Done) -> None:
        topic, index = topic_partition
        try:
            partition = self._find(topic, index)
        except NotReplicaError:
            partition = None
        except NotLeaderError as error:
            done(error.code)
            return
        except StorageError:
            # An offline partition has no leader. Source: a 4.2.1 of which one log directory failed.
            partition = None
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if end.producer_id < 0 or end.producer_epoch < 0:
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        write_marker = self._coordinators.marker_writer(topic)
        if write_marker is not None:
            write_marker(index, end, partial(_ended_by_coordinator, done))
            return
        try:
            end_offset = partition.append_marker(end, self._clock.now_ms())
        except (CoordinatorError, StorageError) as error:
            done(error.code)
        else:
            partition.when_replicated(end_offset, done)


def _ended_by_coordinator(done: Done, code: ErrorCode) -> None:
    """Translate errors about a coordinator: the client looks for the partition's leader."""
    done(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NO_COORDINATOR else code)
