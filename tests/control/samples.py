"""One small request of every API, from its schema."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kohort.wire.apis import ApiKey
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import Message, message
from tests.broker.harness import batch

TOPIC = "t"
_NUMBERS = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}
"""Numbers of kinds: other values are refused by closing the connection."""
_NAMES = frozenset({"name", "topic", "topic_name", "topics", "topic_names"})
_NULL = frozenset({"group_instance_id", "instance_id", "rack_id", "cursor", "topology", "subscribed_topic_regex"})
_EMPTY = frozenset({"forgotten_topics_data", "assignments", "configs", "acknowledgement_batches", "topic_configs"})


def sample(api: ApiKey, version: int, topic_id: UUID, **fields: Any) -> Any:
    """A request with one element in each array that names something."""
    schema = message(f"{api.api_name}Request")
    return _struct(schema, schema.name, version, topic_id, {**_FIXED.get(api, {}), **fields})


_FIXED: Mapping[ApiKey, Mapping[str, Any]] = {
    ApiKey.PRODUCE: {"transactional_id": None, "acks": -1, "timeout_ms": 5_000},
    ApiKey.FETCH: {"session_id": 0, "session_epoch": -1, "replica_id": -1, "max_wait_ms": 0, "max_bytes": 1 << 20},
    ApiKey.SHARE_FETCH: {"max_wait_ms": 0},
    ApiKey.JOIN_GROUP: {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""},
    ApiKey.FIND_COORDINATOR: {"key_type": 0},
    ApiKey.API_VERSIONS: {
        "client_software_name": "tests",
        "client_software_version": "1",
        "cluster_id": None,
        "node_id": -1,
    },
}


def _struct(schema: Message, struct: str, version: int, topic_id: UUID, fixed: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for field in schema.fields(struct, version):
        if field.name in fixed:
            values[field.name] = fixed[field.name]
        elif field.name in _NULL or (field.tag is not None and field.is_nullable(version)):
            continue
        elif field.array:
            elements = () if field.name in _EMPTY else (_value(schema, field.type, field.name, version, topic_id),)
            values[field.name] = elements
        else:
            values[field.name] = _value(schema, field.type, field.name, version, topic_id)
    return message_classes(schema.name)[struct](**values)


def _value(schema: Message, kind: str, name: str, version: int, topic_id: UUID) -> Any:
    if kind in schema.structs:
        return _struct(schema, kind, version, topic_id, {})
    if kind == "uuid":
        return topic_id
    if kind == "records":
        return batch(b"x")
    if kind == "bytes":
        return b"x"
    if kind == "string":
        return TOPIC if name in _NAMES else "x"
    if kind == "bool":
        return False
    return _NUMBERS.get(name, 0)
