"""
AlterPartitionReassignments (45), versions 0 and 1, and ListPartitionReassignments (46), version 0.

There is one broker, so a partition can only be assigned to where it is, and no reassignment is ever under way. v1 of Alter may
forbid a change of the replication factor.

Source: KIP-455, KIP-860; Kafka ReplicationControlManager.alterPartitionReassignments, validateManualPartitionAssignment.
"""

from collections.abc import Generator, Sequence

from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.ports import Context
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m


class Reassignments:
    """Handlers of both APIs."""

    def __init__(self, catalog: Catalog, cluster: Cluster) -> None:
        self._catalog = catalog
        self._cluster = cluster

    def list_partition_reassignments(
        self,
        _request: m.ListPartitionReassignmentsRequest,
        _context: Context,
        _reply: Reply[m.ListPartitionReassignmentsResponse],
    ) -> m.ListPartitionReassignmentsResponse:
        return m.ListPartitionReassignmentsResponse(error_message=None)

    def alter_partition_reassignments(
        self,
        request: m.AlterPartitionReassignmentsRequest,
        _context: Context,
        _reply: Reply[m.AlterPartitionReassignmentsResponse],
    ) -> Generator[None, None, m.AlterPartitionReassignmentsResponse]:
        """Judge each partition by itself."""
        answers = []
        count = 0
        for topic in request.topics:
            found = []
            for wanted in topic.partitions:
                found.append(self._judge(topic.name, wanted))
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
            answers.append(
                m.AlterPartitionReassignmentsResponseReassignableTopicResponse(name=topic.name, partitions=found)
            )
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        return m.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            # Kafka's message is empty without topics, else null.
            error_message=None if answers else "",
            responses=answers,
        )

    def _judge(
        self, name: str, wanted: m.AlterPartitionReassignmentsRequestReassignablePartition
    ) -> m.AlterPartitionReassignmentsResponseReassignablePartitionResponse:
        index = wanted.partition_index
        topic = self._catalog.topic(name)
        code, message = ErrorCode.NONE, None
        if topic is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        elif not 0 <= index < topic.partition_count:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        elif wanted.replicas is None:
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        else:
            message = self._refuse(wanted.replicas)
            if message is not None:
                code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return m.AlterPartitionReassignmentsResponseReassignablePartitionResponse(
            partition_index=index, error_code=code, error_message=message
        )

    def _refuse(self, replicas: Sequence[int]) -> str | None:
        """The reason why a partition cannot have these replicas; None if it has them already."""
        if not replicas:
            return "The manual partition assignment includes an empty replica list."
        unknown = sorted(set(replicas) - {self._cluster.node_id})
        if unknown and unknown[0] < self._cluster.node_id:
            return _not_registered(unknown[0])
        if replicas.count(self._cluster.node_id) > 1:
            return f"The manual partition assignment includes the broker {self._cluster.node_id} more than once."
        return _not_registered(unknown[0]) if unknown else None


def _not_registered(broker_id: int) -> str:
    return f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
