"""
The table of permissions: one row an API, with the checks of its requests in Kafka's order.

An API without a row fails the import of this module. The permissions in docs/apis.md are made from it.

Source: Kafka KafkaApis, ControllerApis, AuthHelper, AclApis, ConfigAdminManager; a running 4.4.0.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.access.administration import (
    BROKERS_OWN,
    Configured,
    credentials_refused,
    each_of,
    elections_refused,
    moves_refused,
    quotas_refused,
    users_refused,
)
from kohort.broker.access.checks import (
    AskedLater,
    AuthorizedOperations,
    Check,
    ClusterOperations,
    Each,
    EachTopic,
    NamedGroup,
    Need,
    Open,
    Shown,
    TopicShape,
    Whole,
    at_cluster,
    blank,
)
from kohort.broker.access.groups import DescribedTopics, FetchedOffsets, FoundCoordinators, Subscribed, SyncedGroup
from kohort.broker.access.produced import (
    AddedPartitions,
    DescribedTransactions,
    Produced,
    ProducerId,
    markers_refused,
)
from kohort.broker.access.requester import SENTENCES
from kohort.broker.access.share_offsets import AlteredShareOffsets, DescribedShareOffsets
from kohort.broker.access.topics import CreatedTopics, DeletedTopics, NamedTopics, PagedTopics
from kohort.model.errors import ErrorCode
from kohort.security.operations import Operation, ResourceType
from kohort.wire.apis import ApiKey

_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID

_READ_GROUP: Final = Need(Operation.READ, _GROUP, "group_id")
_DELETE_GROUP: Final = Need(Operation.DELETE, _GROUP, "group_id")
_WRITE_TRANSACTION: Final = Need(Operation.WRITE, _TRANSACTION, "transactional_id")
_ALTER_CLUSTER: Final = at_cluster(Operation.ALTER)
_DESCRIBE_CLUSTER: Final = at_cluster(Operation.DESCRIBE)
_BROKERS: Final = at_cluster(Operation.CLUSTER_ACTION)

_COMMITTED: Final = TopicShape(ApiKey.OFFSET_COMMIT, ids_since=10)
_COMMITTED_IN_TRANSACTION: Final = TopicShape(ApiKey.TXN_OFFSET_COMMIT, ids_since=6)
_DESCRIBES: Final = "The group has described topic(s) that the client is not authorized to describe."
_USES: Final = "The described group uses topics that the client is not authorized to describe."
_TOKENS: Final = "the owner and the renewers of a token decide; only the handler knows them"


def _group_as_a_whole(api: ApiKey, need: Need = _READ_GROUP, *, has_message: bool = False) -> Whole:
    """The group is refused, and all else of the answer is blank."""
    return Whole(blank(api, has_message=has_message), need)


def _joined() -> tuple[Check, ...]:
    """JoinGroup: version 7 and later have no name of a protocol."""
    return (Whole(blank(ApiKey.JOIN_GROUP, protocol_name=None), _READ_GROUP),)


def _cluster(api: ApiKey, need: Need = _ALTER_CLUSTER, *, has_message: bool = True) -> tuple[Check, ...]:
    """The whole request needs a permission at the cluster."""
    return (Whole(blank(api, has_message=has_message), need),)


def _described(api: ApiKey, *topics: Check) -> tuple[Check, ...]:
    """Groups are described one by one, and may be refused for their topics."""
    return (
        Each(api, Operation.DESCRIBE, _GROUP, "group_ids", "groups", "group_id"),
        AuthorizedOperations(_GROUP, "groups", "group_id", "authorized_operations"),
        *topics,
    )


def _share_state(api: ApiKey) -> tuple[Check, ...]:
    shape = TopicShape(
        api,
        index="partition",
        answers="results",
        answer_index="partition",
        name="",
        ids_since=0,
        has_message=True,
    )
    return (Whole(shape.all_refused(), _BROKERS),)


ACCESS_TABLE: Final[dict[ApiKey, tuple[Check, ...]]] = {
    ApiKey.PRODUCE: (Produced(),),
    ApiKey.FETCH: (
        AskedLater(
            "a session names its topics once; the handler asks at each request",
            Need(Operation.READ, _TOPIC, "topics", "of a consumer"),
            at_cluster(Operation.CLUSTER_ACTION, "of a replica"),
        ),
    ),
    ApiKey.LIST_OFFSETS: (EachTopic(TopicShape(ApiKey.LIST_OFFSETS), Operation.DESCRIBE),),
    ApiKey.METADATA: (
        NamedTopics(),
        ClusterOperations(),
        AuthorizedOperations(_TOPIC, "topics", "name", "topic_authorized_operations"),
    ),
    ApiKey.OFFSET_COMMIT: (Whole(_COMMITTED.all_refused(), _READ_GROUP), EachTopic(_COMMITTED, Operation.READ)),
    ApiKey.OFFSET_FETCH: (FetchedOffsets(),),
    ApiKey.FIND_COORDINATOR: (FoundCoordinators(),),
    ApiKey.JOIN_GROUP: _joined(),
    ApiKey.HEARTBEAT: (_group_as_a_whole(ApiKey.HEARTBEAT),),
    ApiKey.LEAVE_GROUP: (_group_as_a_whole(ApiKey.LEAVE_GROUP),),
    ApiKey.SYNC_GROUP: (SyncedGroup(blank(ApiKey.SYNC_GROUP), _READ_GROUP),),
    ApiKey.DESCRIBE_GROUPS: (
        Each(ApiKey.DESCRIBE_GROUPS, Operation.DESCRIBE, _GROUP, "groups", "groups", "group_id"),
        AuthorizedOperations(_GROUP, "groups", "group_id", "authorized_operations"),
    ),
    ApiKey.LIST_GROUPS: (Shown(Operation.DESCRIBE, _GROUP, "groups", "group_id", unless=_DESCRIBE_CLUSTER),),
    ApiKey.SASL_HANDSHAKE: (Open("authentication comes before permissions"),),
    ApiKey.API_VERSIONS: (Open("a client asks for the versions before it authenticates itself"),),
    ApiKey.CREATE_TOPICS: (CreatedTopics(),),
    ApiKey.DELETE_TOPICS: (DeletedTopics(),),
    ApiKey.DELETE_RECORDS: (
        EachTopic(TopicShape(ApiKey.DELETE_RECORDS, blank={"low_watermark": -1}), Operation.DELETE),
    ),
    ApiKey.INIT_PRODUCER_ID: (ProducerId(),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        EachTopic(
            TopicShape(ApiKey.OFFSET_FOR_LEADER_EPOCH, name="topic", index="partition", answer_index="partition"),
            Operation.DESCRIBE,
            unless=_BROKERS,
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddedPartitions(),),
    ApiKey.ADD_OFFSETS_TO_TXN: (Whole(blank(ApiKey.ADD_OFFSETS_TO_TXN), _WRITE_TRANSACTION, _READ_GROUP),),
    ApiKey.END_TXN: (Whole(blank(ApiKey.END_TXN), _WRITE_TRANSACTION),),
    ApiKey.WRITE_TXN_MARKERS: (Whole(markers_refused, (_ALTER_CLUSTER, _BROKERS)),),
    ApiKey.TXN_OFFSET_COMMIT: (
        Whole(_COMMITTED_IN_TRANSACTION.all_refused(), _WRITE_TRANSACTION, _READ_GROUP),
        EachTopic(_COMMITTED_IN_TRANSACTION, Operation.READ),
    ),
    ApiKey.DESCRIBE_ACLS: _cluster(ApiKey.DESCRIBE_ACLS, _DESCRIBE_CLUSTER),
    ApiKey.CREATE_ACLS: (
        Whole(each_of(ApiKey.CREATE_ACLS, "creations", "results", lambda _creation: {}), _ALTER_CLUSTER),
    ),
    ApiKey.DELETE_ACLS: (
        Whole(each_of(ApiKey.DELETE_ACLS, "filters", "filter_results", lambda _filter: {}), _ALTER_CLUSTER),
    ),
    ApiKey.DESCRIBE_CONFIGS: (Configured(ApiKey.DESCRIBE_CONFIGS, Operation.DESCRIBE_CONFIGS, "results"),),
    ApiKey.ALTER_CONFIGS: (Configured(ApiKey.ALTER_CONFIGS, Operation.ALTER_CONFIGS, "responses", BROKERS_OWN),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Whole(moves_refused, _ALTER_CLUSTER),),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(ApiKey.DESCRIBE_LOG_DIRS, _DESCRIBE_CLUSTER, has_message=False),
    ApiKey.SASL_AUTHENTICATE: (Open("authentication comes before permissions"),),
    ApiKey.CREATE_PARTITIONS: (
        Each(ApiKey.CREATE_PARTITIONS, Operation.ALTER, _TOPIC, "topics", "results", "name", name="name"),
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        AskedLater(
            _TOKENS, Need(Operation.CREATE_TOKENS, ResourceType.USER, "owner_principal_name", "for another owner")
        ),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (AskedLater(_TOKENS),),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (AskedLater(_TOKENS),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        AskedLater(
            _TOKENS,
            Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, detail="of the tokens of others"),
            Need(Operation.DESCRIBE_TOKENS, ResourceType.USER, detail="or of their owners"),
        ),
    ),
    ApiKey.DELETE_GROUPS: (
        Each(ApiKey.DELETE_GROUPS, Operation.DELETE, _GROUP, "groups_names", "results", "group_id"),
    ),
    ApiKey.ELECT_LEADERS: (Whole(elections_refused, _ALTER_CLUSTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Configured(ApiKey.INCREMENTAL_ALTER_CONFIGS, Operation.ALTER_CONFIGS, "responses", BROKERS_OWN),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        Whole(
            TopicShape(ApiKey.ALTER_PARTITION_REASSIGNMENTS, answers="responses", has_message=True).all_refused(
                has_top=True
            ),
            _ALTER_CLUSTER,
        ),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(ApiKey.LIST_PARTITION_REASSIGNMENTS, _DESCRIBE_CLUSTER),
    ApiKey.OFFSET_DELETE: (
        _group_as_a_whole(ApiKey.OFFSET_DELETE, _DELETE_GROUP),
        EachTopic(TopicShape(ApiKey.OFFSET_DELETE), Operation.READ, has_group_error=True),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        Whole(
            blank(ApiKey.DESCRIBE_CLIENT_QUOTAS, entries=None, error_message=None),
            at_cluster(Operation.DESCRIBE_CONFIGS),
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (Whole(quotas_refused, at_cluster(Operation.ALTER_CONFIGS)),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Whole(users_refused, _DESCRIBE_CLUSTER),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Whole(credentials_refused, _ALTER_CLUSTER),),
    ApiKey.DESCRIBE_QUORUM: _cluster(ApiKey.DESCRIBE_QUORUM, _DESCRIBE_CLUSTER),
    ApiKey.UPDATE_FEATURES: _cluster(ApiKey.UPDATE_FEATURES),
    ApiKey.ENVELOPE: _cluster(ApiKey.ENVELOPE, _BROKERS, has_message=False),
    ApiKey.DESCRIBE_CLUSTER: (ClusterOperations(),),
    ApiKey.DESCRIBE_PRODUCERS: (
        EachTopic(
            TopicShape(ApiKey.DESCRIBE_PRODUCERS, partitions="partition_indexes", index="", has_message=True),
            Operation.READ,
        ),
    ),
    ApiKey.UNREGISTER_BROKER: _cluster(ApiKey.UNREGISTER_BROKER),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Each(
            ApiKey.DESCRIBE_TRANSACTIONS,
            Operation.DESCRIBE,
            _TRANSACTION,
            "transactional_ids",
            "transaction_states",
            "transactional_id",
        ),
        DescribedTransactions(),
    ),
    ApiKey.LIST_TRANSACTIONS: (Shown(Operation.DESCRIBE, _TRANSACTION, "transaction_states", "transactional_id"),),
    ApiKey.ALLOCATE_PRODUCER_IDS: _cluster(ApiKey.ALLOCATE_PRODUCER_IDS, _BROKERS, has_message=False),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _group_as_a_whole(ApiKey.CONSUMER_GROUP_HEARTBEAT),
        Subscribed(blank(ApiKey.CONSUMER_GROUP_HEARTBEAT), has_patterns=True),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _described(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        DescribedTopics(ApiKey.CONSUMER_GROUP_DESCRIBE, _DESCRIBES, "assignment", "target_assignment"),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (Open("any client may send its metrics"),),
    ApiKey.PUSH_TELEMETRY: (Open("any client may send its metrics"),),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(
        ApiKey.LIST_CONFIG_RESOURCES, at_cluster(Operation.DESCRIBE_CONFIGS), has_message=False
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        PagedTopics(),
        AuthorizedOperations(_TOPIC, "topics", "name", "topic_authorized_operations"),
    ),
    # Share groups and streams groups are refused after the checks of their groups. Who serves them adds those of topics.
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        _group_as_a_whole(ApiKey.SHARE_GROUP_HEARTBEAT),
        Subscribed(blank(ApiKey.SHARE_GROUP_HEARTBEAT)),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: _described(
        ApiKey.SHARE_GROUP_DESCRIBE,
        DescribedTopics(ApiKey.SHARE_GROUP_DESCRIBE, _DESCRIBES, "assignment", has_names=False),
    ),
    ApiKey.SHARE_FETCH: (
        NamedGroup(blank(ApiKey.SHARE_FETCH), _READ_GROUP),
        AskedLater(
            "a session names its topics once; the handler asks at each request", Need(Operation.READ, _TOPIC, "topics")
        ),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: (
        NamedGroup(blank(ApiKey.SHARE_ACKNOWLEDGE), _READ_GROUP),
        AskedLater("topics are named by their ids", Need(Operation.READ, _TOPIC, "topics")),
    ),
    ApiKey.ADD_RAFT_VOTER: _cluster(ApiKey.ADD_RAFT_VOTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(ApiKey.REMOVE_RAFT_VOTER),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _share_state(ApiKey.INITIALIZE_SHARE_GROUP_STATE),
    ApiKey.READ_SHARE_GROUP_STATE: _share_state(ApiKey.READ_SHARE_GROUP_STATE),
    ApiKey.WRITE_SHARE_GROUP_STATE: _share_state(ApiKey.WRITE_SHARE_GROUP_STATE),
    ApiKey.DELETE_SHARE_GROUP_STATE: _share_state(ApiKey.DELETE_SHARE_GROUP_STATE),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _share_state(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (_group_as_a_whole(ApiKey.STREAMS_GROUP_HEARTBEAT),),
    ApiKey.STREAMS_GROUP_DESCRIBE: _described(ApiKey.STREAMS_GROUP_DESCRIBE),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Each(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            Operation.DESCRIBE,
            _GROUP,
            "groups",
            "groups",
            "group_id",
            name="group_id",
        ),
        DescribedShareOffsets(),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        _group_as_a_whole(ApiKey.ALTER_SHARE_GROUP_OFFSETS, has_message=True),
        AlteredShareOffsets(),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        _group_as_a_whole(ApiKey.DELETE_SHARE_GROUP_OFFSETS, _DELETE_GROUP, has_message=True),
        Each(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            Operation.READ,
            _TOPIC,
            "topics",
            "responses",
            "topic_name",
            name="topic_name",
            error_message=SENTENCES[ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        ),
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (
        _group_as_a_whole(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE),
    ),
    ApiKey.UNREGISTER_CONTROLLER: _cluster(ApiKey.UNREGISTER_CONTROLLER),
}

for _key in ApiKey:
    if _key not in ACCESS_TABLE:
        raise KeyError(f"{_key.api_name} has no row in the table of permissions")
