"""
ElectLeaders (43), versions 0 to 2: the only replica of each partition leads it already.

v1 adds unclean elections and an error for the whole request.

Source: KIP-460; Kafka ReplicationControlManager.electLeaders, ControllerApis.handleElectLeaders.
"""

from collections.abc import Generator, Iterable
from typing import Final

from kohort.broker.catalog import Catalog
from kohort.broker.ports import Context
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_TYPES: Final = (0, 1)
"""Preferred and unclean."""
_TYPES_SINCE: Final = 1


class Elections:
    """Handler of ElectLeaders."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def elect_leaders(
        self, request: m.ElectLeadersRequest, context: Context, _reply: Reply[m.ElectLeadersResponse]
    ) -> Generator[None, None, m.ElectLeadersResponse]:
        """Judge each partition by itself."""
        code, message = ErrorCode.NONE, None
        if context.api_version >= _TYPES_SINCE and request.election_type not in _TYPES:
            code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        elif request.timeout_ms <= 0:
            code = ErrorCode.REQUEST_TIMED_OUT
        results = []
        count = 0
        for name, partitions in self._wanted(request, is_refused=code is not ErrorCode.NONE):
            found = []
            for index in partitions:
                found.append(self._judge(name, index) if code is ErrorCode.NONE else _result(index, code, message))
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
            results.append(m.ElectLeadersResponseReplicaElectionResult(topic=name, partition_result=found))
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        return m.ElectLeadersResponse(error_code=code, replica_election_results=results)

    def _wanted(self, request: m.ElectLeadersRequest, *, is_refused: bool) -> Iterable[tuple[str, Iterable[int]]]:
        """Topics and partitions of a request. Null means all; Kafka names the topics then, but not partitions with a leader."""
        if request.topic_partitions is not None:
            return ((topic.topic, topic.partitions) for topic in request.topic_partitions)
        return [] if is_refused else [(topic.name, ()) for topic in self._catalog.topics()]

    def _judge(self, name: str, index: int) -> m.ElectLeadersResponsePartitionResult:
        topic = self._catalog.topic(name)
        if topic is None:
            return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= index < topic.partition_count:
            return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
        return _result(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _result(index: int, code: ErrorCode, message: str | None) -> m.ElectLeadersResponsePartitionResult:
    return m.ElectLeadersResponsePartitionResult(partition_id=index, error_code=code, error_message=message)
