"""
FindCoordinator (10), versions 0 to 6: v1 transactional ids; v4 several keys; v6 share groups.

The coordinator of a key is the leader of the key's partition of an internal topic. The first request creates the topic. The
answer is COORDINATOR_NOT_AVAILABLE until the topic exists, while its partition is offline, and for coordinator types that no
node of this cluster hosts.

Source: KIP-699, KIP-932; Kafka KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

from enum import IntEnum

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.cluster import NO_NODE_ID, Cluster, Endpoint
from kohort.broker.ports import Context, CoordinatorDirectory, Leadership
from kohort.broker.topics.creation import TopicCreation
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.model.ids import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    coordinator_partition,
    uuid_from_text,
)
from kohort.model.numbers import is_number
from kohort.wire import messages as m


class CoordinatorType(IntEnum):
    """The kind of the keys in a request."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


INTERNAL_TOPIC = {
    CoordinatorType.GROUP: CONSUMER_OFFSETS,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE,
    CoordinatorType.SHARE: SHARE_GROUP_STATE,
}

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""Kafka's message of INVALID_REQUEST where it has no more specific one."""

_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: MALFORMED,
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
}
"""Error messages of versions 1 to 3; they have one for success, too."""

_NOWHERE = Endpoint("", -1)
_BATCHED_SINCE = 4
_SHARE_SINCE = 6
_ID_LENGTH = 22
"""Characters of a topic id."""
_PARTITION_MAX = (1 << 31) - 1


class FindCoordinator:
    """Handler of FindCoordinator."""

    def __init__(
        self,
        catalog: Catalog,
        leadership: Leadership,
        creation: TopicCreation,
        cluster: Cluster,
        coordinators: CoordinatorDirectory,
    ) -> None:
        self._catalog = catalog
        self._leadership = leadership
        self._creation = creation
        self._cluster = cluster
        self._coordinators = coordinators

    def find_coordinator(
        self, request: m.FindCoordinatorRequest, context: Context, _reply: Reply[m.FindCoordinatorResponse]
    ) -> m.FindCoordinatorResponse:
        if context.api_version < _BATCHED_SINCE:
            code, node_id, (host, port) = self._node(request.key_type, request.key, context)
            return m.FindCoordinatorResponse(
                error_code=code, error_message=_MESSAGES[code], node_id=node_id, host=host, port=port
            )
        message = "" if request.key_type in CoordinatorType._value2member_map_ else MALFORMED
        coordinators = []
        for key in request.coordinator_keys:
            code, node_id, (host, port) = self._node(request.key_type, key, context)
            coordinators.append(
                m.FindCoordinatorResponseCoordinator(
                    key=key,
                    node_id=node_id,
                    host=host,
                    port=port,
                    error_code=code,
                    error_message=message,
                )
            )
        return m.FindCoordinatorResponse(coordinators=coordinators)

    def _node(self, key_type: int, key: str, context: Context) -> tuple[ErrorCode, int, Endpoint]:
        """The error, or the broker and its address on the listener of the request."""
        node_id = self._find(key_type, key, context.api_version)
        if isinstance(node_id, ErrorCode):
            return node_id, NO_NODE_ID, _NOWHERE
        endpoint = self._cluster.endpoint(node_id, context.listener)
        if endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_NODE_ID, _NOWHERE
        return ErrorCode.NONE, node_id, endpoint

    def _find(self, key_type: int, key: str, api_version: int) -> ErrorCode | int:
        """The id of the broker that leads the partition of a key, or an error."""
        try:
            kind = CoordinatorType(key_type)
        except ValueError:
            return ErrorCode.INVALID_REQUEST
        if kind is CoordinatorType.SHARE and (api_version < _SHARE_SINCE or not _is_share_key(key)):
            return ErrorCode.INVALID_REQUEST
        name = INTERNAL_TOPIC[kind]
        if not self._coordinators.is_hosted(name):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        topic = self._catalog.topic(name)
        if topic is None:
            self._creation.auto_create(name)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        index = coordinator_partition(key, topic.partition_count)
        leader = self._leadership.leader(topic, index)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if leader.is_offline else leader.leader_id


def _is_share_key(key: str) -> bool:
    """Whether a key is `group:topicId:partition`; the group may contain colons. Source: Kafka SharePartitionKey.validate."""
    parts = key.rsplit(":", 2)
    if len(parts) < 3 or not parts[0].strip() or len(parts[1]) != _ID_LENGTH:
        return False
    try:
        uuid_from_text(parts[1])
    except ValueError:
        return False
    return is_number(parts[2].removeprefix("-"), 0, _PARTITION_MAX)
