"""
AlterPartitionReassignments (45), versions 0 and 1, ListPartitionReassignments (46), version 0, and ElectLeaders (43), versions
0 to 2: preferred leaders, and leaders for partitions without one.

All replicas share one log, so a reassignment is complete at once unless the broker of an added replica is stopped. v1 of Alter
may forbid a change of the replication factor. v1 of ElectLeaders adds unclean elections and an error for the whole request.

Source: KIP-455, KIP-460, KIP-860; Kafka ReplicationControlManager.alterPartitionReassignments, electLeaders,
ControllerApis.handleElectLeaders.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.changes import Changes
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.partitions.replicas import (
    Election,
    PartitionState,
    assignment_error,
    cancelled,
    may_cancel,
    original_replicas,
    reassigned,
)
from kohort.broker.partitions.replication import ReplicationControl
from kohort.broker.ports import Context
from kohort.machine.gradual import gathered_by_topic
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

if TYPE_CHECKING:
    Elected = m.ElectLeadersResponsePartitionResult
    Judged = m.AlterPartitionReassignmentsResponseReassignablePartitionResponse
    Ongoing = m.ListPartitionReassignmentsResponseOngoingPartitionReassignment
    OngoingTopic = m.ListPartitionReassignmentsResponseOngoingTopicReassignment
    Wanted = m.AlterPartitionReassignmentsRequestReassignablePartition

_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_TYPES_SINCE: Final = 1
_MESSAGES: Final = {
    ErrorCode.NONE: None,
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


class Reassignments:
    """Handlers of these APIs."""

    def __init__(self, catalog: Catalog, cluster: Cluster, control: ReplicationControl, changes: Changes) -> None:
        self._catalog = catalog
        self._cluster = cluster
        self._control = control
        self._changes = changes

    def list_partition_reassignments(
        self,
        request: m.ListPartitionReassignmentsRequest,
        _context: Context,
        _reply: Reply[m.ListPartitionReassignmentsResponse],
    ) -> Generator[None, None, m.ListPartitionReassignmentsResponse]:
        found = yield from gathered_by_topic(
            self._wanted(request),
            lambda topic, index: None if topic is None else _ongoing(index, self._catalog.state(topic, index)),
            _ongoing_topic,
        )
        return m.ListPartitionReassignmentsResponse(error_message=None, topics=found)

    def _wanted(self, request: m.ListPartitionReassignmentsRequest) -> Iterable[tuple[Topic | None, Iterable[int]]]:
        """
        The partitions that are asked for and exist; all for null. Topics of a single broker have no reassignments.

        A topic that does not exist is None, so that it counts in the steps: a request may name a million of them.
        """
        if request.topics is None:
            topics = list(self._catalog.topics())
            return ((topic, range(topic.partition_count)) for topic in topics if topic.partitions)
        found = ((self._catalog.topic(asked.name), asked.partition_indexes) for asked in request.topics)
        return (
            (topic, [] if topic is None else [index for index in indexes if 0 <= index < topic.partition_count])
            for topic, indexes in found
        )

    def alter_partition_reassignments(
        self,
        request: m.AlterPartitionReassignmentsRequest,
        _context: Context,
        reply: Reply[m.AlterPartitionReassignmentsResponse],
    ) -> Generator[None, None, m.AlterPartitionReassignmentsResponse | None]:
        """Judge each partition by itself, and answer when the changes are durable."""
        moved: dict[str, Topic] = {}
        may_resize = request.allow_replication_factor_change
        code = ErrorCode.REQUEST_TIMED_OUT if request.timeout_ms <= 0 and request.topics else ErrorCode.NONE

        def judge(name: str, wanted: Wanted) -> Judged:
            if code:
                return _judged(wanted, code)
            return self._judge(name, wanted, moved, may_resize=may_resize)

        answers = yield from gathered_by_topic(
            ((topic.name, topic.partitions) for topic in request.topics),
            judge,
            lambda name, judged: m.AlterPartitionReassignmentsResponseReassignableTopicResponse(
                name=name, partitions=judged
            ),
        )

        def response(failure: ErrorCode) -> m.AlterPartitionReassignmentsResponse:
            return m.AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=may_resize,
                error_code=code or failure,
                # Kafka's message is empty without topics, else null.
                error_message=None if answers else "",
                responses=answers,
            )

        return self._changes.make(CatalogChange(put=tuple(moved.values())), request.timeout_ms, response, reply)

    def _judge(self, name: str, wanted: Wanted, moved: dict[str, Topic], *, may_resize: bool) -> Judged:
        """Reassign one partition; the topic to write goes into `moved`."""
        try:
            topic = self._reassign(moved.get(name) or self._catalog.newest(name), name, wanted, may_resize=may_resize)
        except CoordinatorError as error:
            return _judged(wanted, error.code, error.message)
        if topic is not None:
            moved[name] = topic
        return _judged(wanted, ErrorCode.NONE)

    def _reassign(self, topic: Topic | None, name: str, wanted: Wanted, *, may_resize: bool) -> Topic | None:
        """
        The topic to write; None if nothing changes.

        Raises:
            CoordinatorError: the partition cannot be reassigned.
        """
        index, target = wanted.partition_index, wanted.replicas
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if not 0 <= index < topic.partition_count:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        state = self._catalog.state(topic, index)
        is_active = self._cluster.is_active
        if target is None:
            if not state.is_reassigned:
                raise CoordinatorError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            if not may_cancel(state):
                raise CoordinatorError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {name}:{index} because it would require an unclean leader "
                    "election.",
                )
            return self._control.moved(
                topic, lambda state, min_isr: cancelled(state, is_active, min_isr=min_isr), index
            )
        message = assignment_error(target, self._cluster.brokers, self._cluster.cordoned)
        if message is not None:
            raise CoordinatorError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        origin = original_replicas(state)
        if not may_resize and len(target) != len(origin):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(origin)} to {len(target)}",
            )
        return self._control.moved(
            topic, lambda state, min_isr: reassigned(state, target, is_active, min_isr=min_isr), index
        )

    def elect_leaders(
        self, request: m.ElectLeadersRequest, context: Context, reply: Reply[m.ElectLeadersResponse]
    ) -> Generator[None, None, m.ElectLeadersResponse | None]:
        """Elect for each partition by itself, and answer when all elections are durable."""
        code, message = ErrorCode.NONE, None
        if request.timeout_ms <= 0 and (request.topic_partitions is None or request.topic_partitions):
            code = ErrorCode.REQUEST_TIMED_OUT
        elif context.api_version >= _TYPES_SINCE and request.election_type not in _TYPES:
            code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        is_refused = code is not ErrorCode.NONE
        election = _TYPES.get(request.election_type if context.api_version >= _TYPES_SINCE else 0, Election.PREFERRED)
        moved: dict[str, Topic] = {}

        def judge(name: str, index: int) -> Elected | None:
            if is_refused:
                return _elected(index, code, message)
            judged = self._elect(name, index, election, moved)
            # If all partitions are meant, Kafka does not name those that need no election.
            is_named = request.topic_partitions is not None or judged.error_code != ErrorCode.ELECTION_NOT_NEEDED
            return judged if is_named else None

        def combine(name: str, found: list[Elected]) -> m.ElectLeadersResponseReplicaElectionResult:
            return m.ElectLeadersResponseReplicaElectionResult(topic=name, partition_result=found)

        results = yield from gathered_by_topic(
            self._partitions_to_elect(request, is_refused=is_refused), judge, combine
        )

        def response(failure: ErrorCode) -> m.ElectLeadersResponse:
            return m.ElectLeadersResponse(error_code=code or failure, replica_election_results=results)

        return self._changes.make(CatalogChange(put=tuple(moved.values())), request.timeout_ms, response, reply)

    def _partitions_to_elect(
        self, request: m.ElectLeadersRequest, *, is_refused: bool
    ) -> Iterable[tuple[str, Sequence[int]]]:
        """Topics and partitions of a request; null means all."""
        if request.topic_partitions is not None:
            return ((topic.topic, topic.partitions) for topic in request.topic_partitions)
        topics = [] if is_refused else list(self._catalog.topics())
        return ((topic.name, range(topic.partition_count)) for topic in topics)

    def _elect(self, name: str, index: int, election: Election, moved: dict[str, Topic]) -> Elected:
        """Elect the leader of one partition; the topic to write goes into `moved`."""
        topic = moved.get(name) or self._catalog.newest(name)
        if topic is None:
            return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= index < topic.partition_count:
            return _elected(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        code, elected = self._control.elect(topic, index, election)
        if code is ErrorCode.NONE:
            moved[name] = elected
        return _elected(index, code, _MESSAGES[code])


def _ongoing(index: int, state: PartitionState) -> Ongoing | None:
    if not state.is_reassigned:
        return None
    return m.ListPartitionReassignmentsResponseOngoingPartitionReassignment(
        partition_index=index,
        replicas=state.replicas,
        adding_replicas=state.adding,
        removing_replicas=state.removing,
    )


def _ongoing_topic(topic: Topic | None, ongoing: list[Ongoing]) -> OngoingTopic | None:
    if topic is None or not ongoing:
        return None
    return m.ListPartitionReassignmentsResponseOngoingTopicReassignment(name=topic.name, partitions=ongoing)


def _judged(wanted: Wanted, code: ErrorCode, message: str | None = None) -> Judged:
    return m.AlterPartitionReassignmentsResponseReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def _elected(index: int, code: ErrorCode, message: str | None) -> Elected:
    return m.ElectLeadersResponsePartitionResult(partition_id=index, error_code=code, error_message=message)
