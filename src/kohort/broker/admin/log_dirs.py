"""
DescribeLogDirs (35), versions 1 to 5, and AlterReplicaLogDirs (34), versions 1 and 2, of the only log directory.

v3 of Describe adds an error of the whole request, v4 the size of the volume, v5 whether the directory is cordoned. A broker
without disk answers the store's location as its directory, and no size of a volume.

Source: KIP-113, KIP-827; Kafka ReplicaManager.describeLogDirs, alterReplicaLogDirs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.partitions.partitions import LocalPartitions
from kohort.broker.ports import Context
from kohort.machine.gradual import HANDLER_STEP, gathered, gathered_by_topic
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode, StorageError
from kohort.storage.log import LogStore
from kohort.wire import messages as m


class LogDirs:
    """
    Handlers of both APIs.

    Args:
        store: the logs.
    """

    def __init__(self, catalog: Catalog, partitions: LocalPartitions, cluster: Cluster, store: LogStore) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._cluster = cluster
        self._store = store
        self._name = store.location

    @property
    def _is_cordoned(self) -> bool:
        return self._cluster.node_id in self._cluster.cordoned

    def describe_log_dirs(
        self, request: m.DescribeLogDirsRequest, _context: Context, _reply: Reply[m.DescribeLogDirsResponse]
    ) -> Generator[None, None, m.DescribeLogDirsResponse]:
        """Describe the partitions that are asked for and exist; all for null."""
        topics = yield from gathered_by_topic((yield from self._wanted(request)), self._described, _described_topic)
        volume = self._store.volume()
        result = m.DescribeLogDirsResult(
            log_dir=self._name,
            topics=topics,
            total_bytes=volume.total_bytes,
            usable_bytes=volume.usable_bytes,
            is_cordoned=self._is_cordoned,
        )
        return m.DescribeLogDirsResponse(results=[result])

    def _wanted(self, request: m.DescribeLogDirsRequest) -> Generator[None, None, Iterable[tuple[str, Iterable[int]]]]:
        """Topics and partitions, each once."""
        if request.topics is None:
            return [(topic.name, range(topic.partition_count)) for topic in self._catalog.topics()]
        wanted: dict[str, dict[int, None]] = {}
        for number, topic in enumerate(request.topics, 1):
            wanted.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
            if number % HANDLER_STEP == 0:
                yield
        return wanted.items()

    def _described(self, name: str, index: int) -> m.DescribeLogDirsPartition | None:
        """The bytes of all segments of a log; None without a replica here, or if its log cannot be opened."""
        try:
            partition = self._partitions.find_replica(name, index)
        except StorageError:
            return None
        if partition is None:
            return None
        return m.DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size_bytes)

    def alter_replica_log_dirs(
        self, request: m.AlterReplicaLogDirsRequest, _context: Context, _reply: Reply[m.AlterReplicaLogDirsResponse]
    ) -> Generator[None, None, m.AlterReplicaLogDirsResponse]:
        """A replica can only be moved to where it is, and not if no directory may get partitions."""
        answers: dict[str, dict[int, ErrorCode]] = {}
        count = 0
        for directory in request.dirs:
            is_known = directory.path == self._name
            for topic in directory.topics:
                codes = answers.setdefault(topic.name, {})
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
                for index in topic.partitions:
                    codes[index] = self._judge(topic.name, index) if is_known else ErrorCode.LOG_DIR_NOT_FOUND
                    count += 1
                    if count % HANDLER_STEP == 0:
                        yield
        results = yield from gathered(_altered(name, codes) for name, codes in answers.items())
        return m.AlterReplicaLogDirsResponse(results=results)

    def _judge(self, name: str, index: int) -> ErrorCode:
        if self._is_cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        topic = self._catalog.topic(name)
        if topic is None or not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_here = self._partitions.node_id in self._catalog.state(topic, index).replicas
        return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE


def _described_topic(name: str, partitions: list[m.DescribeLogDirsPartition]) -> m.DescribeLogDirsTopic | None:
    return m.DescribeLogDirsTopic(name=name, partitions=partitions) if partitions else None


def _altered(name: str, codes: dict[int, ErrorCode]) -> m.AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult:
    partitions = [
        m.AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        for index, code in codes.items()
    ]
    return m.AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
