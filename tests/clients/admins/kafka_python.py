"""Every method of the administration client of kafka-python."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, TopicPartition, TopicPartitionReplica
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.structs import OffsetAndMetadata

from tests.clients.admins.rows import Row

TOPIC = "admin-kafka-python"
_KG = f"{TOPIC}-group"
_K0, _K9 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 9)


def _resource(kind: str, name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType[kind], name, configs)


def _acl(kind: type) -> Any:
    return kind(
        principal="User:a",
        host="*",
        operation=ACLOperation.READ,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, TOPIC),
    )


ROWS: tuple[Row, ...] = (
    ("create_topics", lambda a: a.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})),
    ("create_topics, again", lambda a: a.create_topics({TOPIC: {"num_partitions": 2}}, raise_errors=False)),
    ("create_partitions", lambda a: a.create_partitions({TOPIC: 3})),
    ("create_partitions, less", lambda a: a.create_partitions({TOPIC: 1})),
    ("wait_for_topics", lambda a: a.wait_for_topics([TOPIC])),
    ("list_partition_offsets", lambda a: a.list_partition_offsets({_K0: OffsetSpec.LATEST})),
    ("list_topics", lambda a: [topic for topic in a.list_topics() if topic == TOPIC]),
    ("describe_topics", lambda a: a.describe_topics([TOPIC, "no-such"])),
    ("describe_topic_partitions", lambda a: a.describe_topic_partitions([TOPIC], response_partition_limit=1)),
    ("api_versions", lambda a: {str(key): versions for key, versions in a.api_versions().items()}),
    ("get_broker_version_data", lambda a: a.get_broker_version_data(1).api_versions),
    ("describe_cluster", lambda a: a.describe_cluster()),
    ("describe_features", lambda a: a.describe_features()),
    ("update_features", lambda a: a.update_features({"transaction.version": 2}, validate_only=True)),
    ("update_features, unknown", lambda a: a.update_features({"no.such": 1}, validate_only=True)),
    ("alter_configs", lambda a: a.alter_configs([_resource("TOPIC", TOPIC, {"retention.ms": "5000"})])),
    (
        "alter_configs, append",
        lambda a: a.alter_configs([_resource("TOPIC", TOPIC, {"cleanup.policy": ("APPEND", "compact")})]),
    ),
    ("alter_configs, bad", lambda a: a.alter_configs([_resource("TOPIC", TOPIC, {"retention.ms": "soon"})])),
    ("describe_configs", lambda a: a.describe_configs([_resource("TOPIC", TOPIC)], include_synonyms=True)),
    ("describe_configs, all", lambda a: a.describe_configs([_resource("TOPIC", TOPIC)], config_filter="all")),
    ("reset_configs", lambda a: a.reset_configs([_resource("TOPIC", TOPIC, ["retention.ms"])])),
    (
        "alter_configs of a group",
        lambda a: a.alter_configs([_resource("GROUP", _KG, {"consumer.session.timeout.ms": "50000"})]),
    ),
    ("describe_configs of a group", lambda a: a.describe_configs([_resource("GROUP", _KG)])),
    ("reset_configs of a group", lambda a: a.reset_configs([_resource("GROUP", _KG, ["consumer.session.timeout.ms"])])),
    (
        "alter_configs of a broker",
        lambda a: a.alter_configs([_resource("BROKER", "1", {"log.retention.ms": "86400000"})]),
    ),
    ("reset_configs of a broker", lambda a: a.reset_configs([_resource("BROKER", "1", ["log.retention.ms"])])),
    ("list_config_resources", lambda a: a.list_config_resources(["CLIENT_METRICS"])),
    ("list_config_resources of brokers", lambda a: a.list_config_resources(["BROKER"])),
    ("list_partition_offsets, timestamp", lambda a: a.list_partition_offsets({_K0: 2_500})),
    ("list_partition_offsets, greatest", lambda a: a.list_partition_offsets({_K0: OffsetSpec.MAX_TIMESTAMP})),
    ("delete_records", lambda a: a.delete_records({_K0: 3})),
    ("delete_records, beyond", lambda a: a.delete_records({_K0: 300})),
    ("elect_leaders", lambda a: a.elect_leaders(0, {TOPIC: [0]}, raise_errors=False)),
    ("list_partition_reassignments", lambda a: a.list_partition_reassignments([_K0])),
    ("alter_partition_reassignments", lambda a: a.alter_partition_reassignments({_K0: [1]})),
    ("alter_partition_reassignments, away", lambda a: a.alter_partition_reassignments({_K0: [7]})),
    ("alter_partition_reassignments, cancel", lambda a: a.alter_partition_reassignments({_K0: None})),
    ("describe_log_dirs", lambda a: a.describe_log_dirs({TOPIC: [0, 1]})),
    (
        "alter_replica_log_dirs",
        lambda a: list(a.alter_replica_log_dirs({TopicPartitionReplica(TOPIC, 0, 1): "/no/such/directory"}).values()),
    ),
    ("describe_metadata_quorum", lambda a: a.describe_metadata_quorum()),
    ("list_group_offsets", lambda a: a.list_group_offsets({_KG: None})),
    (
        "alter_group_offsets",
        lambda a: a.alter_group_offsets(_KG, {TopicPartition(TOPIC, 1): OffsetAndMetadata(0, "m", -1)}),
    ),
    (
        "alter_group_offsets, no topic",
        lambda a: a.alter_group_offsets(_KG, {TopicPartition("no-such", 1): OffsetAndMetadata(0, "", -1)}),
    ),
    ("reset_group_offsets", lambda a: a.reset_group_offsets(_KG, {_K0: OffsetSpec.EARLIEST})),
    ("list_group_offsets, reset", lambda a: a.list_group_offsets({_KG: None})),
    ("delete_group_offsets", lambda a: a.delete_group_offsets(_KG, [TopicPartition(TOPIC, 1)])),
    ("list_groups", lambda a: [group for group in a.list_groups() if _KG in str(group)]),
    ("describe_groups", lambda a: a.describe_groups([_KG], include_authorized_operations=True)),
    ("describe_groups, unknown", lambda a: a.describe_groups(["no-such"])),
    (
        "remove_group_members",
        lambda a: list(a.remove_group_members(_KG, [MemberToRemove(member_id="nobody")]).values()),
    ),
    ("delete_groups", lambda a: a.delete_groups([_KG])),
    ("list_transactions", lambda a: a.list_transactions()),
    ("list_transactions, pattern", lambda a: a.list_transactions(transactional_id_pattern="a.*")),
    ("describe_transactions", lambda a: a.describe_transactions(["no-such"])),
    ("describe_producers", lambda a: a.describe_producers([_K0])),
    ("find_hanging_transactions", lambda a: a.find_hanging_transactions()),
    ("abort_transaction", lambda a: a.abort_transaction(AbortTransactionSpec(_K0, 77, 0))),
    ("create_acls", lambda a: a.create_acls([_acl(ACL)])),
    ("describe_acls", lambda a: a.describe_acls(_acl(ACLFilter))),
    ("delete_acls", lambda a: a.delete_acls([_acl(ACLFilter)])),
    ("describe_user_scram_credentials", lambda a: a.describe_user_scram_credentials(["nobody"])),
    ("describe_user_scram_credentials, all", lambda a: a.describe_user_scram_credentials()),
    (
        "alter_user_scram_credentials",
        lambda a: a.alter_user_scram_credentials([UserScramCredentialUpsertion("v", "SCRAM-SHA-512", "secret")]),
    ),
    ("describe_user_scram_credentials, known", lambda a: a.describe_user_scram_credentials(["v"])),
    (
        "alter_user_scram_credentials, delete",
        lambda a: a.alter_user_scram_credentials([UserScramCredentialDeletion("v", "SCRAM-SHA-512")]),
    ),
    ("delete_topics", lambda a: a.delete_topics([TOPIC])),
    ("delete_topics, again", lambda a: a.delete_topics([TOPIC], raise_errors=False)),
)

FILL_BEFORE = "list_partition_offsets"


@contextmanager
def connected(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()
