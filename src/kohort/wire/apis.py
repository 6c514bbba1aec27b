"""
The API table: every request that a broker of Apache Kafka serves, with its versions.

The versions are data: `releases.json` has them for every release that a broker can be like, and is generated from Kafka's jars
(tools/kafka_schemas.py). Every version of the newest release is read and written; which of them a broker serves depends on the
release of its configuration. A version above the newest stable one exists in Kafka but is disabled unless
`unstable.api.versions.enable` is set. Produce is advertised from version 0, because librdkafka derives a broker's features from
that; versions from 3 on are served.

Source: `validVersions` and `latestVersionUnstable` of the message schemas; KIP-896 for the oldest.
"""

from enum import IntEnum
from functools import cache
from typing import Final, Self

from kohort.model.errors import ConfigError
from kohort.model.structs import msgspec
from kohort.wire.schema import packaged

DEFAULT_RELEASE: Final = "4.4.0"
"""The release that a broker is like unless its operator asks for another one."""

NEVER = 1 << 15
"""A first flexible version above every possible version."""


class Versions(msgspec.Struct, frozen=True, array_like=True):
    """The versions of an API in one release."""

    oldest: int
    newest: int
    newest_stable: int


class _Row(msgspec.Struct, frozen=True):
    """One API of `releases.json`; `flexible` is -1 for none. A release that lacks the API is not among `releases`."""

    name: str
    flexible: int
    releases: dict[str, Versions]
    is_between_nodes: bool = False


_ROWS: Final = msgspec.json.decode(packaged("kohort.wire", "releases.json"), type=dict[int, _Row])

RELEASES: Final = tuple(dict.fromkeys(release for row in _ROWS.values() for release in row.releases))
"""The releases that a broker can be like, oldest first."""


class ApiKey(IntEnum):
    """
    The key of an API and its versions.

    Attributes:
        api_name: Kafka's name, the prefix of its message names ("JoinGroup": `JoinGroupRequest`).
        oldest, newest: the range of versions that can be read and written: those of the newest release.
        newest_stable: the newest version that a broker of the newest release offers by default.
        flexible_from: the first version with compact lengths and tagged fields, `NEVER` if there is none.
        is_between_nodes: whether nodes send it to each other, and no client. ApiVersions does not name it.
    """

    api_name: str
    oldest: int
    newest: int
    newest_stable: int
    flexible_from: int
    is_between_nodes: bool

    def __new__(cls, key: int) -> Self:
        member = int.__new__(cls, key)
        member._value_ = key
        row = _ROWS[key]
        newest_release = next(reversed(row.releases.values()))
        member.api_name = row.name
        member.oldest = newest_release.oldest
        member.newest = newest_release.newest
        member.newest_stable = newest_release.newest_stable
        member.flexible_from = NEVER if row.flexible < 0 else row.flexible
        member.is_between_nodes = row.is_between_nodes
        return member

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def oldest_advertised(self) -> int:
        """The oldest version that ApiVersions names."""
        return 0 if self is ApiKey.PRODUCE else self.oldest

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """1, or 2 with tagged fields. Defined for any version of ApiVersions, known or not."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 with tagged fields; always 0 for ApiVersions, because the client does not know the broker's versions yet."""
        return 1 if version >= self.flexible_from and self is not ApiKey.API_VERSIONS else 0


API_KEYS: dict[int, ApiKey] = {int(key): key for key in ApiKey}
"""By number, all APIs of the newest release."""


@cache
def versions_in(release: str) -> dict[ApiKey, Versions]:
    """The APIs of a release that clients may call, by key, and the versions of each."""
    return {
        ApiKey(key): row.releases[release]
        for key, row in _ROWS.items()
        if release in row.releases and not row.is_between_nodes
    }


def release_named(text: str) -> str:
    """
    Find a release by its whole number or without the last part: `4.2` is 4.2.1.

    Raises:
        ConfigError: a broker cannot be like this release.
    """
    for release in RELEASES:
        if text in (release, short_name(release)):
            return release
    raise ConfigError(
        f"there is no release {text!r} of Apache Kafka here; there are {', '.join(map(short_name, RELEASES))}"
    )


def short_name(release: str) -> str:
    """A release without the last part of its number."""
    return release.rpartition(".")[0]
