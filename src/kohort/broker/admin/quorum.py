"""
DescribeQuorum (55), versions 0 to 2, UnregisterBroker (64), version 0, AddRaftVoter (80), versions 0 and 1, RemoveRaftVoter
(81), version 0, and UnregisterController (94), version 0: every broker is a voter and a controller, and the first running one
leads. The quorum does not change.

The catalog of topics stands for Kafka's metadata log: its end offset and leader epoch are answered for `__cluster_metadata`.
v1 of Describe adds times, v2 messages and nodes. Voters have no listener for controllers. Kafka asks a new voter for its
versions. Kohort asks nobody, and answers as if no voter could be reached.

Source: KIP-595, KIP-836, KIP-853; Kafka KafkaRaftClient.handleDescribeQuorumRequest, handleAddVoterRequest,
handleRemoveVoterRequest, AddVoterHandler, RemoveVoterHandler; ClusterControlManager.unregisterBroker, unregisterController;
QuorumController.unregisterController.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final
from uuid import UUID

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import CatalogChange, Setting
from kohort.broker.cluster import Cluster
from kohort.broker.controller.registrations import NODE_KIND
from kohort.broker.ports import Context
from kohort.broker.topics.topic_names import CLUSTER_METADATA
from kohort.machine.gradual import LOOK_STEP, chunks, gathered_by_topic
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.runtime.ports import Clock
from kohort.wire import messages as m

_UNKNOWN: Final = "This server does not host this topic-partition."
_RUNS: Final = "A running broker cannot be unregistered; stop it first."
_LAST_BROKER: Final = "The only broker of the cluster cannot be unregistered."

_ACTIVE_CONTROLLER: Final = "Controller cannot unregister itself while it is active."

_LISTENER: Final = "CONTROLLER"
_SHOWN_MAX: Final = 10
"""Listeners that an error message names."""
_ALONE: Final = "The quorum has one node, and Kohort does not add voters to it."


class Quorum:
    """Handlers of these APIs."""

    def __init__(self, catalog: Catalog, cluster: Cluster, clock: Clock) -> None:
        self._catalog = catalog
        self._cluster = cluster
        self._clock = clock

    def describe_quorum(
        self, request: m.DescribeQuorumRequest, _context: Context, _reply: Reply[m.DescribeQuorumResponse]
    ) -> Generator[None, None, m.DescribeQuorumResponse]:
        # Topics without partitions do not count.
        asked: list[tuple[str, int]] = []
        for topics in chunks(request.topics, LOOK_STEP):
            for topic in topics:
                asked += [(topic.topic_name, partition.partition_index) for partition in topic.partitions[:2]]
            if len(asked) > 1:
                break
            if len(topics) == LOOK_STEP:
                yield
        if asked != [(CLUSTER_METADATA, 0)]:
            return (yield from _refuse(request))
        partition = m.DescribeQuorumResponsePartitionData(
            partition_index=0,
            error_message="",
            leader_id=self._cluster.controller,
            leader_epoch=self._catalog.leader_epoch,
            high_watermark=self._catalog.version,
            current_voters=[self._voter(node_id) for node_id in self._cluster.nodes],
        )
        return m.DescribeQuorumResponse(
            error_message="",
            topics=[m.DescribeQuorumResponseTopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
            nodes=[m.DescribeQuorumResponseNode(node_id=node_id) for node_id in self._cluster.nodes],
        )

    def _voter(self, node_id: int) -> m.DescribeQuorumResponseReplicaState:
        now_ms = self._clock.now_ms()
        return m.DescribeQuorumResponseReplicaState(
            replica_id=node_id,
            replica_directory_id=UUID(int=0),
            log_end_offset=self._catalog.version,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    def unregister_broker(
        self, request: m.UnregisterBrokerRequest, _context: Context, reply: Reply[m.UnregisterBrokerResponse]
    ) -> m.UnregisterBrokerResponse | None:
        broker_id = request.broker_id
        broker = self._cluster.brokers.get(broker_id)
        if broker is not None and not broker.is_fenced:
            return m.UnregisterBrokerResponse(
                error_code=ErrorCode.POLICY_VIOLATION,
                error_message=_LAST_BROKER if len(self._cluster.brokers) == 1 else _RUNS,
            )
        if broker is not None and self._cluster.is_shared:
            gone = CatalogChange(settings=(Setting(NODE_KIND, str(broker_id), None),))
            self._catalog.change(gone, lambda code: reply(m.UnregisterBrokerResponse(error_code=code)))
            return None
        if broker is not None:
            del self._cluster.brokers[broker_id]
            return m.UnregisterBrokerResponse()
        return m.UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {broker_id} is not currently registered",
        )

    def unregister_controller(
        self, request: m.UnregisterControllerRequest, _context: Context, _reply: Reply[m.UnregisterControllerResponse]
    ) -> m.UnregisterControllerResponse:
        """A controller that is not active registers again as soon as it runs, so nothing is done about one."""
        controller_id = request.controller_id
        if controller_id == self._cluster.controller:
            return m.UnregisterControllerResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=_ACTIVE_CONTROLLER
            )
        if controller_id not in self._cluster.brokers:
            return m.UnregisterControllerResponse(
                error_code=ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                error_message=f"Controller ID {controller_id} is not currently registered.",
            )
        return m.UnregisterControllerResponse()

    def add_raft_voter(
        self, request: m.AddRaftVoterRequest, _context: Context, _reply: Reply[m.AddRaftVoterResponse]
    ) -> m.AddRaftVoterResponse:
        try:
            self._check_voter(request.cluster_id, request.voter_id, "Add voter request didn't include a valid voter")
            if all(listener.name != _LISTENER for listener in request.listeners):
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST,
                    f"Add voter request didn't include the endpoint ({_endpoints(request)}) for the default listener "
                    f"ListenerName({_LISTENER})",
                )
            if request.voter_id == self._cluster.node_id:
                raise CoordinatorError(
                    ErrorCode.DUPLICATE_VOTER,
                    f"The voter id for ReplicaKey(id={request.voter_id}, directoryId={uuid_text(request.voter_directory_id)}) "
                    f"is already part of the set of voters {self._voters()}.",
                )
        except CoordinatorError as error:
            return m.AddRaftVoterResponse(error_code=error.code, error_message=error.message)
        return m.AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=_ALONE)

    def remove_raft_voter(
        self, request: m.RemoveRaftVoterRequest, _context: Context, _reply: Reply[m.RemoveRaftVoterResponse]
    ) -> m.RemoveRaftVoterResponse:
        try:
            self._check_voter(request.cluster_id, request.voter_id, "Remove voter request didn't include a valid voter")
        except CoordinatorError as error:
            return m.RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
        voter = f"ReplicaKey(id={request.voter_id}, directoryId={uuid_text(request.voter_directory_id)})"
        return m.RemoveRaftVoterResponse(
            error_code=ErrorCode.VOTER_NOT_FOUND,
            error_message=f"Cannot remove voter {voter} from the set of voters {self._voters()}",
        )

    def _check_voter(self, cluster_id: str | None, voter_id: int, message: str) -> None:
        ours = self._cluster.cluster_id
        if cluster_id is not None and cluster_id != ours:
            raise CoordinatorError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{cluster_id}" doesn\'t match the cluster id "{ours}"',
            )
        if voter_id < 0:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)

    def _voters(self) -> str:
        return f"[ReplicaKey(id={self._cluster.node_id}, directoryId=<undefined>)]"


def _refuse(request: m.DescribeQuorumRequest) -> Generator[None, None, m.DescribeQuorumResponse]:
    """The answer to a request for other partitions than that of the metadata log, or for it and others."""
    topics = yield from gathered_by_topic(
        ((topic.topic_name, topic.partitions) for topic in request.topics),
        lambda _, partition: m.DescribeQuorumResponsePartitionData(
            partition_index=partition.partition_index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=_UNKNOWN,
        ),
        lambda name, refused: m.DescribeQuorumResponseTopicData(topic_name=name, partitions=refused),
    )
    return m.DescribeQuorumResponse(error_message="", topics=topics)


def _endpoints(request: m.AddRaftVoterRequest) -> str:
    shown = ", ".join(
        f"ListenerName({each.name})={each.host}/<unresolved>:{each.port}" for each in request.listeners[:_SHOWN_MAX]
    )
    return f"Endpoints(endpoints={{{shown}}})"
