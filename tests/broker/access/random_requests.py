"""Random access rules, and random requests of all APIs that change nothing but what both brokers keep in step."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from kohort.security.operations import Operation, ResourceType
from kohort.wire.apis import ApiKey

TOPICS = ("t-a", "t-b", "t-c", "u-a")
MISSING_TOPICS = ("t-missing", "zzz")
GROUPS = ("g-a", "g-b", "h-a")
MISSING_GROUPS = ("g-missing",)
IDS = ("x-a", "x-b")
MISSING_IDS = ("x-missing",)
NO_ID = "NOSUCHTOPICIDxxxxxxxxA"
CLUSTER = "kafka-cluster"
USERS = ("alice", "bob")
OWNERS = ("User:alice", "User:bob", "User:carol")
"""Owners of delegation tokens."""
PRODUCER: dict[str, int] = {"producerId": 987_654_321, "producerEpoch": 0}
"""A producer that no transactional id has."""

Fields = dict[str, Any]


class Asked(NamedTuple):
    """A request in Kafka's JSON names; the id of a topic is `$` and its name."""

    user: str
    api: ApiKey
    version: int
    request: Fields


class Names:
    """Random names, mostly of what exists."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def some(self, *pools: tuple[str, ...]) -> list[str]:
        pool = [name for one in pools for name in one]
        return self.random.sample(pool, self.random.randint(1, min(3, len(pool))))

    def topics(self) -> list[str]:
        return self.some(TOPICS, MISSING_TOPICS)

    def topic_ids(self) -> list[str]:
        return [f"${name}" if name in TOPICS else NO_ID for name in self.some(TOPICS, MISSING_TOPICS[:1])]

    def groups(self) -> list[str]:
        return self.some(GROUPS, MISSING_GROUPS)

    def group(self) -> str:
        return self.groups()[0]

    def ids(self) -> list[str]:
        return self.some(IDS, MISSING_IDS)

    def any_of(self, *values: Any) -> Any:
        return self.random.choice(values)


def acls(random: Random) -> list[dict[str, str]]:
    """Rules that decide about the names above; some concern nobody who asks."""
    found = []
    for _ in range(random.choice((0, 3, 10, 30))):
        resource = random.choice(
            (
                ResourceType.TOPIC,
                ResourceType.TOPIC,
                ResourceType.GROUP,
                ResourceType.CLUSTER,
                ResourceType.TRANSACTIONAL_ID,
                ResourceType.USER,
            )
        )
        names: dict[ResourceType, tuple[str, ...]] = {
            ResourceType.TOPIC: (*TOPICS, *MISSING_TOPICS),
            ResourceType.GROUP: (*GROUPS, *MISSING_GROUPS),
            ResourceType.CLUSTER: (CLUSTER,),
            ResourceType.TRANSACTIONAL_ID: (*IDS, *MISSING_IDS),
            ResourceType.USER: OWNERS,
        }
        name = random.choice(names[resource])
        pattern = "LITERAL"
        if resource is not ResourceType.CLUSTER:
            if random.random() < 0.3:
                name, pattern = name[: random.randint(1, len(name))], "PREFIXED"
            elif random.random() < 0.3:
                name = "*"
        found.append(
            {
                "permission": random.choices(("ALLOW", "DENY"), (5, 1))[0],
                "operation": random.choice(("ALL", "ALL", *(one.name for one in Operation if one.value <= 13))),
                "resource": resource.name,
                "name": name,
                "pattern": pattern,
                "principal": random.choice(
                    ("User:alice", "User:alice", "User:*", "User:bob", "User:carol", "Group:alice")
                ),
                "host": random.choice(("*", "*", "*", "*", "127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "10.0.0.1")),
            }
        )
    return found


def request(random: Random) -> Asked:
    api, versions, make = random.choice(_KINDS)
    version = random.choice(versions)
    return Asked(random.choice(USERS), api, version, make(Names(random), version))


# One function an API: (names, version) to the fields of a request.


def _named(names: Names, version: int, ids_since: int) -> list[Fields]:
    """Topics by name, or by id."""
    if version >= ids_since:
        return [{"topicId": topic_id} for topic_id in names.topic_ids()]
    return [{"name": name} for name in names.topics()]


def _produce(names: Names, version: int) -> Fields:
    is_transactional = names.any_of(True, False, False)
    batch: Fields = {"values": ["v"]}
    if is_transactional:
        batch |= PRODUCER | {"baseSequence": 0, "transactional": True}
    data = [{"index": 0, "records": {"$batch": batch}}]
    return {
        "transactionalId": names.any_of(None, *names.ids()) if is_transactional else None,
        "acks": -1,
        "timeoutMs": 5_000,
        "topicData": [topic | {"partitionData": data} for topic in _named(names, version, 13)],
    }


def _fetch(names: Names, version: int) -> Fields:
    wanted = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}
    topics = (
        [{"topicId": one} for one in names.topic_ids()] if version >= 13 else [{"topic": one} for one in names.topics()]
    )
    return {
        "maxWaitMs": 0,
        "minBytes": 0,
        "maxBytes": 1,
        "sessionEpoch": -1,
        "topics": [topic | {"partitions": [wanted]} for topic in topics],
    }


def _metadata(names: Names, version: int) -> Fields:
    fields: Fields = {}
    if version >= 4:
        fields["allowAutoTopicCreation"] = False
    if version >= 8:
        fields["includeTopicAuthorizedOperations"] = names.any_of(True, False)
    if 8 <= version <= 10:
        fields["includeClusterAuthorizedOperations"] = names.any_of(True, False)
    if names.any_of(True, False, False):
        return fields | {"topics": None if version >= 1 else []}
    if version >= 12 and names.any_of(True, False):
        return fields | {"topics": [{"topicId": one, "name": None} for one in names.topic_ids()]}
    return fields | {"topics": [{"name": one} for one in names.topics()]}


def _partitions_of(names: Names, key: str = "name", **partition: Any) -> list[Fields]:
    return [{key: name, "partitions": [partition]} for name in names.topics()]


def _list_offsets(names: Names, _version: int) -> Fields:
    return {"replicaId": -1, "topics": _partitions_of(names, partitionIndex=0, timestamp=-2)}


def _offset_commit(names: Names, version: int) -> Fields:
    partition = {"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}
    topics = [topic | {"partitions": [partition]} for topic in _named(names, version, 10)]
    return {"groupId": names.group(), "generationIdOrMemberEpoch": -1, "memberId": "", "topics": topics}


def _txn_offset_commit(names: Names, version: int) -> Fields:
    partition = {"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}
    topics = [topic | {"partitions": [partition]} for topic in _named(names, version, 6)]
    return {"transactionalId": names.ids()[0], "groupId": names.group(), "topics": topics} | PRODUCER


def _offset_fetch(names: Names, version: int) -> Fields:
    if version < 8:
        topics = [{"name": name, "partitionIndexes": [0]} for name in names.topics()]
        return {"groupId": names.group(), "topics": topics if version < 2 else names.any_of(None, topics)}
    groups = []
    for group in names.groups():
        named = [topic | {"partitionIndexes": [0]} for topic in _named(names, version, 10)]
        groups.append({"groupId": group, "topics": names.any_of(None, named)})
    return {"groups": groups}


def _find_coordinator(names: Names, version: int) -> Fields:
    kind = names.any_of(0, 1) if version >= 1 else 0
    keys = names.ids() if kind else names.groups()
    fields = {"keyType": kind} if version >= 1 else {}
    return fields | ({"coordinatorKeys": keys} if version >= 4 else {"key": keys[0]})


def _create_topics(names: Names, _version: int) -> Fields:
    topics = [{"name": name, "numPartitions": 1, "replicationFactor": 1} for name in names.topics()]
    return {"topics": topics, "timeoutMs": 5_000, "validateOnly": True}


def _delete_topics(names: Names, version: int) -> Fields:
    if version < 6:
        return {"topicNames": names.some(MISSING_TOPICS), "timeoutMs": 5_000}
    topics: list[Fields] = [{"name": name} for name in names.some(MISSING_TOPICS)]
    return {"topics": [*topics, {"name": None, "topicId": NO_ID}], "timeoutMs": 5_000}


def _add_partitions(names: Names, _version: int) -> Fields:
    return {
        "v3AndBelowTransactionalId": names.ids()[0],
        "v3AndBelowProducerId": PRODUCER["producerId"],
        "v3AndBelowProducerEpoch": 0,
        "v3AndBelowTopics": [{"name": name, "partitions": [0, 9]} for name in names.topics()],
    }


def _add_partitions_of_brokers(names: Names, _version: int) -> Fields:
    topics = [{"name": name, "partitions": [0]} for name in names.some(TOPICS)]
    return {"transactions": [{"transactionalId": names.ids()[0], "verifyOnly": True, "topics": topics} | PRODUCER]}


def _epochs(names: Names, _version: int) -> Fields:
    return {"replicaId": -1, "topics": _partitions_of(names, "topic", partition=0, leaderEpoch=0)}


def _configs(names: Names, **what: Any) -> list[Fields]:
    found: list[Fields] = []
    for _ in range(names.random.randint(1, 3)):
        kind = names.any_of(2, 4, 32)
        name = {2: names.topics()[0], 4: "1", 32: names.group()}[kind]
        if not any((one["resourceType"], one["resourceName"]) == (kind, name) for one in found):
            found.append({"resourceType": kind, "resourceName": name, **what})
    return found


def _describe_configs(names: Names, _version: int) -> Fields:
    resources = _configs(names)
    keys = {2: "retention.ms", 4: "background.threads", 32: "consumer.session.timeout.ms"}
    return {"resources": [one | {"configurationKeys": [keys[one["resourceType"]]]} for one in resources]}


def _alter_configs(names: Names, version: int, *, is_incremental: bool = False) -> Fields:
    keys = {
        2: ("retention.ms", "9000000"),
        4: ("background.threads", "11"),
        32: ("consumer.session.timeout.ms", "46000"),
    }
    resources = []
    for one in _configs(names):
        name, value = keys[one["resourceType"]]
        config: Fields = {"name": name, "value": value} | ({"configOperation": 0} if is_incremental else {})
        resources.append(one | {"configs": [config]})
    return {"resources": resources, "validateOnly": True}


def _create_token(names: Names, _version: int) -> Fields:
    kind, _, name = names.some(OWNERS)[0].partition(":")
    return {"ownerPrincipalType": kind, "ownerPrincipalName": name, "renewers": [], "maxLifetimeMs": 60_000}


def _sync_group(names: Names, version: int) -> Fields:
    fields: Fields = {"groupId": names.group(), "generationId": 1, "memberId": "nobody"}
    if version >= 5:
        fields |= names.any_of({}, {"protocolType": "consumer", "protocolName": "range"})
    return fields


def _heartbeat_of_consumers(names: Names, _version: int) -> Fields:
    """Of a member that nobody knows."""
    return {
        "groupId": names.group(),
        "memberId": "nobody",
        "memberEpoch": 5,
        "subscribedTopicNames": names.any_of(None, names.topics()),
    }


def _delete_share_state(names: Names, _version: int) -> Fields:
    return {"groupId": names.group(), "topics": [{"topicId": NO_ID, "partitions": [{"partition": 0}]}]}


def _simple(**fields: Any) -> Callable[[Names, int], Fields]:
    return lambda _names, _version: fields


def _grouped(**fields: Any) -> Callable[[Names, int], Fields]:
    return lambda names, _version: {"groupId": names.group(), **fields}


_Kind = tuple[ApiKey, tuple[int, ...], Callable[[Names, int], Fields]]
_KINDS: tuple[_Kind, ...] = (
    (ApiKey.PRODUCE, (3, 9, 12, 13), _produce),
    (ApiKey.FETCH, (4, 12, 13, 17), _fetch),
    (ApiKey.LIST_OFFSETS, (1, 7, 10), _list_offsets),
    (ApiKey.METADATA, (0, 1, 8, 9, 10, 12, 13), _metadata),
    (ApiKey.OFFSET_COMMIT, (2, 6, 9, 10), _offset_commit),
    (ApiKey.OFFSET_FETCH, (1, 2, 5, 7, 8, 9, 10), _offset_fetch),
    (ApiKey.FIND_COORDINATOR, (0, 2, 3, 4, 6), _find_coordinator),
    (
        ApiKey.JOIN_GROUP,
        (3, 9),
        _grouped(
            memberId="nobody",
            sessionTimeoutMs=10_000,
            protocolType="consumer",
            protocols=[{"name": "range", "metadata": ""}],
        ),
    ),
    (ApiKey.HEARTBEAT, (0, 4), _grouped(generationId=1, memberId="nobody")),
    (ApiKey.LEAVE_GROUP, (1,), _grouped(memberId="nobody")),
    (ApiKey.SYNC_GROUP, (3, 5), _sync_group),
    (
        ApiKey.DESCRIBE_GROUPS,
        (0, 5, 6),
        lambda names, version: (
            {"groups": names.groups()}
            | ({"includeAuthorizedOperations": names.any_of(True, False)} if version >= 3 else {})
        ),
    ),
    (ApiKey.LIST_GROUPS, (0, 5), _simple()),
    (ApiKey.CREATE_TOPICS, (4, 5, 7), _create_topics),
    (ApiKey.DELETE_TOPICS, (3, 5, 6), _delete_topics),
    (
        ApiKey.DELETE_RECORDS,
        (2,),
        lambda names, _: {"topics": _partitions_of(names, partitionIndex=0, offset=0), "timeoutMs": 5_000},
    ),
    (
        ApiKey.INIT_PRODUCER_ID,
        (1, 5),
        lambda names, _: {"transactionalId": names.any_of(None, names.ids()[0]), "transactionTimeoutMs": 10_000},
    ),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, (3, 4), _epochs),
    (ApiKey.ADD_PARTITIONS_TO_TXN, (0, 3), _add_partitions),
    (ApiKey.ADD_PARTITIONS_TO_TXN, (5,), _add_partitions_of_brokers),
    (
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        lambda names, _: {"transactionalId": names.ids()[0], "groupId": names.group()} | PRODUCER,
    ),
    (ApiKey.END_TXN, (0, 5), lambda names, _: {"transactionalId": names.ids()[0], "committed": True} | PRODUCER),
    (ApiKey.TXN_OFFSET_COMMIT, (0, 3, 5, 6), _txn_offset_commit),
    (ApiKey.DESCRIBE_CONFIGS, (1, 4), _describe_configs),
    (ApiKey.ALTER_CONFIGS, (2,), _alter_configs),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (1,),
        lambda names, version: _alter_configs(names, version, is_incremental=True),
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        (3,),
        lambda names, _: {
            "topics": [{"name": name, "count": 5, "assignments": None} for name in names.topics()],
            "timeoutMs": 5_000,
            "validateOnly": True,
        },
    ),
    (ApiKey.DELETE_GROUPS, (2, 3), lambda names, _: {"groupsNames": ["g-missing", names.any_of("g-gone", "h-gone")]}),
    (
        ApiKey.ELECT_LEADERS,
        (0, 2),
        lambda names, version: {
            "topicPartitions": [{"topic": name, "partitions": [0]} for name in names.topics()],
            "timeoutMs": 5_000,
        },
    ),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, (0,), _simple(topics=None, timeoutMs=5_000)),
    (
        ApiKey.OFFSET_DELETE,
        (0,),
        lambda names, _: {"groupId": names.group(), "topics": _partitions_of(names, partitionIndex=7)},
    ),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, (1,), _simple(components=[], strict=False)),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        (1,),
        _simple(
            entries=[
                {
                    "entity": [{"entityType": "user", "entityName": "q"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.5}],
                }
            ],
            validateOnly=True,
        ),
    ),
    (ApiKey.CREATE_DELEGATION_TOKEN, (3,), _create_token),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0,), _simple(users=[{"name": "nobody"}])),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0,), _simple(deletions=[{"name": "nobody", "mechanism": 1}])),
    (
        ApiKey.DESCRIBE_CLUSTER,
        (0, 2),
        lambda names, _: {"includeClusterAuthorizedOperations": names.any_of(True, False)},
    ),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        (0,),
        lambda names, _: {"topics": [{"name": name, "partitionIndexes": [0]} for name in names.topics()]},
    ),
    (ApiKey.DESCRIBE_TRANSACTIONS, (0,), lambda names, _: {"transactionalIds": names.ids()}),
    (ApiKey.LIST_TRANSACTIONS, (0, 2), _simple()),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), _heartbeat_of_consumers),
    (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (0, 1),
        lambda names, _: {"groupIds": names.groups(), "includeAuthorizedOperations": True},
    ),
    (ApiKey.LIST_CONFIG_RESOURCES, (1,), _simple(resourceTypes=[2])),
    (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (0,),
        lambda names, _: {"topics": names.any_of([], [{"name": name} for name in names.topics()])},
    ),
    (ApiKey.DELETE_SHARE_GROUP_STATE, (0,), _delete_share_state),
    (
        ApiKey.DESCRIBE_ACLS,
        (3,),
        _simple(
            resourceTypeFilter=1,
            resourceNameFilter=None,
            patternTypeFilter=1,
            principalFilter=None,
            hostFilter=None,
            operation=1,
            permissionType=1,
        ),
    ),
)
