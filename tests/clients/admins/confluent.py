"""Every method of the `AdminClient` of confluent-kafka."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.clients.admins.rows import Row
from tests.clients.waiting import PATIENCE_S

TOPIC = "admin-confluent"
_CG = f"{TOPIC}-group"
_C0, _C9 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 9)


def _config(kind: ResourceType, name: str, key: str, value: str | None, operation: AlterConfigOpType) -> ConfigResource:
    entry = ConfigEntry(key, value, incremental_operation=operation)
    return ConfigResource(kind, name, incremental_configs=[entry])


def _alter(
    kind: ResourceType, name: str, key: str, value: str | None, operation: str = "SET"
) -> Callable[[AdminClient], Any]:
    return lambda a: a.incremental_alter_configs([_config(kind, name, key, value, AlterConfigOpType[operation])])


def _described(kind: ResourceType, name: str, *keys: str) -> Callable[[AdminClient], Any]:
    """Some configurations, or all."""

    def described(admin: AdminClient) -> Any:
        resource = ConfigResource(kind, name)
        found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return {key: str(entry) for key, entry in found.items() if key in keys or not keys}

    return described


_ACL = (
    ResourceType.TOPIC,
    TOPIC,
    ResourcePatternType.LITERAL,
    "User:a",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)

_SCRAM = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)

ROWS: tuple[Row, ...] = (
    ("create_topics, bad name", lambda a: a.create_topics([NewTopic("not a name", 1, 1)])),
    ("create_topics", lambda a: a.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})])),
    ("create_topics, again", lambda a: a.create_topics([NewTopic(TOPIC, 2, 1)])),
    (
        "create_topics, assignment",
        lambda a: a.create_topics([NewTopic(f"{TOPIC}-2", 2, replica_assignment=[[1], [1]])]),
    ),
    ("create_topics, validation", lambda a: a.create_topics([NewTopic(f"{TOPIC}-3", 1, 1)], validate_only=True)),
    ("create_partitions", lambda a: a.create_partitions([NewPartitions(TOPIC, 3), NewPartitions("no-such", 3)])),
    ("create_partitions, less", lambda a: a.create_partitions([NewPartitions(TOPIC, 1)])),
    ("list_offsets", lambda a: a.list_offsets({_C0: OffsetSpec.latest()})),
    ("list_topics", lambda a: a.list_topics(TOPIC, timeout=PATIENCE_S)),
    (
        "describe_topics",
        lambda a: a.describe_topics(TopicCollection([TOPIC, "no-such"]), include_authorized_operations=True),
    ),
    ("describe_configs of a topic", _described(ResourceType.TOPIC, TOPIC)),
    ("describe_configs of no topic", _described(ResourceType.TOPIC, "no-such")),
    (
        "describe_configs of a broker",
        _described(ResourceType.BROKER, "1", "node.id", "num.partitions", "log.retention.ms"),
    ),
    ("incremental_alter_configs", _alter(ResourceType.TOPIC, TOPIC, "retention.ms", "5000")),
    ("incremental_alter_configs, append", _alter(ResourceType.TOPIC, TOPIC, "cleanup.policy", "compact", "APPEND")),
    ("incremental_alter_configs, delete", _alter(ResourceType.TOPIC, TOPIC, "retention.ms", None, "DELETE")),
    ("incremental_alter_configs, bad key", _alter(ResourceType.TOPIC, TOPIC, "no.such", "1")),
    ("incremental_alter_configs, bad value", _alter(ResourceType.TOPIC, TOPIC, "retention.ms", "soon")),
    ("incremental_alter_configs, broker", _alter(ResourceType.BROKER, "1", "log.retention.ms", "86400000")),
    ("incremental_alter_configs, broker back", _alter(ResourceType.BROKER, "1", "log.retention.ms", None, "DELETE")),
    ("incremental_alter_configs, static", _alter(ResourceType.BROKER, "1", "node.id", "7")),
    ("alter_configs", lambda a: a.alter_configs([ConfigResource(ResourceType.TOPIC, TOPIC, {"retention.ms": "6000"})])),
    ("describe_configs, altered", _described(ResourceType.TOPIC, TOPIC, "retention.ms", "cleanup.policy")),
    ("list_offsets, earliest", lambda a: a.list_offsets({_C0: OffsetSpec.earliest()})),
    ("list_offsets, greatest timestamp", lambda a: a.list_offsets({_C0: OffsetSpec.max_timestamp()})),
    ("list_offsets, timestamp", lambda a: a.list_offsets({_C0: OffsetSpec.for_timestamp(2_500)})),
    ("list_offsets, no partition", lambda a: a.list_offsets({_C9: OffsetSpec.latest()})),
    ("delete_records", lambda a: a.delete_records([TopicPartition(TOPIC, 0, 3)])),
    ("delete_records, beyond", lambda a: a.delete_records([TopicPartition(TOPIC, 0, 300)])),
    ("list_offsets, after deletion", lambda a: a.list_offsets({_C0: OffsetSpec.earliest()})),
    ("elect_leaders", lambda a: a.elect_leaders(ElectionType.PREFERRED, [_C0, _C9])),
    ("elect_leaders, unclean", lambda a: a.elect_leaders(ElectionType.UNCLEAN, [_C0])),
    ("list_consumer_group_offsets", lambda a: a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_CG)])),
    (
        "alter_consumer_group_offsets",
        lambda a: a.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(_CG, [TopicPartition(TOPIC, 1, 0)])]),
    ),
    (
        "alter_consumer_group_offsets, no topic",
        lambda a: a.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(_CG, [TopicPartition("no-such", 1, 0)])]
        ),
    ),
    (
        "list_consumer_group_offsets, altered",
        lambda a: a.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_CG)]),
    ),
    ("list_consumer_groups", lambda a: [g for g in a.list_consumer_groups().result().valid if g.group_id == _CG]),
    ("list_groups", lambda a: a.list_groups(_CG, timeout=PATIENCE_S)),
    (
        "describe_consumer_groups",
        lambda a: a.describe_consumer_groups([_CG, "no-such"], include_authorized_operations=True),
    ),
    ("delete_consumer_groups", lambda a: a.delete_consumer_groups([_CG, "no-such"])),
    ("create_acls", lambda a: a.create_acls([AclBinding(*_ACL)])),
    ("describe_acls", lambda a: a.describe_acls(AclBindingFilter(*_ACL))),
    ("delete_acls", lambda a: a.delete_acls([AclBindingFilter(*_ACL)])),
    ("describe_user_scram_credentials", lambda a: a.describe_user_scram_credentials(["nobody"])),
    ("describe_user_scram_credentials, all", lambda a: a.describe_user_scram_credentials()),
    (
        "alter_user_scram_credentials",
        lambda a: a.alter_user_scram_credentials([UserScramCredentialUpsertion("u", _SCRAM, b"secret", b"salt")]),
    ),
    ("describe_user_scram_credentials, known", lambda a: a.describe_user_scram_credentials(["u"])),
    (
        "alter_user_scram_credentials, delete",
        lambda a: a.alter_user_scram_credentials([UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)]),
    ),
    (
        "alter_user_scram_credentials, unknown",
        lambda a: a.alter_user_scram_credentials([UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)]),
    ),
    ("describe_cluster", lambda a: a.describe_cluster(include_authorized_operations=True)),
    ("delete_topics", lambda a: a.delete_topics([TOPIC, f"{TOPIC}-2", "no-such"])),
)

FILL_BEFORE = "list_offsets"
"""The row before which the records and offsets are written."""


@contextmanager
def connected(bootstrap: str) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": bootstrap})
