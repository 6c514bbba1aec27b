"""
ElectLeaders (43), versions 0 to 2: preferred leaders, and leaders for partitions without one.

v1 adds unclean elections and an error for the whole request.

Source: KIP-460; Kafka ReplicationControlManager.electLeaders, ControllerApis.handleElectLeaders.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from kohort.broker.catalog import Catalog
from kohort.broker.catalog_view import CatalogChange, Topic
from kohort.broker.ports import CallLater, Context
from kohort.broker.replicas import Election
from kohort.broker.replication import ReplicationControl
from kohort.broker.topics.creation import change_durably
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_TYPES_SINCE: Final = 1
_MESSAGES: Final = {
    ErrorCode.NONE: None,
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}

_Result = m.ElectLeadersResponseReplicaElectionResult


class Elections:
    """Handler of ElectLeaders."""

    def __init__(self, catalog: Catalog, control: ReplicationControl, call_later: CallLater) -> None:
        self._catalog = catalog
        self._control = control
        self._call_later = call_later

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
        results: list[_Result] = []
        moved: dict[str, Topic] = {}
        count = 0
        for name, partitions, is_asked in self._wanted(request, is_refused=is_refused):
            found = []
            for index in partitions:
                if is_refused:
                    found.append(_result(index, code, message))
                else:
                    judged = self._judge(name, index, election, moved)
                    if is_asked or judged.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                        found.append(judged)
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
            results.append(_Result(topic=name, partition_result=found))
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        if not moved:
            return m.ElectLeadersResponse(error_code=code, replica_election_results=results)
        change_durably(
            self._catalog,
            CatalogChange(put=tuple(moved.values())),
            request.timeout_ms,
            self._call_later,
            lambda failed: reply(m.ElectLeadersResponse(error_code=failed, replica_election_results=results)),
        )
        return None

    def _wanted(self, request: m.ElectLeadersRequest, *, is_refused: bool) -> Iterable[tuple[str, Sequence[int], bool]]:
        """
        Topics and partitions of a request, and whether they are named. Null means all; Kafka names the topics then, but not
        partitions that need no election.
        """
        if request.topic_partitions is not None:
            return ((topic.topic, topic.partitions, True) for topic in request.topic_partitions)
        topics = [] if is_refused else list(self._catalog.topics())
        return ((topic.name, range(topic.partition_count), False) for topic in topics)

    def _judge(
        self, name: str, index: int, election: Election, moved: dict[str, Topic]
    ) -> m.ElectLeadersResponsePartitionResult:
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


def _result(index: int, code: ErrorCode, message: str | None) -> m.ElectLeadersResponsePartitionResult:
    return m.ElectLeadersResponsePartitionResult(partition_id=index, error_code=code, error_message=message)
