"""
The handlers of one broker.

`BrokerApis.handlers` is the registry of handlers by API. The server adds those of the coordinators, and ApiVersions lists them
all. What the handlers need to know of their broker comes in with two views: the cluster seen from it, and the partitions that
it leads or has replicas of. State that belongs to one broker is in its handlers: its fetch sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.admin.absent_groups import absent_group_handlers
from kohort.broker.admin.access_rules import create_acls, delete_acls, describe_acls
from kohort.broker.admin.client_quotas import ClientQuotaApis
from kohort.broker.admin.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from kohort.broker.admin.elections import Elections
from kohort.broker.admin.log_dirs import LogDirs
from kohort.broker.admin.quorum import Quorum
from kohort.broker.admin.raft_voters import RaftVoters
from kohort.broker.admin.reassignments import Reassignments
from kohort.broker.admin.sasl import sasl_authenticate, sasl_handshake
from kohort.broker.admin.scram_credentials import ScramCredentials
from kohort.broker.admin.update_features import UpdateFeatures
from kohort.broker.api_versions import ApiVersions
from kohort.broker.cluster import Cluster
from kohort.broker.configs.alter_configs import AlterConfigs
from kohort.broker.configs.describe_configs import DescribeConfigs
from kohort.broker.configs.list_config_resources import ListConfigResources
from kohort.broker.find_coordinator import FindCoordinator
from kohort.broker.partitions import LocalPartitions
from kohort.broker.ports import Handler
from kohort.broker.records.delete_records import DeleteRecords
from kohort.broker.records.fetch import Fetch
from kohort.broker.records.fetch_broker import FetchBroker
from kohort.broker.records.list_offsets import ListOffsets
from kohort.broker.records.offset_for_leader_epoch import OffsetForLeaderEpoch
from kohort.broker.records.produce import Produce
from kohort.broker.topics.create_partitions import CreatePartitions
from kohort.broker.topics.create_topics import CreateTopics
from kohort.broker.topics.delete_topics import DeleteTopics
from kohort.broker.topics.describe_topic_partitions import DescribeTopicPartitions
from kohort.broker.topics.metadata import Metadata
from kohort.broker.transactions.describe_producers import DescribeProducers
from kohort.broker.transactions.markers import LocalMarkers
from kohort.broker.transactions.write_txn_markers import WriteTxnMarkers
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.broker.broker import Broker


class BrokerApis:
    """
    The APIs of one broker.

    Args:
        shared: what it has in common with the other brokers of the process.
        cluster: seen from this broker.
    """

    def __init__(self, shared: Broker, cluster: Cluster) -> None:
        self.cluster = cluster
        self.partitions = LocalPartitions(shared.partitions, cluster.node_id)
        self.handlers: dict[ApiKey, Handler] = {}
        self._serve_data(shared)
        self._serve_topics(shared)
        self._serve_cluster(shared)
        self._serve_admin(shared)
        self._serve_absent()

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register the handler of an API, for all versions that `served_versions` names."""
        self.handlers[api_key] = handler

    def on_stopped(self) -> None:
        """Forget what a broker does not know after a restart: its fetch sessions."""
        self.fetch.sessions.clear()

    def _serve_data(self, shared: Broker) -> None:
        catalog, partitions, local = shared.catalog, shared.partitions, self.partitions
        clock, call_later = shared.clock, shared.call_later
        self.produce = Produce(
            catalog, local, partitions, self.cluster, clock, call_later, shared.verifier, shared.large_batches
        )
        self.serve(ApiKey.PRODUCE, self.produce.produce)
        fetch_broker = FetchBroker(
            catalog,
            local,
            partitions,
            self.cluster,
            shared.config,
            clock,
            shared.fetches,
            shared.fetch_bytes_left,
            shared.quotas,
            shared.fetch_turns,
            shared.log_reads,
        )
        self.fetch = Fetch(fetch_broker)
        self.serve(ApiKey.FETCH, self.fetch.fetch)
        self.serve(ApiKey.LIST_OFFSETS, ListOffsets(local, shared.searches).list_offsets)
        self.serve(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpoch(local).offset_for_leader_epoch)
        self.serve(ApiKey.DELETE_RECORDS, DeleteRecords(local, call_later).delete_records)
        markers = LocalMarkers(local.find, clock, shared.coordinators)
        self.serve(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkers(markers, call_later).write_txn_markers)
        self.serve(ApiKey.DESCRIBE_PRODUCERS, DescribeProducers(catalog, local).describe_producers)

    def _serve_topics(self, shared: Broker) -> None:
        catalog, configs, creation, call_later = shared.catalog, shared.configs, shared.creation, shared.call_later
        create = CreateTopics(catalog, creation, configs, self.cluster, call_later, shared.quotas)
        self.serve(ApiKey.CREATE_TOPICS, create.create_topics)
        delete = DeleteTopics(catalog, shared.config, call_later, shared.quotas)
        self.serve(ApiKey.DELETE_TOPICS, delete.delete_topics)
        grow = CreatePartitions(catalog, creation, call_later, shared.quotas)
        self.serve(ApiKey.CREATE_PARTITIONS, grow.create_partitions)
        seen = shared.dynamic_configs.of_topics[self.cluster.node_id]
        describe = DescribeConfigs(catalog, seen, shared.group_configs, shared.dynamic_configs, self.cluster)
        alter = AlterConfigs(catalog, configs, shared.group_configs, shared.dynamic_configs, self.cluster, call_later)
        listing = ListConfigResources(catalog, self.cluster)
        self.serve(ApiKey.DESCRIBE_CONFIGS, describe.describe_configs)
        self.serve(ApiKey.LIST_CONFIG_RESOURCES, listing.list_config_resources)
        self.serve(ApiKey.ALTER_CONFIGS, alter.alter_configs)
        self.serve(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter.incremental_alter_configs)

    def _serve_cluster(self, shared: Broker) -> None:
        catalog, partitions, cluster, config = shared.catalog, shared.partitions, self.cluster, shared.config
        metadata = Metadata(catalog, partitions, cluster, shared.creation, shared.publication, config)
        describe = DescribeTopicPartitions(catalog, partitions, shared.publication, config)
        find = FindCoordinator(catalog, partitions, shared.creation, cluster, shared.coordinators)
        self.serve(ApiKey.METADATA, metadata.metadata)
        self.serve(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe.describe_topic_partitions)
        self.serve(ApiKey.DESCRIBE_CLUSTER, cluster.describe_cluster)
        self.serve(ApiKey.FIND_COORDINATOR, find.find_coordinator)
        self.serve(ApiKey.API_VERSIONS, ApiVersions(self.handlers, shared.features, catalog).api_versions)

    def _serve_admin(self, shared: Broker) -> None:
        catalog, cluster, clock = shared.catalog, self.cluster, shared.clock
        dirs = LogDirs(catalog, self.partitions, shared.store)
        self.serve(ApiKey.DESCRIBE_LOG_DIRS, dirs.describe_log_dirs)
        self.serve(ApiKey.ALTER_REPLICA_LOG_DIRS, dirs.alter_replica_log_dirs)
        reassignments = Reassignments(catalog, cluster, shared.replication, shared.call_later)
        self.serve(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassignments.alter_partition_reassignments)
        self.serve(ApiKey.LIST_PARTITION_REASSIGNMENTS, reassignments.list_partition_reassignments)
        self.serve(
            ApiKey.ELECT_LEADERS,
            Elections(catalog, shared.replication, shared.call_later).elect_leaders,
        )
        quorum = Quorum(catalog, cluster, clock)
        self.serve(ApiKey.DESCRIBE_QUORUM, quorum.describe_quorum)
        self.serve(ApiKey.UNREGISTER_BROKER, quorum.unregister_broker)
        telemetry = shared.telemetry
        self.serve(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.get_telemetry_subscriptions)
        self.serve(ApiKey.PUSH_TELEMETRY, telemetry.push_telemetry)
        update = UpdateFeatures(catalog, shared.features, cluster, shared.call_later)
        self.serve(ApiKey.UPDATE_FEATURES, update.update_features)
        scram = ScramCredentials(catalog, shared.call_later)
        self.serve(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, scram.describe_user_scram_credentials)
        self.serve(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, scram.alter_user_scram_credentials)
        quotas = ClientQuotaApis(catalog, shared.call_later)
        self.serve(ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas.describe_client_quotas)
        self.serve(ApiKey.ALTER_CLIENT_QUOTAS, quotas.alter_client_quotas)
        self.serve(ApiKey.DESCRIBE_ACLS, describe_acls)
        self.serve(ApiKey.CREATE_ACLS, create_acls)
        self.serve(ApiKey.DELETE_ACLS, delete_acls)

    def _serve_absent(self) -> None:
        """The APIs of what this broker does not have: they are refused, as by Kafka without it."""
        voters = RaftVoters(self.cluster)
        self.serve(ApiKey.ADD_RAFT_VOTER, voters.add_raft_voter)
        self.serve(ApiKey.REMOVE_RAFT_VOTER, voters.remove_raft_voter)
        self.serve(ApiKey.SASL_HANDSHAKE, sasl_handshake)
        self.serve(ApiKey.SASL_AUTHENTICATE, sasl_authenticate)
        self.serve(ApiKey.CREATE_DELEGATION_TOKEN, create_delegation_token)
        self.serve(ApiKey.RENEW_DELEGATION_TOKEN, renew_delegation_token)
        self.serve(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_delegation_token)
        self.serve(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_delegation_token)
        for api, handler in absent_group_handlers():
            self.serve(api, handler)
