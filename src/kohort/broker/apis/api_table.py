"""
The table of APIs: one row an API, with what its requests may cost and how they are served.

A cost is a bound, not an estimate. `tests/server/requests/test_api_costs.py` walks the table, sends the worst requests of every
API, and fails where one exceeds its row. An API without a row fails the import of this module. The listeners that do not speak
Kafka's protocol have rows of their own.

A frame is bounded by `socket.request.max.bytes`, its arrays together by `Cost.elements`, and each string by `STRING_BYTES_MAX`.
`Cost.bounded_by` names what else bounds the work on a single name, value, expression or element.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

from kohort.broker.apis.request_rules import (
    GROUP_IDS_ONCE,
    GROUPS_ONCE,
    OFFSETS_OF_GROUPS,
    OFFSETS_OF_TOPICS,
    PRODUCED,
    WHOLE_GROUPS_ONCE,
    Repeats,
    Split,
    by_topic,
    flat,
    produced_bytes,
)
from kohort.model.limits import (
    CONTROL_BODY_BYTES_MAX,
    CONTROL_ELEMENTS_MAX,
    DECOMPRESSED_BYTES_MAX,
    OFFSET_FETCH_ELEMENTS_MAX,
    REQUEST_ELEMENTS_MAX,
    SCRAPE_BYTES_MAX,
    TELEMETRY_UNPACKED_BYTES_MAX,
    WHOLE_ELEMENTS_MAX,
)
from kohort.wire.apis import ApiKey, versions_in
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


_NO_VERSION: Final = -1
_EACH_VERSION: Final = 1 << 15


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
    """
    One row of the table.

    Attributes:
        is_gradual: the handler returns a generator, which returns the response, or None for a later reply. It yields at least
            every millisecond of work, when its state is consistent: other requests are handled between two steps. If the client
            disconnects, the generator is closed.
        is_pipelined: a connection may have several requests in flight. Apache Kafka handles one request of a connection at a
            time. The requests of these APIs take effect in the order of arrival, and only their replies wait for a flush. All
            requests in flight are of one API, so a read that follows a write on the same connection waits for it, and no client
            can see a difference.
        waits_for_group: requests wait for other members of their group; a stop does not wait for them.
        splits: how long requests are handled in parts, oldest version first; none for a handler that works in steps.
        repeats: which elements are answered once.
        is_throttled: whether the quota of request time counts it. APIs of brokers are exempt. Source: the uses of
            sendResponseExemptThrottle in KafkaApis.
        quota_bytes: the bytes of a request that count for the quota of produced bytes.
        repeated_until: the newest version in which clients send the same bytes again and again, so that a connection decodes
            them once. Later ones have an epoch that rises with each transaction, or are those of brokers.
        needs_client_metrics: ApiVersions lists the API only while there is a subscription of client metrics.
        is_forwarded: whether the controller alone handles it; other nodes of a cluster send it there. Source: the uses of
            ForwardingManager in KafkaApis.
    """

    cost: Cost
    is_gradual: bool = False
    is_pipelined: bool = False
    waits_for_group: bool = False
    splits: tuple[Split, ...] = ()
    repeats: Repeats | None = None
    is_throttled: bool = True
    quota_bytes: Callable[[Any], int] | None = None
    repeated_until: int = _NO_VERSION
    needs_client_metrics: bool = False
    is_forwarded: bool = False


_CONFIGS: Final = "CONFIGS_MAX configurations of a resource, CONFIG_LENGTH_MAX characters of a value"
_LISTS_STEP: Final = 300_000
"""The configurations of one resource are one step. A broker has seven lists, each of up to 32 768 empty elements."""
_STATES_STEP: Final = 800_000
"""The batches of a write of one share partition are combined with the stored ones in one step."""
_PATTERN: Final = (
    "PATTERN_LENGTH_MAX, PATTERN_CLASSES_MAX and PATTERN_PROGRAM_BYTES_MAX of an expression, MATCH_STEPS_MAX of a match"
)
_ACLS: Final = "ACL_BYTES_MAX, ACL_PREFIX_LENGTH_MAX"
_FILTERS: Final = "ACL_FILTER_STEPS_MAX and ACL_MATCHES_MAX of a request"
_BATCHES: Final = "DECOMPRESSED_BYTES_MAX and BATCH_RECORDS_MAX of a batch; one large batch at a time, in slices"


def _one() -> Cost:
    """An API without arrays."""
    return Cost(_MIB, SHORT_STEP)


def _each(*, memory: int = 32 * _MIB, elements: int = REQUEST_ELEMENTS_MAX, bounded_by: str = "") -> Cost:
    """An API that handles its elements one by one."""
    return Cost(memory, elements=elements, bounded_by=bounded_by)


def _batches() -> Cost:
    """An API that decompresses record batches, one at a time."""
    return Cost(2 * DECOMPRESSED_BYTES_MAX, request_bytes=FRAME_BYTES_MAX + DECOMPRESSED_BYTES_MAX, bounded_by=_BATCHES)


def _whole(*, memory: int = 16 * _MIB, step: int = STEP, bounded_by: str = "") -> Cost:
    """An API whose requests take effect as a whole, or whose elements are expensive."""
    return Cost(memory, step, WHOLE_ELEMENTS_MAX, bounded_by=bounded_by)


API_TABLE: Final[dict[ApiKey, Api]] = {
    ApiKey.PRODUCE: Api(_batches(), is_pipelined=True, splits=(PRODUCED,), quota_bytes=produced_bytes),
    ApiKey.FETCH: Api(_whole()),
    ApiKey.LIST_OFFSETS: Api(_batches(), splits=(by_topic("topics", "topics"),)),
    ApiKey.METADATA: Api(_each(), is_gradual=True),
    ApiKey.OFFSET_COMMIT: Api(_whole(), is_pipelined=True),
    ApiKey.OFFSET_FETCH: Api(
        _each(memory=128 * _MIB, elements=OFFSET_FETCH_ELEMENTS_MAX),
        splits=(OFFSETS_OF_TOPICS, OFFSETS_OF_GROUPS),
        repeats=WHOLE_GROUPS_ONCE,
        repeated_until=_EACH_VERSION,
    ),
    ApiKey.FIND_COORDINATOR: Api(_each(), splits=(flat("coordinator_keys", "coordinators"),)),
    ApiKey.JOIN_GROUP: Api(_whole(), waits_for_group=True),
    ApiKey.HEARTBEAT: Api(_one(), is_pipelined=True),
    ApiKey.LEAVE_GROUP: Api(_whole()),
    ApiKey.SYNC_GROUP: Api(_whole(), waits_for_group=True),
    ApiKey.DESCRIBE_GROUPS: Api(_each(), splits=(flat("groups", "groups", is_unique=True),), repeats=GROUPS_ONCE),
    ApiKey.LIST_GROUPS: Api(_each(), is_gradual=True),
    ApiKey.SASL_HANDSHAKE: Api(_one()),
    ApiKey.API_VERSIONS: Api(_one()),
    ApiKey.CREATE_TOPICS: Api(_each(bounded_by=_CONFIGS), is_gradual=True, is_forwarded=True),
    ApiKey.DELETE_TOPICS: Api(_each(), is_gradual=True, is_forwarded=True),
    ApiKey.DELETE_RECORDS: Api(_each(), splits=(by_topic("topics", "topics"),)),
    ApiKey.INIT_PRODUCER_ID: Api(_one()),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(_each(), splits=(by_topic("topics", "topics"),)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(_whole(), repeated_until=3),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(_one()),
    ApiKey.END_TXN: Api(_one(), repeated_until=4),
    ApiKey.WRITE_TXN_MARKERS: Api(_whole(step=64_000), is_throttled=False),
    ApiKey.TXN_OFFSET_COMMIT: Api(_whole()),
    ApiKey.DESCRIBE_ACLS: Api(_each(memory=128 * _MIB), is_gradual=True),
    ApiKey.CREATE_ACLS: Api(_each(bounded_by=_ACLS), is_gradual=True, is_forwarded=True),
    ApiKey.DELETE_ACLS: Api(_each(bounded_by=_FILTERS), is_gradual=True, is_forwarded=True),
    ApiKey.DESCRIBE_CONFIGS: Api(_each(), is_gradual=True),
    ApiKey.ALTER_CONFIGS: Api(_whole(step=_LISTS_STEP, bounded_by=_CONFIGS), is_gradual=True, is_forwarded=True),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(_each(), is_gradual=True),
    ApiKey.DESCRIBE_LOG_DIRS: Api(_each(), is_gradual=True),
    ApiKey.SASL_AUTHENTICATE: Api(_one()),
    ApiKey.CREATE_PARTITIONS: Api(_whole(), is_gradual=True, is_forwarded=True),
    ApiKey.CREATE_DELEGATION_TOKEN: Api(
        _each(bounded_by="TOKEN_RENEWERS_MAX, TOKEN_PRINCIPALS_BYTES_MAX"), is_forwarded=True
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Api(_one(), is_forwarded=True),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api(_one(), is_forwarded=True),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api(_each(), is_gradual=True),
    ApiKey.DELETE_GROUPS: Api(_each(), splits=(flat("groups_names", "results", is_unique=True),)),
    ApiKey.ELECT_LEADERS: Api(_each(), is_gradual=True, is_forwarded=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        _whole(step=_LISTS_STEP, bounded_by=_CONFIGS), is_gradual=True, is_forwarded=True
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(_each(), is_gradual=True, is_forwarded=True),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(_each(), is_gradual=True),
    ApiKey.OFFSET_DELETE: Api(_each(), splits=(by_topic("topics", "topics"),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api(_each(), is_gradual=True),
    ApiKey.ALTER_CLIENT_QUOTAS: Api(_whole(), is_gradual=True, is_forwarded=True),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(_each(), is_gradual=True),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api(
        _each(bounded_by="SCRAM_NAME_LENGTH_MAX, SCRAM_SALT_BYTES_MAX"), is_gradual=True, is_forwarded=True
    ),
    ApiKey.DESCRIBE_QUORUM: Api(_each(), is_gradual=True),
    ApiKey.UPDATE_FEATURES: Api(_each(), is_forwarded=True),
    ApiKey.ENVELOPE: Api(
        Cost(32 * _MIB, _LISTS_STEP, bounded_by="the row of the request in it"), is_gradual=True, is_throttled=False
    ),
    ApiKey.DESCRIBE_CLUSTER: Api(_one()),
    ApiKey.DESCRIBE_PRODUCERS: Api(_each(), splits=(OFFSETS_OF_TOPICS,)),
    ApiKey.UNREGISTER_BROKER: Api(_one(), is_forwarded=True),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(_each(), splits=(flat("transactional_ids", "transaction_states"),)),
    ApiKey.LIST_TRANSACTIONS: Api(_each(bounded_by=_PATTERN), is_gradual=True),
    ApiKey.ALLOCATE_PRODUCER_IDS: Api(_one(), is_throttled=False),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(_each(bounded_by=_PATTERN)),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api(_each(), is_gradual=True, repeats=GROUP_IDS_ONCE),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api(_one(), is_gradual=True, needs_client_metrics=True),
    ApiKey.PUSH_TELEMETRY: Api(
        Cost(
            memory=8 * TELEMETRY_UNPACKED_BYTES_MAX,
            step=16_000,
            request_bytes=FRAME_BYTES_MAX + TELEMETRY_UNPACKED_BYTES_MAX,
            bounded_by="TELEMETRY_FIELDS_MAX and TELEMETRY_POINTS_MAX of a push",
        ),
        is_gradual=True,
        needs_client_metrics=True,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Api(_each()),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(_each(), is_gradual=True),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api(_each()),
    ApiKey.SHARE_GROUP_DESCRIBE: Api(_each(), is_gradual=True, repeats=GROUP_IDS_ONCE),
    ApiKey.SHARE_FETCH: Api(_whole()),
    ApiKey.SHARE_ACKNOWLEDGE: Api(_whole()),
    ApiKey.ADD_RAFT_VOTER: Api(_each()),
    ApiKey.REMOVE_RAFT_VOTER: Api(_one()),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api(_whole()),
    ApiKey.READ_SHARE_GROUP_STATE: Api(_whole()),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api(
        _whole(step=_STATES_STEP, bounded_by="SHARE_WRITE_BATCHES_MAX, SHARE_STATE_BATCHES_MAX")
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api(_whole()),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api(_whole()),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Api(_each()),
    ApiKey.STREAMS_GROUP_DESCRIBE: Api(_each(), is_gradual=True),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api(_each(), is_gradual=True),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api(_whole(), is_gradual=True),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api(_whole()),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Api(_each()),
    ApiKey.UNREGISTER_CONTROLLER: Api(_one()),
}

for _key in ApiKey:
    if _key not in API_TABLE:
        raise KeyError(f"{_key.api_name} has no row in the table of APIs")


@cache
def served_versions(release: str) -> Mapping[ApiKey, tuple[int, int]]:
    """The APIs that a broker of a release serves, each with its oldest and its newest version."""
    return {api: (versions.oldest, versions.newest_stable) for api, versions in versions_in(release).items()}


class Listener(StrEnum):
    """Listeners that do not speak Kafka's protocol."""

    METRICS = "metrics of the broker"
    TESTING_KIT = "control API of the testing kit"
    CONTROL = "commands to the broker on a Unix socket"
    EXPORTER = "metrics of the pipeline"


LISTENER_TABLE: Final[dict[Listener, Cost]] = {
    Listener.METRICS: Cost(SCRAPE_BYTES_MAX, elements=1, request_bytes=8 * 1024, bounded_by="SCRAPERS_MAX"),
    Listener.TESTING_KIT: Cost(
        64 * _MIB,
        _LISTS_STEP,
        elements=CONTROL_ELEMENTS_MAX,
        request_bytes=CONTROL_BODY_BYTES_MAX,
        bounded_by="CONTROL_CONNECTIONS_MAX, FAULTS_MAX",
    ),
    Listener.CONTROL: Cost(_MIB, SHORT_STEP, elements=1, request_bytes=4 * 1024),
    Listener.EXPORTER: Cost(SCRAPE_BYTES_MAX, elements=1, request_bytes=8 * 1024, bounded_by="SCRAPERS_MAX"),
}
