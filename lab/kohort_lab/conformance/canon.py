"""
Canonical form of responses: plain values that two sides can be compared by.

Member ids, topic ids, producer ids and ports differ between two brokers and between two runs; only identity counts. So each
becomes `<kind n>`, numbered in order of appearance, and keeps that name for the whole scenario. A time of the clock becomes
`<now>` if it lies within the scenario. Bytes are hex, batches are parsed. Lists whose order in Kafka is that of a hash table
are sorted.
"""

import json
import re
import time
from collections.abc import Callable
from struct import Struct
from typing import Any
from uuid import UUID

from kohort.model.errors import CorruptError, WireError
from kohort.model.ids import CONSUMER_OFFSETS, uuid_from_text
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import iter_batches, read_records
from kohort.wire.schema import Field, Message, message

IDENTITIES = {
    "producer_id": "producer",
    "session_id": "session",
    "node_id": "node",
    "broker_id": "node",
    "leader_id": "node",
    "controller_id": "node",
    "replica_nodes": "node",
    "isr_nodes": "node",
    "offline_replicas": "node",
    "eligible_leader_replicas": "node",
    "last_known_elr": "node",
    "port": "port",
    "host": "host",
    "cluster_id": "cluster",
    "coordinator_epoch": "coordinator epoch",
}
"""Fields that hold an identity, with its kind. Topic ids and random UUIDs in texts are recognised by their form."""

_NOBODY = (-1, 0, None, "")
"""Values for none. Node 0, producer 0 and coordinator epoch 0 are identities (`_ZERO_IS_SOMEBODY`)."""
_ZERO_IS_SOMEBODY = frozenset({"node", "producer", "coordinator epoch"})

_MOVING = frozenset({"finalized_features_epoch"})
"""Fields that other scenarios change; only whether there is a value counts."""

UNORDERED = {
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"),
    ("AddPartitionsToTxnResponse", "results_by_transaction"),
    ("AddPartitionsToTxnResult", "topic_results"),
    ("AddPartitionsToTxnTopicResult", "results_by_partition"),
    ("AlterClientQuotasResponse", "entries"),
    ("AlterClientQuotasResponseEntryData", "entity"),
    ("AlterReplicaLogDirsResponse", "results"),
    ("AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult", "partitions"),
    ("AlterShareGroupOffsetsResponse", "responses"),
    ("AlterShareGroupOffsetsResponseTopic", "partitions"),
    ("AlterUserScramCredentialsResponse", "results"),
    ("ApiVersionsResponse", "finalized_features"),
    ("ApiVersionsResponse", "supported_features"),
    ("ConsumerGroupDescribeResponse", "groups"),
    ("ConsumerGroupDescribeResponseAssignment", "topic_partitions"),
    ("ConsumerGroupDescribeResponseDescribedGroup", "members"),
    ("ConsumerGroupDescribeResponseMember", "subscribed_topic_names"),
    ("ConsumerGroupDescribeResponseTopicPartitions", "partitions"),
    ("ConsumerGroupHeartbeatResponseAssignment", "topic_partitions"),
    ("ConsumerGroupHeartbeatResponseTopicPartitions", "partitions"),
    ("DeleteShareGroupOffsetsResponse", "responses"),
    ("DeleteShareGroupStateResponse", "results"),
    ("DeleteShareGroupStateResponseDeleteStateResult", "partitions"),
    ("InitializeShareGroupStateResponse", "results"),
    ("InitializeShareGroupStateResponseInitializeStateResult", "partitions"),
    ("ReadShareGroupStateResponse", "results"),
    ("ReadShareGroupStateResponseReadStateResult", "partitions"),
    ("ReadShareGroupStateSummaryResponse", "results"),
    ("ReadShareGroupStateSummaryResponseReadStateSummaryResult", "partitions"),
    ("ShareAcknowledgeResponse", "responses"),
    ("ShareAcknowledgeTopicResponse", "partitions"),
    ("ShareFetchResponse", "responses"),
    ("ShareFetchableTopicResponse", "partitions"),
    ("WriteShareGroupStateResponse", "results"),
    ("WriteShareGroupStateResponseWriteStateResult", "partitions"),
    ("DeleteTopicsResponse", "responses"),
    ("DescribeClientQuotasResponse", "entries"),
    ("DescribeClientQuotasResponseEntryData", "entity"),
    ("DescribeClientQuotasResponseEntryData", "values"),
    ("DescribeClusterResponse", "brokers"),
    ("DescribeConfigsResult", "configs"),
    ("DeleteGroupsResponse", "results"),
    ("DescribeGroupsResponse", "groups"),
    ("DescribeGroupsResponseDescribedGroup", "members"),
    ("DescribeLogDirsResult", "topics"),
    ("DescribeLogDirsTopic", "partitions"),
    ("DescribeProducersResponsePartitionResponse", "active_producers"),
    ("DescribeShareGroupOffsetsResponseGroup", "topics"),
    ("DescribeShareGroupOffsetsResponseTopic", "partitions"),
    ("DescribeTransactionsResponseTransactionState", "topics"),
    ("DescribeTransactionsResponseTopicData", "partitions"),
    ("DescribeUserScramCredentialsResponse", "results"),
    ("DescribeUserScramCredentialsResult", "credential_infos"),
    ("GetTelemetrySubscriptionsResponse", "requested_metrics"),
    ("JoinGroupResponse", "members"),
    ("ListConfigResourcesResponse", "config_resources"),
    ("ListGroupsResponse", "groups"),
    ("ListOffsetsResponse", "topics"),
    ("ListOffsetsTopicResponse", "partitions"),
    ("ListTransactionsResponse", "transaction_states"),
    ("ListTransactionsResponse", "unknown_state_filters"),
    ("MetadataResponse", "brokers"),
    ("MetadataResponse", "topics"),
    ("MetadataResponseTopic", "partitions"),
    ("OffsetFetchResponse", "topics"),
    ("OffsetFetchResponseGroup", "topics"),
    ("ProduceResponse", "responses"),
    ("ProduceResponseTopicProduceResponse", "partition_responses"),
    ("ShareGroupDescribeResponse", "groups"),
    ("ShareGroupDescribeResponseAssignment", "topic_partitions"),
    ("ShareGroupDescribeResponseDescribedGroup", "members"),
    ("ShareGroupDescribeResponseMember", "subscribed_topic_names"),
    ("ShareGroupDescribeResponseTopicPartitions", "partitions"),
    ("ShareGroupHeartbeatResponseAssignment", "topic_partitions"),
    ("ShareGroupHeartbeatResponseTopicPartitions", "partitions"),
    ("TxnOffsetCommitResponse", "topics"),
    ("TxnOffsetCommitResponseTopic", "partitions"),
    ("WriteTxnMarkersResponseWritableTxnMarkerResult", "topics"),
    ("WriteTxnMarkersResponseWritableTxnMarkerTopicResult", "partitions"),
}
"""Lists whose order Kafka leaves to a hash table, or to the order in which partitions happened to finish."""

_OF_GROUP = {("DescribeTransactionsResponseTopicData", "partitions")}
"""Partitions of `__consumer_offsets`: they depend on the random names of the groups."""

_NAMES_OF_ELEMENTS = ("group_id", "name", "resource_name", "transactional_id")
_SHARED_TYPES = frozenset({4, 8})
"""Types of resources that belong to no scenario: brokers and their loggers."""
_FILTERED = {
    ("MetadataResponse", "topics"),
    ("ListGroupsResponse", "groups"),
    ("DescribeTopicPartitionsResponse", "topics"),
    ("ListConfigResourcesResponse", "config_resources"),
    ("ListTransactionsResponse", "transaction_states"),
}
"""
Lists that may contain the topics, groups and transactional ids of other scenarios. Such elements are left out, unless they have
an error code.
"""

NAMESPACE = "kc"
_MARKER_VALUE = Struct(">hi")
"""The value of a transaction marker: version, coordinator epoch."""
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])")
_SHORT_UUID = 22
"""The length of a UUID in base64."""
_TIME_FROM_MS = 1_600_000_000_000
_TOLERANCE_MS = 2_000


class Names:
    """
    The identities of one scenario on one side.

    Attributes:
        prefix: of the names of this scenario.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.began_ms = time.time_ns() // 1_000_000
        self._known: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}
        self._is_peeking = False

    def name(self, kind: str, identity: Any) -> str:
        """The name of an identity; a new name at its first appearance."""
        found = self._known.get((kind, identity))
        if found is None:
            if self._is_peeking:
                return f"<{kind} ?>"
            self._counts[kind] = self._counts.get(kind, 0) + 1
            found = self._known[kind, identity] = f"<{kind} {self._counts[kind]}>"
        return found

    def peek(self, make: Callable[[], Any]) -> Any:
        """The result of `make` without naming new identities."""
        was, self._is_peeking = self._is_peeking, True
        try:
            return make()
        finally:
            self._is_peeking = was

    def text(self, text: str) -> str:
        """A text without this scenario's prefix, and with names in place of random ids."""
        text = text.replace(self.prefix, "@")
        return _UUID.sub(self._id_in_text, text)

    def _id_in_text(self, match: re.Match[str]) -> str:
        found = match.group()
        if len(found) != _SHORT_UUID:
            return self.name("uuid", found)
        identity = _short_uuid(found)
        known = self._known.get(("topic", identity)) or self._known.get(("uuid", found))
        return found if identity is None or known is None else known

    def member_id(self, member_id: str) -> str:
        """The id of a member: a text, or the short form of a UUID if a broker gave it without the client id."""
        if len(member_id) == _SHORT_UUID and _short_uuid(member_id) is not None:
            return self.name("uuid", member_id)
        return self.text(member_id)

    def number(self, value: int) -> int | str:
        """A number; `<now>` for a time of the clock during the scenario."""
        if value > _TIME_FROM_MS:
            now_ms = time.time_ns() // 1_000_000
            if self.began_ms - _TOLERANCE_MS <= value <= now_ms + _TOLERANCE_MS:
                return "<now>"
        return value


def _short_uuid(text: str) -> UUID | None:
    try:
        return uuid_from_text(text)
    except ValueError:
        return None


def canonical_response(api: ApiKey, version: int, response: Any, names: Names) -> dict[str, Any]:
    """A response as plain values, with the fields of its version."""
    schema = message(f"{api.api_name}Response")
    return _struct(schema, schema.name, version, response, names)


def _struct(schema: Message, struct: str, version: int, value: Any, names: Names) -> dict[str, Any]:
    return {
        field.name: _field(schema, struct, field, version, getattr(value, field.name), names)
        if (struct, field.name) not in _OF_GROUP or value.topic != CONSUMER_OFFSETS
        else "<any>"
        for field in schema.fields(struct, version)
    }


def _field(schema: Message, struct: str, field: Field, version: int, value: Any, names: Names) -> Any:
    if value is None:
        return None
    if not field.array:
        return _element(schema, field, version, value, names)
    place = (struct, field.name)
    if place in _FILTERED:
        value = [each for each in value if not _is_foreign(each, names.prefix)]

    def make(each: Any) -> Any:
        return _element(schema, field, version, each, names)

    if place in UNORDERED:
        value = sorted(value, key=lambda each: json.dumps(names.peek(lambda: make(each)), sort_keys=True))
    return [make(each) for each in value]


def _is_foreign(element: Any, prefix: str) -> bool:
    name = next((getattr(element, key) for key in _NAMES_OF_ELEMENTS if hasattr(element, key)), None) or ""
    if getattr(element, "resource_type", None) in _SHARED_TYPES:
        return False
    return not name.startswith(prefix) and not getattr(element, "error_code", 0)


def _element(schema: Message, field: Field, version: int, value: Any, names: Names) -> Any:
    if field.type in schema.structs:
        return _struct(schema, field.type, version, value, names)
    if isinstance(value, UUID):
        return names.name("topic", value)
    if field.name == "member_id":
        return names.member_id(value)
    if field.name in _MOVING:
        return "<any>" if value >= 0 else value
    kind = IDENTITIES.get(field.name)
    if kind is not None and (value not in _NOBODY or (value == 0 and kind in _ZERO_IS_SOMEBODY)):
        return names.name(kind, value)
    if field.type == "records":
        return canonical_records(bytes(value), names)
    return plain(value, names)


def plain(value: Any, names: Names) -> Any:
    """A value that is no struct and no list."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        content = bytes(value).replace(names.prefix.encode(), b"@")
        return names.text("text:" + content.decode()) if _is_readable(content) else content.hex()
    if isinstance(value, str):
        return names.text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return names.number(value)
    return value


def _is_readable(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def canonical_records(content: bytes, names: Names) -> Any:
    """Batches with their headers and records, and the number of bytes of an incomplete batch at the end."""
    batches = []
    end = 0
    try:
        for position, header in iter_batches(content):
            whole = content[position : position + header.size_bytes]
            batches.append(
                {
                    "base_offset": header.base_offset,
                    "size_bytes": header.size_bytes if header.codec == 0 else None,
                    "leader_epoch": header.partition_leader_epoch,
                    "attributes": header.attributes,
                    "last_offset_delta": header.last_offset_delta,
                    "base_timestamp": names.number(header.base_timestamp),
                    "max_timestamp": names.number(header.max_timestamp),
                    "producer_id": header.producer_id
                    if header.producer_id < 0
                    else names.name("producer", header.producer_id),
                    "producer_epoch": header.producer_epoch,
                    "base_sequence": header.base_sequence,
                    "records": [_record(record, header.is_control, names) for record in read_records(whole)]
                    if header.size_bytes > HEADER_BYTES
                    else [],
                }
            )
            end = position + header.size_bytes
    except (CorruptError, WireError) as exc:
        return {"batches": batches, "undecodable": str(exc)}
    return {"batches": batches, "cut_bytes": len(content) - end}


def _record(record: Any, is_control: bool, names: Names) -> dict[str, Any]:
    if is_control and len(record.value or b"") == _MARKER_VALUE.size:
        return _marker(record, names)
    return {
        "offset": record.offset,
        "timestamp": names.number(record.timestamp),
        "key": None if record.key is None else plain(record.key, names),
        "value": None if record.value is None else plain(record.value, names),
        "headers": [[name, None if value is None else plain(value, names)] for name, value in record.headers],
    }


def _marker(record: Any, names: Names) -> dict[str, Any]:
    """A transaction marker. Its coordinator epoch is that of the broker, which a restart raises."""
    version, coordinator_epoch = _MARKER_VALUE.unpack(record.value)
    return {
        "offset": record.offset,
        "timestamp": names.number(record.timestamp),
        "key": None if record.key is None else bytes(record.key).hex(),
        "value_version": version,
        "coordinator_epoch": names.name("coordinator epoch", coordinator_epoch),
    }
