"""
The API table: every request that a broker of Apache Kafka 4.2.1 serves, with its versions.

A version above `newest_stable` exists in Kafka but is disabled unless `unstable.api.versions.enable` is set. Produce is
advertised from version 0, because librdkafka derives a broker's features from that; versions from 3 on are served.

Source: org.apache.kafka.common.protocol.ApiKeys and the `validVersions` of the message schemas; KIP-896 for the oldest.
"""

from enum import IntEnum
from typing import Self

NEVER = 1 << 15
"""A first flexible version above every possible version."""


class ApiKey(IntEnum):
    """
    The key of an API and its versions.

    Attributes:
        api_name: Kafka's name, the prefix of its message names ("JoinGroup": `JoinGroupRequest`).
        oldest, newest: the range of versions that can be read and written.
        flexible_from: the first version with compact lengths and tagged fields, `NEVER` if there is none.
    """

    api_name: str
    oldest: int
    newest: int
    flexible_from: int

    def __new__(cls, key: int, api_name: str, oldest: int, newest: int, flexible_from: int) -> Self:
        member = int.__new__(cls, key)
        member._value_ = key
        member.api_name = api_name
        member.oldest = oldest
        member.newest = newest
        member.flexible_from = flexible_from
        return member

    # fmt: off
    PRODUCE = 0, "Produce", 3, 13, 9
    FETCH = 1, "Fetch", 4, 18, 12
    LIST_OFFSETS = 2, "ListOffsets", 1, 11, 6
    METADATA = 3, "Metadata", 0, 13, 9
    OFFSET_COMMIT = 8, "OffsetCommit", 2, 10, 8
    OFFSET_FETCH = 9, "OffsetFetch", 1, 10, 6
    FIND_COORDINATOR = 10, "FindCoordinator", 0, 6, 3
    JOIN_GROUP = 11, "JoinGroup", 0, 9, 6
    HEARTBEAT = 12, "Heartbeat", 0, 4, 4
    LEAVE_GROUP = 13, "LeaveGroup", 0, 5, 4
    SYNC_GROUP = 14, "SyncGroup", 0, 5, 4
    DESCRIBE_GROUPS = 15, "DescribeGroups", 0, 6, 5
    LIST_GROUPS = 16, "ListGroups", 0, 5, 3
    SASL_HANDSHAKE = 17, "SaslHandshake", 0, 1, NEVER
    API_VERSIONS = 18, "ApiVersions", 0, 4, 3
    CREATE_TOPICS = 19, "CreateTopics", 2, 7, 5
    DELETE_TOPICS = 20, "DeleteTopics", 1, 6, 4
    DELETE_RECORDS = 21, "DeleteRecords", 0, 2, 2
    INIT_PRODUCER_ID = 22, "InitProducerId", 0, 6, 2
    OFFSET_FOR_LEADER_EPOCH = 23, "OffsetForLeaderEpoch", 2, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, "AddPartitionsToTxn", 0, 5, 3
    ADD_OFFSETS_TO_TXN = 25, "AddOffsetsToTxn", 0, 4, 3
    END_TXN = 26, "EndTxn", 0, 5, 3
    WRITE_TXN_MARKERS = 27, "WriteTxnMarkers", 1, 2, 1
    TXN_OFFSET_COMMIT = 28, "TxnOffsetCommit", 0, 5, 3
    DESCRIBE_ACLS = 29, "DescribeAcls", 1, 3, 2
    CREATE_ACLS = 30, "CreateAcls", 1, 3, 2
    DELETE_ACLS = 31, "DeleteAcls", 1, 3, 2
    DESCRIBE_CONFIGS = 32, "DescribeConfigs", 1, 4, 4
    ALTER_CONFIGS = 33, "AlterConfigs", 0, 2, 2
    ALTER_REPLICA_LOG_DIRS = 34, "AlterReplicaLogDirs", 1, 2, 2
    DESCRIBE_LOG_DIRS = 35, "DescribeLogDirs", 1, 4, 2
    SASL_AUTHENTICATE = 36, "SaslAuthenticate", 0, 2, 2
    CREATE_PARTITIONS = 37, "CreatePartitions", 0, 3, 2
    CREATE_DELEGATION_TOKEN = 38, "CreateDelegationToken", 1, 3, 2
    RENEW_DELEGATION_TOKEN = 39, "RenewDelegationToken", 1, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, "ExpireDelegationToken", 1, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, "DescribeDelegationToken", 1, 3, 2
    DELETE_GROUPS = 42, "DeleteGroups", 0, 2, 2
    ELECT_LEADERS = 43, "ElectLeaders", 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, "IncrementalAlterConfigs", 0, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, "AlterPartitionReassignments", 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, "ListPartitionReassignments", 0, 0, 0
    OFFSET_DELETE = 47, "OffsetDelete", 0, 0, NEVER
    DESCRIBE_CLIENT_QUOTAS = 48, "DescribeClientQuotas", 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, "AlterClientQuotas", 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "DescribeUserScramCredentials", 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, "AlterUserScramCredentials", 0, 0, 0
    DESCRIBE_QUORUM = 55, "DescribeQuorum", 0, 2, 0
    UPDATE_FEATURES = 57, "UpdateFeatures", 0, 2, 0
    DESCRIBE_CLUSTER = 60, "DescribeCluster", 0, 2, 0
    DESCRIBE_PRODUCERS = 61, "DescribeProducers", 0, 0, 0
    UNREGISTER_BROKER = 64, "UnregisterBroker", 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, "DescribeTransactions", 0, 0, 0
    LIST_TRANSACTIONS = 66, "ListTransactions", 0, 2, 0
    CONSUMER_GROUP_HEARTBEAT = 68, "ConsumerGroupHeartbeat", 0, 1, 0
    CONSUMER_GROUP_DESCRIBE = 69, "ConsumerGroupDescribe", 0, 1, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "GetTelemetrySubscriptions", 0, 0, 0
    PUSH_TELEMETRY = 72, "PushTelemetry", 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, "ListConfigResources", 0, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, "DescribeTopicPartitions", 0, 0, 0
    SHARE_GROUP_HEARTBEAT = 76, "ShareGroupHeartbeat", 1, 1, 1
    SHARE_GROUP_DESCRIBE = 77, "ShareGroupDescribe", 1, 1, 1
    SHARE_FETCH = 78, "ShareFetch", 1, 2, 1
    SHARE_ACKNOWLEDGE = 79, "ShareAcknowledge", 1, 2, 1
    ADD_RAFT_VOTER = 80, "AddRaftVoter", 0, 1, 0
    REMOVE_RAFT_VOTER = 81, "RemoveRaftVoter", 0, 0, 0
    INITIALIZE_SHARE_GROUP_STATE = 83, "InitializeShareGroupState", 0, 0, 0
    READ_SHARE_GROUP_STATE = 84, "ReadShareGroupState", 0, 0, 0
    WRITE_SHARE_GROUP_STATE = 85, "WriteShareGroupState", 0, 1, 0
    DELETE_SHARE_GROUP_STATE = 86, "DeleteShareGroupState", 0, 0, 0
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "ReadShareGroupStateSummary", 0, 1, 0
    STREAMS_GROUP_HEARTBEAT = 88, "StreamsGroupHeartbeat", 0, 0, 0
    STREAMS_GROUP_DESCRIBE = 89, "StreamsGroupDescribe", 0, 0, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "DescribeShareGroupOffsets", 0, 1, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, "AlterShareGroupOffsets", 0, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, "DeleteShareGroupOffsets", 0, 0, 0
    # fmt: on

    @property
    def newest_stable(self) -> int:
        """The newest version that a broker offers by default."""
        return 5 if self is ApiKey.INIT_PRODUCER_ID else self.newest

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
"""By number, all APIs that a broker serves."""
