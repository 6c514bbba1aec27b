"""
The requests that are asked after each change of ACLs, and what is compared of their answers.

None of them changes anything. Times, addresses, ids of the cluster and of topics, and producer ids differ between brokers.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.authorization.rules import NAMES, USERS

EVERYTHING: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""The fields of a filter that selects all ACLs."""

_VARIABLE: Final = frozenset(
    (
        *("brokers", "cluster_id", "controller_id", "topic_id", "throttle_time_ms", "producer_id", "node_id", "host"),
        *("port", "token_id", "hmac", "issue_timestamp", "expiry_timestamp", "max_timestamp"),
    )
)
_REFUSED: Final = "Cluster authorization failed."


class Question(NamedTuple):
    """
    One request.

    Attributes:
        decisions: how many operations on resources it asks for.
    """

    api: ApiKey
    version: int
    request: Any
    decisions: int

    @property
    def name(self) -> str:
        return f"{self.api.api_name} v{self.version} {msgspec.json.encode(self.request).decode()}"


def comparable(answer: Any) -> Any:
    """The answer without what differs between brokers; lists of structs in the order of their contents."""
    return _without_variable(msgspec.to_builtins(answer))


def _without_variable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_variable(each) for key, each in value.items() if key not in _VARIABLE}
    if isinstance(value, str) and value.startswith("Request Request("):
        return _REFUSED  # Kafka shows the client an object of the broker
    if isinstance(value, list | tuple):
        return sorted((_without_variable(each) for each in value), key=repr)
    return value


def questions() -> list[Question]:
    """All questions, in order."""
    return [question for make in _MAKERS for question in make()]


def _topics() -> Iterator[Question]:
    count = len(NAMES)
    named = [m.MetadataRequestTopic(name=name) for name in NAMES]
    unknown = [m.MetadataRequestTopic(name=f"{name}-unknown") for name in NAMES]
    for topics, version in ((named, 12), (unknown, 12), (named, 9)):
        request = m.MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version == 9,
        )
        yield Question(ApiKey.METADATA, version, request, 8 * count if topics is named else count)
    everything = m.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    yield Question(ApiKey.METADATA, 12, everything, count)
    request_partitions = [m.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    offsets = [m.ListOffsetsTopic(name=name, partitions=request_partitions) for name in NAMES]
    yield Question(ApiKey.LIST_OFFSETS, 7, m.ListOffsetsRequest(replica_id=-1, topics=offsets), count)
    fetched = [
        m.FetchRequestFetchTopic(
            topic=name, partitions=[m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
        )
        for name in NAMES
    ]
    fetch = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, topics=fetched)
    yield Question(ApiKey.FETCH, 12, fetch, count)
    deleted = [
        m.DeleteRecordsTopic(name=name, partitions=[m.DeleteRecordsPartition(partition_index=7, offset=0)])
        for name in NAMES
    ]
    yield Question(ApiKey.DELETE_RECORDS, 2, m.DeleteRecordsRequest(topics=deleted, timeout_ms=5_000), count)
    created = [
        m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (*NAMES, "new")
    ]
    create = m.CreateTopicsRequest(topics=created, timeout_ms=5_000, validate_only=True)
    yield Question(ApiKey.CREATE_TOPICS, 4, create, 2 * count)
    grown = [m.CreatePartitionsTopic(name=name, count=1) for name in NAMES]
    yield Question(
        ApiKey.CREATE_PARTITIONS,
        3,
        m.CreatePartitionsRequest(topics=grown, timeout_ms=5_000, validate_only=True),
        count,
    )
    producers = [m.DescribeProducersRequestTopicRequest(name=name, partition_indexes=[0]) for name in NAMES]
    yield Question(ApiKey.DESCRIBE_PRODUCERS, 0, m.DescribeProducersRequest(topics=producers), count)


def _groups() -> Iterator[Question]:
    count = len(NAMES)
    yield Question(
        ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=NAMES, include_authorized_operations=True), 5 * count
    )
    yield Question(ApiKey.LIST_GROUPS, 4, m.ListGroupsRequest(), count)
    topics = [m.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES]
    groups = [m.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in NAMES]
    yield Question(ApiKey.OFFSET_FETCH, 9, m.OffsetFetchRequest(groups=groups), count * (1 + count))
    for name in NAMES:
        beat = m.HeartbeatRequest(group_id=name, generation_id=1, member_id="nobody")
        yield Question(ApiKey.HEARTBEAT, 4, beat, 1)
    yield Question(ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), count)


def _transactions() -> Iterator[Question]:
    count = len(NAMES)
    yield Question(ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(key_type=1, coordinator_keys=NAMES), count)
    yield Question(ApiKey.DESCRIBE_TRANSACTIONS, 0, m.DescribeTransactionsRequest(transactional_ids=NAMES), count)
    for name in NAMES:
        end = m.EndTxnRequest(transactional_id=name, producer_id=1 << 40, producer_epoch=0, committed=True)
        yield Question(ApiKey.END_TXN, 3, end, 1)
        offsets = m.AddOffsetsToTxnRequest(transactional_id=name, producer_id=1 << 40, producer_epoch=0, group_id=name)
        yield Question(ApiKey.ADD_OFFSETS_TO_TXN, 3, offsets, 2)
    idempotent = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    yield Question(ApiKey.INIT_PRODUCER_ID, 4, idempotent, 2)


def _cluster() -> Iterator[Question]:
    described = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield Question(ApiKey.DESCRIBE_CLUSTER, 1, described, 7)
    resources = [
        m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, keys, names in (
            (2, ["retention.ms"], NAMES),
            (32, ["share.session.timeout.ms"], NAMES),
            (4, ["num.partitions"], ("1",)),
        )
        for name in names
    ]
    yield Question(ApiKey.DESCRIBE_CONFIGS, 4, m.DescribeConfigsRequest(resources=resources), len(resources))
    altered = [
        m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)],
        )
        for kind, key, value, names in ((2, "retention.ms", "-1", NAMES), (4, "num.partitions", "1", ("1",)))
        for name in names
    ]
    alter = m.IncrementalAlterConfigsRequest(resources=altered, validate_only=True)
    yield Question(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter, len(altered))
    acls = m.DescribeAclsRequest(**EVERYTHING | {"resource_type_filter": 2})
    yield Question(ApiKey.DESCRIBE_ACLS, 3, acls, 1)
    yield Question(ApiKey.DELETE_ACLS, 3, m.DeleteAclsRequest(filters=[_nothing()]), 1)
    yield Question(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, m.DescribeClientQuotasRequest(components=[], strict=False), 1)
    yield Question(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, m.ListPartitionReassignmentsRequest(timeout_ms=5_000), 1)


def _tokens() -> Iterator[Question]:
    described = m.DescribeDelegationTokenRequest(owners=None)
    yield Question(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, described, 2 * len(USERS))
    renewer = m.CreateDelegationTokenRequestCreatableRenewers(principal_type="Group", principal_name="none")
    for user in USERS:
        request = m.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=user, renewers=[renewer], max_lifetime_ms=-1
        )
        # Nobody may have a group as a renewer, so no token is made.
        yield Question(ApiKey.CREATE_DELEGATION_TOKEN, 3, request, 1)


def _nothing() -> m.DeleteAclsFilter:
    """A filter that selects no ACL."""
    return m.DeleteAclsFilter(**EVERYTHING | {"resource_name_filter": "none"})


_MAKERS: Final[tuple[Callable[[], Iterable[Question]], ...]] = (_topics, _groups, _transactions, _cluster, _tokens)
