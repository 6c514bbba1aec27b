"""
The table of APIs: one row an API, with what its requests may cost.

A row is a bound, not an estimate. `tests/server/requests/test_api_costs.py` walks the table, sends the worst requests of every
API, and fails where one exceeds its row. An API without a row fails the import of this module. The listeners that do not speak
Kafka's protocol have rows of their own.

A frame is bounded by `socket.request.max.bytes`, its arrays together by `Cost.elements`, and each string by `STRING_BYTES_MAX`.
`Cost.bounded_by` names what else bounds the work on a single name, value, expression or element.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from kohort.model.limits import (
    DECOMPRESSED_BYTES_MAX,
    OFFSET_FETCH_ELEMENTS_MAX,
    REQUEST_ELEMENTS_MAX,
    SCRAPE_BYTES_MAX,
    TELEMETRY_UNPACKED_BYTES_MAX,
    WHOLE_ELEMENTS_MAX,
)
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX

_MIB: Final = 1 << 20
STEP: Final = 12_000
"""Units of work between two turns of the event loop: a unit is a call of a function, or work in C that takes as long."""
BYTES_OF_UNIT: Final = 1024
"""Bytes that are decompressed for a unit."""
UNITS_OF_CLASS: Final = 2_500
"""Units of a Unicode class in an expression that is compiled; each other character is one unit."""
SHORT_STEP: Final = 2_000
"""The same for an API without arrays."""


class Cost(NamedTuple):
    """
    What one request may cost.

    Attributes:
        memory: bytes that the broker takes for it while it is handled, beside its frame and its answer.
        step: units of work between two turns of the event loop.
        elements: of all arrays, and unknown tagged fields. A request with more closes the connection.
        request_bytes: of the request, and of what is decompressed from it at a time.
        bounded_by: what bounds the work on one name, value, expression or element of the request, beside its length.
    """

    memory: int
    step: int = STEP
    elements: int = REQUEST_ELEMENTS_MAX
    request_bytes: int = FRAME_BYTES_MAX
    bounded_by: str = ""


class Api(NamedTuple):
    """One row of the table."""

    cost: Cost


_CONFIGS: Final = "CONFIGS_MAX configurations of a resource, CONFIG_LENGTH_MAX characters of a value"
_LISTS_STEP: Final = 256_000
"""The configurations of one resource are one step. A broker has six lists, each of up to 32 768 empty elements."""
_PATTERN: Final = (
    "PATTERN_LENGTH_MAX, PATTERN_CLASSES_MAX and PATTERN_PROGRAM_BYTES_MAX of an expression, MATCH_STEPS_MAX of a match"
)
_BATCHES: Final = "DECOMPRESSED_BYTES_MAX and BATCH_RECORDS_MAX of a batch; one large batch at a time, in slices"


def _one() -> Api:
    """An API without arrays."""
    return Api(Cost(_MIB, SHORT_STEP))


def _each(*, memory: int = 32 * _MIB, elements: int = REQUEST_ELEMENTS_MAX, bounded_by: str = "") -> Api:
    """An API that handles its elements one by one."""
    return Api(Cost(memory, elements=elements, bounded_by=bounded_by))


def _batches() -> Api:
    """An API that decompresses record batches, one at a time."""
    return Api(
        Cost(2 * DECOMPRESSED_BYTES_MAX, request_bytes=FRAME_BYTES_MAX + DECOMPRESSED_BYTES_MAX, bounded_by=_BATCHES)
    )


def _whole(*, memory: int = 16 * _MIB, step: int = STEP, bounded_by: str = "") -> Api:
    """An API whose requests take effect as a whole, or whose elements are expensive."""
    return Api(Cost(memory, step, WHOLE_ELEMENTS_MAX, bounded_by=bounded_by))


API_TABLE: Final[dict[ApiKey, Api]] = {
    ApiKey.PRODUCE: _batches(),
    ApiKey.FETCH: _whole(),
    ApiKey.LIST_OFFSETS: _batches(),
    ApiKey.METADATA: _each(),
    ApiKey.OFFSET_COMMIT: _whole(),
    ApiKey.OFFSET_FETCH: _each(memory=128 * _MIB, elements=OFFSET_FETCH_ELEMENTS_MAX),
    ApiKey.FIND_COORDINATOR: _each(),
    ApiKey.JOIN_GROUP: _whole(),
    ApiKey.HEARTBEAT: _one(),
    ApiKey.LEAVE_GROUP: _whole(),
    ApiKey.SYNC_GROUP: _whole(),
    ApiKey.DESCRIBE_GROUPS: _each(),
    ApiKey.LIST_GROUPS: _each(),
    ApiKey.SASL_HANDSHAKE: _one(),
    ApiKey.API_VERSIONS: _one(),
    ApiKey.CREATE_TOPICS: _each(bounded_by=_CONFIGS),
    ApiKey.DELETE_TOPICS: _each(),
    ApiKey.DELETE_RECORDS: _each(),
    ApiKey.INIT_PRODUCER_ID: _one(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _each(),
    ApiKey.ADD_PARTITIONS_TO_TXN: _whole(),
    ApiKey.ADD_OFFSETS_TO_TXN: _one(),
    ApiKey.END_TXN: _one(),
    ApiKey.WRITE_TXN_MARKERS: _whole(step=64_000),
    ApiKey.TXN_OFFSET_COMMIT: _whole(),
    ApiKey.DESCRIBE_ACLS: _one(),
    ApiKey.CREATE_ACLS: _each(),
    ApiKey.DELETE_ACLS: _each(),
    ApiKey.DESCRIBE_CONFIGS: _each(),
    ApiKey.ALTER_CONFIGS: _whole(step=_LISTS_STEP, bounded_by=_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _each(),
    ApiKey.DESCRIBE_LOG_DIRS: _each(),
    ApiKey.SASL_AUTHENTICATE: _one(),
    ApiKey.CREATE_PARTITIONS: _whole(),
    ApiKey.CREATE_DELEGATION_TOKEN: _each(),
    ApiKey.RENEW_DELEGATION_TOKEN: _one(),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _one(),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _each(),
    ApiKey.DELETE_GROUPS: _each(),
    ApiKey.ELECT_LEADERS: _each(),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _whole(step=_LISTS_STEP, bounded_by=_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _each(),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _each(),
    ApiKey.OFFSET_DELETE: _each(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _each(),
    ApiKey.ALTER_CLIENT_QUOTAS: _whole(),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _each(),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _each(bounded_by="SCRAM_NAME_LENGTH_MAX, SCRAM_SALT_BYTES_MAX"),
    ApiKey.DESCRIBE_QUORUM: _each(),
    ApiKey.UPDATE_FEATURES: _each(),
    ApiKey.DESCRIBE_CLUSTER: _one(),
    ApiKey.DESCRIBE_PRODUCERS: _each(),
    ApiKey.UNREGISTER_BROKER: _one(),
    ApiKey.DESCRIBE_TRANSACTIONS: _each(),
    ApiKey.LIST_TRANSACTIONS: _each(bounded_by=_PATTERN),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _each(bounded_by=_PATTERN),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _each(),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _one(),
    ApiKey.PUSH_TELEMETRY: Api(
        Cost(
            memory=8 * TELEMETRY_UNPACKED_BYTES_MAX,
            step=16_000,
            request_bytes=FRAME_BYTES_MAX + TELEMETRY_UNPACKED_BYTES_MAX,
            bounded_by="TELEMETRY_FIELDS_MAX and TELEMETRY_POINTS_MAX of a push",
        )
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _each(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _each(),
    ApiKey.SHARE_GROUP_HEARTBEAT: _each(),
    ApiKey.SHARE_GROUP_DESCRIBE: _each(),
    ApiKey.SHARE_FETCH: _each(),
    ApiKey.SHARE_ACKNOWLEDGE: _each(),
    ApiKey.ADD_RAFT_VOTER: _each(),
    ApiKey.REMOVE_RAFT_VOTER: _one(),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _each(),
    ApiKey.READ_SHARE_GROUP_STATE: _each(),
    ApiKey.WRITE_SHARE_GROUP_STATE: _each(),
    ApiKey.DELETE_SHARE_GROUP_STATE: _each(),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _each(),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _each(),
    ApiKey.STREAMS_GROUP_DESCRIBE: _each(),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _each(),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _each(),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _each(),
}

for _key in ApiKey:
    if _key not in API_TABLE:
        raise KeyError(f"{_key.api_name} has no row in the table of APIs")


class Listener(StrEnum):
    """Listeners that do not speak Kafka's protocol."""

    METRICS = "metrics of the broker"
    CONTROL = "commands to the broker on a Unix socket"
    EXPORTER = "metrics of the pipeline"


LISTENER_TABLE: Final[dict[Listener, Cost]] = {
    Listener.METRICS: Cost(SCRAPE_BYTES_MAX, elements=1, request_bytes=8 * 1024, bounded_by="SCRAPERS_MAX"),
    Listener.CONTROL: Cost(_MIB, SHORT_STEP, elements=1, request_bytes=4 * 1024),
    Listener.EXPORTER: Cost(SCRAPE_BYTES_MAX, elements=1, request_bytes=8 * 1024, bounded_by="SCRAPERS_MAX"),
}
