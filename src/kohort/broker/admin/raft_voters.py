"""
AddRaftVoter (80), versions 0 and 1, and RemoveRaftVoter (81), version 0: the quorum of one node does not change.

Kafka asks a new voter for its versions. Kohort asks nobody, and answers as if no voter could be reached.

Source: KIP-853; Kafka KafkaRaftClient.handleAddVoterRequest, handleRemoveVoterRequest, AddVoterHandler, RemoveVoterHandler.
"""

from typing import Final

from kohort.broker.cluster import Cluster
from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.wire import messages as m

_LISTENER: Final = "CONTROLLER"
_SHOWN_MAX: Final = 10
"""Listeners that an error message names."""
_ALONE: Final = "The quorum has one node, and Kohort does not add voters to it."


class RaftVoters:
    """Handlers of both APIs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def add_raft_voter(
        self, request: m.AddRaftVoterRequest, _context: Context, _reply: Reply[m.AddRaftVoterResponse]
    ) -> m.AddRaftVoterResponse:
        try:
            self._check(request.cluster_id, request.voter_id, "Add voter request didn't include a valid voter")
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
            self._check(request.cluster_id, request.voter_id, "Remove voter request didn't include a valid voter")
        except CoordinatorError as error:
            return m.RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
        voter = f"ReplicaKey(id={request.voter_id}, directoryId={uuid_text(request.voter_directory_id)})"
        return m.RemoveRaftVoterResponse(
            error_code=ErrorCode.VOTER_NOT_FOUND,
            error_message=f"Cannot remove voter {voter} from the set of voters {self._voters()}",
        )

    def _check(self, cluster_id: str | None, voter_id: int, message: str) -> None:
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


def _endpoints(request: m.AddRaftVoterRequest) -> str:
    shown = ", ".join(
        f"ListenerName({each.name})={each.host}/<unresolved>:{each.port}" for each in request.listeners[:_SHOWN_MAX]
    )
    return f"Endpoints(endpoints={{{shown}}})"
