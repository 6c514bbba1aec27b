"""
Composition of the brokers of one process: the parts that they share, and the handlers of each.

`Broker` has topics, partitions, transactions and configurations. `BrokerApis.handlers` is the registry of one broker's handlers
by API. The server adds those of the coordinators, and ApiVersions lists them all. What the handlers need to know of their
broker comes in with two views: the cluster seen from it, and the partitions that it leads or has replicas of. State that
belongs to one broker is in its handlers: its fetch sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.broker.acls.acl_apis import AclApis
from kohort.broker.acls.authorizer import AclAuthorizer, authorizer_of
from kohort.broker.admin.absent_apis import WHILE_ENABLED, StepwiseWhileEnabled, WhileEnabled, absent_handlers
from kohort.broker.admin.client_quotas import ClientQuotaApis
from kohort.broker.admin.log_dirs import LogDirs
from kohort.broker.admin.quorum import Quorum
from kohort.broker.admin.reassignments import Reassignments
from kohort.broker.admin.scram_credentials import ScramCredentials
from kohort.broker.api_table import served_versions
from kohort.broker.api_versions import ApiVersions
from kohort.broker.catalog import Catalog
from kohort.broker.changes import Changes
from kohort.broker.cluster import Cluster
from kohort.broker.configs.alter_configs import AlterConfigs
from kohort.broker.configs.broker_changes import check_start
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.describe_configs import DescribeConfigs
from kohort.broker.configs.dynamic_configs import DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.features import SHARE_VERSION, Features, UpdateFeatures
from kohort.broker.find_coordinator import FindCoordinator
from kohort.broker.log_maintenance import LogMaintenance
from kohort.broker.partitions import Fetches, LocalPartitions, Partitions
from kohort.broker.ports import CallLater, CoordinatorDirectory, Elsewhere, Handler, NoCoordinators, at_once
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.delete_records import DeleteRecords
from kohort.broker.records.fetch import BYTES_MAX, Fetch
from kohort.broker.records.fetch_broker import FetchBroker, Permit
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.large_batches import LargeBatches
from kohort.broker.records.list_offsets import ListOffsets
from kohort.broker.records.log_reads import LogReads
from kohort.broker.records.offset_for_leader_epoch import OffsetForLeaderEpoch
from kohort.broker.records.produce import Produce
from kohort.broker.records.produce_verification import TransactionVerifier
from kohort.broker.replication import ReplicationControl
from kohort.broker.shares.dead_letters import PRODUCE_VERSION, DeadLetterWriter
from kohort.broker.shares.led_share_partition import LeaderServices
from kohort.broker.shares.persister import LocalPersister
from kohort.broker.shares.share_acknowledge import ShareAcknowledge
from kohort.broker.shares.share_broker import ReadableTopics, ShareBroker
from kohort.broker.shares.share_fetch import ShareFetch
from kohort.broker.shares.share_settings import LeaderSettingsOfGroups
from kohort.broker.stored_values import set_aside_unusable
from kohort.broker.telemetry.telemetry import Telemetry
from kohort.broker.tokens.token_apis import TokenApis
from kohort.broker.tokens.tokens import Tokens
from kohort.broker.topics.creation import TopicCreation
from kohort.broker.topics.metadata import Metadata
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.strays import refuse_missing, rename_strays
from kohort.broker.topics.topic_changes import TopicChanges
from kohort.broker.transactions.describe_producers import DescribeProducers
from kohort.broker.transactions.markers import LocalMarkers
from kohort.broker.transactions.producer_ids import ProducerIds
from kohort.broker.transactions.verification import LocalVerification, OptionalVerification
from kohort.broker.transactions.write_txn_markers import WriteTxnMarkers
from kohort.machine.ports import Markers, Persister, Verification
from kohort.machine.shard import Reply
from kohort.model.fixed_context import FixedContext
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Purgatory
from kohort.security.authorization import Authorizer
from kohort.storage.log import LogStore
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class Broker:
    """
    The brokers of one process. Not thread-safe: call from the event-loop thread.

    Args:
        cluster: the brokers as clients see them; addresses may be set later, when the listeners are bound.
        coordinators: the coordinators of this node; they may be added until the first request.
        verification: the transaction coordinator, as partition leaders ask it. Default: the one among `coordinators`.
        config: its release is the one that the brokers are like.
        features: the finalised levels of features. Default: the newest ones of the release.
        fetch_bytes_left: how many bytes of records the next Fetch response may have. Default: as many as are asked for.
        elsewhere: runs long computations on another thread. Default: on this one.
        elsewhere_reads, elsewhere_searches: run reads of logs, and searches for times in them, on other threads. Default: on
            this one.
        authorizer: decides who may do what. Default: the one of the configuration, or none.

    Raises:
        ConfigError: the catalog in the store was written by a newer version, or a configuration cannot be used.
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
        elsewhere_reads: Elsewhere = at_once,
        elsewhere_searches: Elsewhere = at_once,
        authorizer: Authorizer | None = None,
    ) -> None:
        config.log_dir = store.location
        check_start(config)
        self.config = config
        self.features = Features(release=config.release) if features is None else features
        self.cluster = cluster
        self.catalog = Catalog(store, clock, cluster)
        set_aside_unusable(self.catalog, config)
        self.group_configs = GroupConfigs(config, self.catalog)
        self.dynamic_configs = DynamicConfigs(self.catalog, config, cluster)
        self.configs = self.dynamic_configs.of_topics[cluster.node_id]
        self.changes = Changes(self.catalog, call_later)
        self.tokens = Tokens(self.catalog, config, clock, call_later)
        self.features.attach(self.catalog)
        self.quotas = ClientQuotas(self.catalog, config, clock)
        self.authorizer = authorizer_of(config, self.catalog) if authorizer is None else authorizer
        """Decides who may do what; None if everyone may do everything."""
        rename_strays(store, self.catalog)
        refuse_missing(store, self.catalog)
        self.fetches: Fetches = Purgatory(
            call_later, purge_interval=config.get_int("fetch.purgatory.purge.interval.requests")
        )
        self.fetch_turns = FetchTurns(call_later)
        self.partitions = Partitions(
            store, self.catalog, self.dynamic_configs.of_topics, cluster, self.fetches, call_later
        )
        self.publication = Publication(clock)
        self.creation = TopicCreation(self.catalog, self.configs, cluster, self.publication)
        self.creation.check_internal()
        self.replication = ReplicationControl(self.catalog, self.configs, cluster)
        self.replication.heal()
        self.producer_ids = ProducerIds(self.catalog)
        self.log_maintenance = LogMaintenance(store, self.partitions, config, clock, call_later)
        hosts: CoordinatorDirectory = NoCoordinators() if coordinators is None else coordinators
        coordinator = LocalVerification(hosts) if verification is None else verification
        self.verification: Verification = OptionalVerification(coordinator, config)
        self.local_markers = LocalMarkers(self.partitions.find_led, clock, hosts)
        self.markers: Markers = self.local_markers
        self.persister: Persister = LocalPersister(hosts, self.catalog, self.creation, call_later)
        self.verifier = TransactionVerifier(self.verification, config, clock, call_later)
        self.hold_rebalance: Callable[[str], bool] | None = None
        """Asked with a group id before a rebalance is completed: whether it has to wait. For tests of clients."""
        self.store = store
        self.clock = clock
        self.call_later = call_later
        self.coordinators = hosts
        self.fetch_bytes_left = fetch_bytes_left
        self.large_batches = LargeBatches(elsewhere)
        self.log_reads = LogReads(elsewhere_reads)
        self.searches = LogReads(elsewhere_searches)
        self.telemetry = Telemetry(self.catalog, config, clock)
        self.guard: Callable[[ApiKey, Handler], Handler] | None = None
        """Puts the handler of an API behind the checks of its permissions; None if everybody may do everything."""
        self.permit_fetch: Permit | None = None
        """The checks of Fetch; None if everybody may read everything."""
        self.readable: ReadableTopics | None = None
        """The same of ShareFetch and ShareAcknowledge."""
        if self.authorizer is not None:
            from kohort.broker.access.fetched import FetchPermits, ShareFetchPermits
            from kohort.broker.access.guard import guarded
            from kohort.broker.access.requester import Resources

            resources = Resources(self.catalog, config)
            self.guard = partial(guarded, self.authorizer, resources)
            self.permit_fetch = FetchPermits(self.authorizer, resources)
            self.readable = ShareFetchPermits(self.authorizer, resources)
        self.dead_letters = DeadLetterWriter(
            self.catalog,
            self.creation,
            self.configs,
            config,
            self.partitions,
            self.log_reads,
            clock,
            call_later,
            self._produce,
        )
        self.share_services = LeaderServices(
            self.persister,
            LeaderSettingsOfGroups(self.group_configs, partial(self.features.level, SHARE_VERSION)),
            clock,
            call_later,
            self.searches,
            self.fetches.check_and_complete,
            self.dead_letters,
        )
        """The services that leaders of share partitions use."""
        self.versions = served_versions(config.release)
        """The oldest and the newest version of each API that the brokers serve."""
        self.apis = {node_id: BrokerApis(self, cluster.seen_from(node_id)) for node_id in cluster.nodes}
        """The handlers of each broker, by its id."""

    @property
    def handlers(self) -> dict[ApiKey, Handler]:
        """The handlers of the first broker."""
        return self.apis[self.cluster.node_id].handlers

    def _produce(self, node_id: int, request: m.ProduceRequest, reply: Reply[m.ProduceResponse], /) -> None:
        """Have a broker append records without the rights of any user."""
        response = self.apis[node_id].produce.produce(request, FixedContext(PRODUCE_VERSION), reply)
        if isinstance(response, m.ProduceResponse):
            reply(response)

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register a handler at the first broker."""
        self.apis[self.cluster.node_id].serve(api_key, handler)


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
        self.versions = shared.versions
        self.handlers: dict[ApiKey, Handler] = {}
        self.open_handlers: dict[ApiKey, Handler] = {}
        """The same without the checks of permissions, for the process itself."""
        self._guard = shared.guard
        self._share_level = partial(shared.features.level, SHARE_VERSION)
        self._absent = dict(absent_handlers())
        for api_key, handler in self._absent.items():
            self.serve(api_key, handler)
        self._serve_data(shared)
        self._serve_shares(shared)
        self._serve_topics(shared)
        self._serve_cluster(shared)
        self._serve_admin(shared)

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register the handler of an API for the versions of the release, behind its checks, unless the release lacks it."""
        if api_key in self.versions:
            self.open_handlers[api_key] = handler
            guarded = handler if self._guard is None else self._guard(api_key, handler)
            if api_key in WHILE_ENABLED:
                kind = StepwiseWhileEnabled if hasattr(guarded, "in_steps") else WhileEnabled
                guarded = kind(self._share_level, guarded, self._absent[api_key])
            self.handlers[api_key] = guarded

    def on_stopped(self) -> None:
        """Forget what a broker does not know after a restart: sessions, and what share groups have in flight."""
        self.fetch.sessions.clear()
        self.shares.clear()

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
            shared.permit_fetch,
        )
        self.fetch_broker = fetch_broker
        self.fetch = Fetch(fetch_broker)
        self.serve(ApiKey.FETCH, self.fetch.fetch)
        self.serve(ApiKey.LIST_OFFSETS, ListOffsets(local, shared.searches).list_offsets)
        self.serve(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpoch(local).offset_for_leader_epoch)
        self.serve(ApiKey.DELETE_RECORDS, DeleteRecords(local, call_later).delete_records)
        markers = LocalMarkers(local.find, clock, shared.coordinators)
        self.serve(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkers(markers, call_later).write_txn_markers)
        self.serve(ApiKey.DESCRIBE_PRODUCERS, DescribeProducers(catalog, local).describe_producers)

    def _serve_shares(self, shared: Broker) -> None:
        self.shares = ShareBroker(
            shared.catalog,
            self.partitions,
            shared.partitions,
            self.cluster,
            shared.config,
            shared.share_services,
            self.fetch_broker,
            self._share_level,
            shared.readable,
        )
        self.serve(ApiKey.SHARE_FETCH, ShareFetch(self.shares).share_fetch)
        self.serve(ApiKey.SHARE_ACKNOWLEDGE, ShareAcknowledge(self.shares).share_acknowledge)

    def _serve_topics(self, shared: Broker) -> None:
        catalog, configs, changes = shared.catalog, shared.configs, shared.changes
        topics = TopicChanges(catalog, shared.creation, configs, shared.config, changes, shared.quotas)
        self.serve(ApiKey.CREATE_TOPICS, topics.create_topics)
        self.serve(ApiKey.DELETE_TOPICS, topics.delete_topics)
        self.serve(ApiKey.CREATE_PARTITIONS, topics.create_partitions)
        seen = shared.dynamic_configs.of_topics[self.cluster.node_id]
        describe = DescribeConfigs(catalog, seen, shared.group_configs, shared.dynamic_configs, self.cluster)
        alter = AlterConfigs(catalog, configs, shared.group_configs, shared.dynamic_configs, self.cluster, changes)
        self.serve(ApiKey.DESCRIBE_CONFIGS, describe.describe_configs)
        self.serve(ApiKey.LIST_CONFIG_RESOURCES, describe.list_config_resources)
        self.serve(ApiKey.ALTER_CONFIGS, alter.alter_configs)
        self.serve(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter.incremental_alter_configs)

    def _serve_cluster(self, shared: Broker) -> None:
        catalog, partitions, cluster, config = shared.catalog, shared.partitions, self.cluster, shared.config
        metadata = Metadata(catalog, partitions, cluster, shared.creation, shared.publication, config)
        find = FindCoordinator(catalog, partitions, shared.creation, cluster, shared.coordinators)
        self.serve(ApiKey.METADATA, metadata.metadata)
        self.serve(ApiKey.DESCRIBE_TOPIC_PARTITIONS, metadata.describe_topic_partitions)
        self.serve(ApiKey.DESCRIBE_CLUSTER, cluster.describe_cluster)
        self.serve(ApiKey.FIND_COORDINATOR, find.find_coordinator)
        api_versions = ApiVersions(self.handlers, shared.versions, shared.features, catalog, cluster)
        self.serve(ApiKey.API_VERSIONS, api_versions.api_versions)

    def _serve_admin(self, shared: Broker) -> None:
        catalog, cluster, clock = shared.catalog, self.cluster, shared.clock
        dirs = LogDirs(catalog, self.partitions, cluster, shared.store)
        self.serve(ApiKey.DESCRIBE_LOG_DIRS, dirs.describe_log_dirs)
        self.serve(ApiKey.ALTER_REPLICA_LOG_DIRS, dirs.alter_replica_log_dirs)
        reassignments = Reassignments(catalog, cluster, shared.replication, shared.changes)
        self.serve(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassignments.alter_partition_reassignments)
        self.serve(ApiKey.LIST_PARTITION_REASSIGNMENTS, reassignments.list_partition_reassignments)
        self.serve(ApiKey.ELECT_LEADERS, reassignments.elect_leaders)
        quorum = Quorum(catalog, cluster, clock)
        self.serve(ApiKey.DESCRIBE_QUORUM, quorum.describe_quorum)
        self.serve(ApiKey.UNREGISTER_BROKER, quorum.unregister_broker)
        self.serve(ApiKey.UNREGISTER_CONTROLLER, quorum.unregister_controller)
        self.serve(ApiKey.ADD_RAFT_VOTER, quorum.add_raft_voter)
        self.serve(ApiKey.REMOVE_RAFT_VOTER, quorum.remove_raft_voter)
        telemetry = shared.telemetry
        self.serve(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.get_telemetry_subscriptions)
        self.serve(ApiKey.PUSH_TELEMETRY, telemetry.push_telemetry)
        tokens = TokenApis(shared.tokens, shared.changes, shared.config, clock, authorizer=shared.authorizer)
        self.serve(ApiKey.CREATE_DELEGATION_TOKEN, tokens.create_delegation_token)
        self.serve(ApiKey.RENEW_DELEGATION_TOKEN, tokens.renew_delegation_token)
        self.serve(ApiKey.EXPIRE_DELEGATION_TOKEN, tokens.expire_delegation_token)
        self.serve(ApiKey.DESCRIBE_DELEGATION_TOKEN, tokens.describe_delegation_token)
        update = UpdateFeatures(catalog, shared.features, cluster, shared.changes)
        self.serve(ApiKey.UPDATE_FEATURES, update.update_features)
        scram = ScramCredentials(catalog, shared.changes)
        self.serve(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, scram.describe_user_scram_credentials)
        self.serve(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, scram.alter_user_scram_credentials)
        quotas = ClientQuotaApis(catalog, shared.changes)
        self.serve(ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas.describe_client_quotas)
        self.serve(ApiKey.ALTER_CLIENT_QUOTAS, quotas.alter_client_quotas)
        authorizer = shared.authorizer
        acls = AclApis(authorizer.acls if isinstance(authorizer, AclAuthorizer) else None, shared.changes)
        self.serve(ApiKey.DESCRIBE_ACLS, acls.describe_acls)
        self.serve(ApiKey.CREATE_ACLS, acls.create_acls)
        self.serve(ApiKey.DELETE_ACLS, acls.delete_acls)
