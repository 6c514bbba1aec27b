"""
ElectLeaders (43), versions 0 to 2: preferred leaders, and leaders for partitions without one.

v1 adds unclean elections and an error for the whole request.

Source: KIP-460; Kafka ReplicationControlManager.electLeaders, ControllerApis.handleElectLeaders.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.changes import Changes
from kohort.broker.ports import Context
from kohort.broker.replicas import Election
from kohort.broker.replication import ReplicationControl
from kohort.machine.gradual import gathered_by_topic
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

if TYPE_CHECKING:
    Result = m.ElectLeadersResponsePartitionResult

_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_TYPES_SINCE: Final = 1
_MESSAGES: Final = {
    ErrorCode.NONE: None,
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


class Elections:
    """Handler of ElectLeaders."""

    def __init__(self, catalog: Catalog, control: ReplicationControl, changes: Changes) -> None:
        self._catalog = catalog
        self._control = control
        self._changes = changes

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

        def judge(name: str, index: int) -> Result | None:
            if is_refused:
                return _result(index, code, message)
            judged = self._judge(name, index, election, moved)
            # If all partitions are meant, Kafka does not name those that need no election.
            is_named = request.topic_partitions is not None or judged.error_code != ErrorCode.ELECTION_NOT_NEEDED
            return judged if is_named else None

        def combine(name: str, found: list[Result]) -> m.ElectLeadersResponseReplicaElectionResult:
            return m.ElectLeadersResponseReplicaElectionResult(topic=name, partition_result=found)

        results = yield from gathered_by_topic(self._wanted(request, is_refused=is_refused), judge, combine)

        def response(failure: ErrorCode) -> m.ElectLeadersResponse:
            return m.ElectLeadersResponse(error_code=code or failure, replica_election_results=results)

        return self._changes.make(CatalogChange(put=tuple(moved.values())), request.timeout_ms, response, reply)

    def _wanted(self, request: m.ElectLeadersRequest, *, is_refused: bool) -> Iterable[tuple[str, Sequence[int]]]:
        """Topics and partitions of a request; null means all."""
        if request.topic_partitions is not None:
            return ((topic.topic, topic.partitions) for topic in request.topic_partitions)
        topics = [] if is_refused else list(self._catalog.topics())
        return ((topic.name, range(topic.partition_count)) for topic in topics)

    def _judge(self, name: str, index: int, election: Election, moved: dict[str, Topic]) -> Result:
        """Elect the leader of one partition; the topic to write goes into `moved`."""
        topic = moved.get(name) or self._catalog.newest(name)
        if topic is None:
            return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= index < topic.partition_count:
            return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        code, elected = self._control.elect(topic, index, election)
        if code is ErrorCode.NONE:
            moved[name] = elected
        return _result(index, code, _MESSAGES[code])


def _result(index: int, code: ErrorCode, message: str | None) -> Result:
    return m.ElectLeadersResponsePartitionResult(partition_id=index, error_code=code, error_message=message)
