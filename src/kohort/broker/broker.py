"""
Composition of the broker: topics, partitions and the handlers of their APIs.

`Broker.handlers` is the registry of handlers by API. The server adds those of the coordinators, and ApiVersions lists them all.
"""

from __future__ import annotations

from collections.abc import Callable

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
from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.alter_configs import AlterConfigs
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.describe_configs import DescribeConfigs
from kohort.broker.configs.dynamic_configs import DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.configs.list_config_resources import ListConfigResources
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.features import Features
from kohort.broker.find_coordinator import FindCoordinator
from kohort.broker.log_maintenance import LogMaintenance
from kohort.broker.partitions import Fetches, Partitions
from kohort.broker.ports import CallLater, CoordinatorDirectory, Elsewhere, Handler, NoCoordinators, at_once
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.delete_records import DeleteRecords
from kohort.broker.records.fetch import BYTES_MAX, Fetch
from kohort.broker.records.large_batches import LargeBatches
from kohort.broker.records.list_offsets import ListOffsets
from kohort.broker.records.offset_for_leader_epoch import OffsetForLeaderEpoch
from kohort.broker.records.produce import Produce
from kohort.broker.records.produce_verification import TransactionVerifier
from kohort.broker.topics.create_partitions import CreatePartitions
from kohort.broker.topics.create_topics import CreateTopics
from kohort.broker.topics.creation import TopicCreation
from kohort.broker.topics.delete_topics import DeleteTopics
from kohort.broker.topics.describe_topic_partitions import DescribeTopicPartitions
from kohort.broker.topics.metadata import Metadata
from kohort.broker.topics.strays import refuse_missing, rename_strays
from kohort.broker.transactions.describe_producers import DescribeProducers
from kohort.broker.transactions.markers import LocalMarkers
from kohort.broker.transactions.optional_verification import OptionalVerification
from kohort.broker.transactions.producer_ids import ProducerIds
from kohort.broker.transactions.verification import LocalVerification
from kohort.broker.transactions.write_txn_markers import WriteTxnMarkers
from kohort.machine.gradual import GradualHandler
from kohort.machine.ports import Markers, Verification
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Purgatory
from kohort.storage.log import LogStore
from kohort.wire.apis import ApiKey


class Broker:
    """
    The broker of one node. Not thread-safe: call from the event-loop thread.

    Args:
        cluster: the node as clients see it; host and port may be set later, when the listener is bound.
        coordinators: the coordinators of this node; they may be added until the first request.
        verification: the transaction coordinator, as partition leaders ask it. Default: the one among `coordinators`.
        features: the finalised levels of features. Default: the newest ones.
        fetch_bytes_left: how many bytes of records the next Fetch response may have. Default: as many as are asked for.
        elsewhere: runs long computations on another thread. Default: on this one.

    Raises:
        ConfigError: the catalog in the store was written by a newer version.
        StorageError: the catalog cannot be read.
    """

    def __init__(
        self,
        store: LogStore,
        cluster: Cluster,
        config: BrokerConfig,
        clock: Clock,
        call_later: CallLater,
        *,
        coordinators: CoordinatorDirectory | None = None,
        verification: Verification | None = None,
        features: Features | None = None,
        fetch_bytes_left: Callable[[], int] = lambda: BYTES_MAX,
        elsewhere: Elsewhere = at_once,
    ) -> None:
        self.config = config
        self.features = Features() if features is None else features
        self.cluster = cluster
        self.configs = TopicConfigs(config)
        self.group_configs = GroupConfigs(config)
        self.catalog = Catalog(store, clock, config.get_str("broker.rack"))
        self.dynamic_configs = DynamicConfigs(self.catalog, config, cluster.node_id)
        self.features.attach(self.catalog)
        self.quotas = ClientQuotas(self.catalog, config, clock)
        rename_strays(store, self.catalog)
        refuse_missing(store, self.catalog)
        self.fetches: Fetches = Purgatory(
            call_later, purge_interval=config.get_int("fetch.purgatory.purge.interval.requests")
        )
        self.partitions = Partitions(store, self.catalog, self.configs, self.fetches, call_later)
        self.creation = TopicCreation(self.catalog, self.configs, cluster)
        self.creation.check_internal()
        self.producer_ids = ProducerIds(self.catalog)
        self.log_maintenance = LogMaintenance(store, self.partitions, config, clock, call_later)
        hosts: CoordinatorDirectory = NoCoordinators() if coordinators is None else coordinators
        coordinator = LocalVerification(hosts) if verification is None else verification
        self.verification: Verification = OptionalVerification(coordinator, config)
        self.markers: Markers = LocalMarkers(self.partitions, clock, hosts)
        self.handlers: dict[ApiKey, Handler] = {}
        self._fetch_bytes_left = fetch_bytes_left
        self._large_batches = LargeBatches(elsewhere)
        self._serve_data(clock, call_later)
        self._serve_topics(call_later)
        self._serve_cluster(hosts)
        self._serve_admin(store, clock, call_later)
        self._serve_absent()

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register the handler of an API, for all versions that `served_versions` names."""
        self.handlers[api_key] = handler

    def _serve_data(self, clock: Clock, call_later: CallLater) -> None:
        catalog, partitions = self.catalog, self.partitions
        self.verifier = TransactionVerifier(self.verification, self.config, clock, call_later)
        self.produce = Produce(catalog, partitions, clock, call_later, self.verifier, self._large_batches)
        self.serve(ApiKey.PRODUCE, self.produce.produce)
        self.fetch = Fetch(
            catalog, partitions, self.cluster, self.config, clock, self.fetches, self._fetch_bytes_left, self.quotas
        )
        self.serve(ApiKey.FETCH, self.fetch.fetch)
        self.serve(ApiKey.LIST_OFFSETS, ListOffsets(partitions).list_offsets)
        self.serve(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpoch(partitions).offset_for_leader_epoch)
        self.serve(ApiKey.DELETE_RECORDS, DeleteRecords(partitions, call_later).delete_records)
        self.serve(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkers(self.markers, call_later).write_txn_markers)
        self.serve(ApiKey.DESCRIBE_PRODUCERS, DescribeProducers(catalog, partitions).describe_producers)

    def _serve_topics(self, call_later: CallLater) -> None:
        catalog, configs, creation = self.catalog, self.configs, self.creation
        create = CreateTopics(catalog, creation, configs, self.cluster, call_later, self.quotas)
        self.serve(ApiKey.CREATE_TOPICS, GradualHandler(create.create_topics))
        delete = DeleteTopics(catalog, self.config, call_later, self.quotas)
        self.serve(ApiKey.DELETE_TOPICS, GradualHandler(delete.delete_topics))
        grow = CreatePartitions(catalog, creation, call_later, self.quotas)
        self.serve(ApiKey.CREATE_PARTITIONS, GradualHandler(grow.create_partitions))
        describe = DescribeConfigs(catalog, configs, self.group_configs, self.cluster)
        alter = AlterConfigs(catalog, configs, self.group_configs, self.dynamic_configs, self.cluster, call_later)
        listing = ListConfigResources(catalog, self.cluster)
        self.serve(ApiKey.DESCRIBE_CONFIGS, GradualHandler(describe.describe_configs))
        self.serve(ApiKey.LIST_CONFIG_RESOURCES, listing.list_config_resources)
        self.serve(ApiKey.ALTER_CONFIGS, GradualHandler(alter.alter_configs))
        self.serve(ApiKey.INCREMENTAL_ALTER_CONFIGS, GradualHandler(alter.incremental_alter_configs))

    def _serve_cluster(self, coordinators: CoordinatorDirectory) -> None:
        catalog, partitions, cluster, config = self.catalog, self.partitions, self.cluster, self.config
        metadata = Metadata(catalog, partitions, cluster, self.creation, config)
        describe = DescribeTopicPartitions(catalog, partitions, cluster, config)
        find = FindCoordinator(catalog, partitions, self.creation, cluster, coordinators)
        self.serve(ApiKey.METADATA, GradualHandler(metadata.metadata))
        self.serve(ApiKey.DESCRIBE_TOPIC_PARTITIONS, GradualHandler(describe.describe_topic_partitions))
        self.serve(ApiKey.DESCRIBE_CLUSTER, cluster.describe_cluster)
        self.serve(ApiKey.FIND_COORDINATOR, find.find_coordinator)
        self.serve(ApiKey.API_VERSIONS, ApiVersions(self.handlers, self.features, catalog).api_versions)

    def _serve_admin(self, store: LogStore, clock: Clock, call_later: CallLater) -> None:
        catalog, cluster = self.catalog, self.cluster
        dirs = LogDirs(catalog, self.partitions, store.data_dir)
        self.serve(ApiKey.DESCRIBE_LOG_DIRS, GradualHandler(dirs.describe_log_dirs))
        self.serve(ApiKey.ALTER_REPLICA_LOG_DIRS, GradualHandler(dirs.alter_replica_log_dirs))
        reassignments = Reassignments(catalog, cluster)
        self.serve(ApiKey.ALTER_PARTITION_REASSIGNMENTS, GradualHandler(reassignments.alter_partition_reassignments))
        self.serve(ApiKey.LIST_PARTITION_REASSIGNMENTS, reassignments.list_partition_reassignments)
        self.serve(ApiKey.ELECT_LEADERS, GradualHandler(Elections(catalog).elect_leaders))
        quorum = Quorum(catalog, cluster, clock)
        self.serve(ApiKey.DESCRIBE_QUORUM, GradualHandler(quorum.describe_quorum))
        self.serve(ApiKey.UNREGISTER_BROKER, quorum.unregister_broker)
        update = UpdateFeatures(catalog, self.features, cluster, call_later)
        self.serve(ApiKey.UPDATE_FEATURES, update.update_features)
        scram = ScramCredentials(catalog, call_later)
        self.serve(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, GradualHandler(scram.describe_user_scram_credentials))
        self.serve(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, GradualHandler(scram.alter_user_scram_credentials))
        quotas = ClientQuotaApis(catalog, call_later)
        self.serve(ApiKey.DESCRIBE_CLIENT_QUOTAS, GradualHandler(quotas.describe_client_quotas))
        self.serve(ApiKey.ALTER_CLIENT_QUOTAS, GradualHandler(quotas.alter_client_quotas))
        self.serve(ApiKey.DESCRIBE_ACLS, describe_acls)
        self.serve(ApiKey.CREATE_ACLS, GradualHandler(create_acls))
        self.serve(ApiKey.DELETE_ACLS, GradualHandler(delete_acls))

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
