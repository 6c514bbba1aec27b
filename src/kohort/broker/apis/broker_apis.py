"""
The APIs of one broker. The first request of an API makes its handler, and imports the module of the handler.

A start does without most of the rooms: users start a broker in every test, and most tests need few APIs. `APIS` has one row an
API. The object that a row names is a `cached_property`, which imports its module; the import takes 0.3 to 4 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from kohort.broker.admin.absent_apis import WHILE_ENABLED, StepwiseWhileEnabled, WhileEnabled, absent_handlers
from kohort.broker.apis.api_versions import ApiVersions
from kohort.broker.cluster import Cluster
from kohort.broker.features import SHARE_VERSION
from kohort.broker.partitions.partitions import LocalPartitions
from kohort.broker.ports import Handler
from kohort.broker.shared_parts import SharedParts
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.broker.acls.acl_apis import AclApis
    from kohort.broker.admin.client_quotas import ClientQuotaApis
    from kohort.broker.admin.log_dirs import LogDirs
    from kohort.broker.admin.quorum import Quorum
    from kohort.broker.admin.reassignments import Reassignments
    from kohort.broker.admin.scram_credentials import ScramCredentials
    from kohort.broker.apis.find_coordinator import FindCoordinator
    from kohort.broker.configs.alter_configs import AlterConfigs
    from kohort.broker.configs.describe_configs import DescribeConfigs
    from kohort.broker.features import UpdateFeatures
    from kohort.broker.records.delete_records import DeleteRecords
    from kohort.broker.records.fetch import Fetch
    from kohort.broker.records.fetch_broker import FetchBroker
    from kohort.broker.records.list_offsets import ListOffsets
    from kohort.broker.records.offset_for_leader_epoch import OffsetForLeaderEpoch
    from kohort.broker.records.produce import Produce
    from kohort.broker.shares.share_acknowledge import ShareAcknowledge
    from kohort.broker.shares.share_broker import ShareBroker
    from kohort.broker.shares.share_fetch import ShareFetch
    from kohort.broker.tokens.token_apis import TokenApis
    from kohort.broker.topics.metadata import Metadata
    from kohort.broker.topics.topic_changes import TopicChanges
    from kohort.broker.transactions.describe_producers import DescribeProducers
    from kohort.broker.transactions.write_txn_markers import WriteTxnMarkers


class Handlers(Mapping[ApiKey, Handler]):
    """Handlers by API; each is made when it is asked for the first time."""

    def __init__(self) -> None:
        self._makers: dict[ApiKey, Callable[[], Handler]] = {}
        self._made: dict[ApiKey, Handler] = {}

    def put(self, api: ApiKey, make: Callable[[], Handler]) -> None:
        """Add an API, or replace its handler."""
        self._makers[api] = make
        self._made.pop(api, None)

    def __getitem__(self, api: ApiKey) -> Handler:
        handler = self._made.get(api)
        if handler is None:
            handler = self._made[api] = self._makers[api]()
        return handler

    def __contains__(self, api: object) -> bool:
        """Whether there is the API; its handler is not made."""
        return api in self._makers

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class BrokerApis:
    """
    The APIs of one broker.

    Args:
        shared: what it has in common with the other brokers of the process.
        cluster: seen from this broker.

    Attributes:
        handlers: by API, those of the release.
        open_handlers: the same without the checks of permissions, for the process itself.
    """

    def __init__(self, shared: SharedParts, cluster: Cluster) -> None:
        self.shared = shared
        self.cluster = cluster
        self.partitions = LocalPartitions(shared.partitions, cluster.node_id)
        self.versions = shared.versions
        self.handlers = Handlers()
        self.open_handlers = Handlers()
        self._guard = shared.guard
        self._share_level = partial(shared.features.level, SHARE_VERSION)
        self._absent = dict(absent_handlers())
        for api_key, handler in self._absent.items():
            self.serve(api_key, handler)
        for api_key, of in APIS.items():
            self.serve_later(api_key, partial(of, self))

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register the handler of an API for the versions of the release, behind its checks, unless the release lacks it."""
        self.serve_later(api_key, lambda: handler)

    def serve_later(self, api_key: ApiKey, make: Callable[[], Handler]) -> None:
        """As `serve`, with a function that makes the handler for the first request."""
        if api_key in self.versions:
            self.open_handlers.put(api_key, make)
            self.handlers.put(api_key, partial(self._guarded, api_key))

    def _guarded(self, api_key: ApiKey) -> Handler:
        handler = self.open_handlers[api_key]
        guarded = handler if self._guard is None else self._guard(api_key, handler)
        if api_key in WHILE_ENABLED:
            kind = StepwiseWhileEnabled if hasattr(guarded, "in_steps") else WhileEnabled
            guarded = kind(self._share_level, guarded, self._absent[api_key])
        return guarded

    def on_stopped(self) -> None:
        """Forget what a broker does not know after a restart: sessions, and what share groups have in flight."""
        self.fetch.sessions.clear()
        self.shares.clear()

    @cached_property
    def produce(self) -> Produce:
        from kohort.broker.records.produce import Produce

        shared = self.shared
        return Produce(
            shared.catalog,
            self.partitions,
            shared.partitions,
            self.cluster,
            shared.clock,
            shared.call_later,
            shared.verifier,
            shared.large_batches,
        )

    @cached_property
    def fetch_broker(self) -> FetchBroker:
        from kohort.broker.records.fetch_broker import FetchBroker

        shared = self.shared
        return FetchBroker(
            shared.catalog,
            self.partitions,
            shared.partitions,
            self.cluster,
            shared.config,
            shared.clock,
            shared.fetches,
            shared.fetch_bytes_left,
            shared.quotas,
            shared.fetch_turns,
            shared.log_reads,
            shared.permit_fetch,
        )

    @cached_property
    def fetch(self) -> Fetch:
        from kohort.broker.records.fetch import Fetch

        return Fetch(self.fetch_broker)

    @cached_property
    def list_offsets(self) -> ListOffsets:
        from kohort.broker.records.list_offsets import ListOffsets

        return ListOffsets(self.partitions, self.shared.searches)

    @cached_property
    def offset_for_leader_epoch(self) -> OffsetForLeaderEpoch:
        from kohort.broker.records.offset_for_leader_epoch import OffsetForLeaderEpoch

        return OffsetForLeaderEpoch(self.partitions)

    @cached_property
    def delete_records(self) -> DeleteRecords:
        from kohort.broker.records.delete_records import DeleteRecords

        return DeleteRecords(self.partitions, self.shared.call_later)

    @cached_property
    def write_txn_markers(self) -> WriteTxnMarkers:
        from kohort.broker.transactions.markers import LocalMarkers
        from kohort.broker.transactions.write_txn_markers import WriteTxnMarkers

        shared = self.shared
        return WriteTxnMarkers(LocalMarkers(self.partitions.find, shared.clock, shared.coordinators), shared.call_later)

    @cached_property
    def describe_producers(self) -> DescribeProducers:
        from kohort.broker.transactions.describe_producers import DescribeProducers

        return DescribeProducers(self.shared.catalog, self.partitions)

    @cached_property
    def shares(self) -> ShareBroker:
        from kohort.broker.shares.share_broker import ShareBroker

        shared = self.shared
        return ShareBroker(
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

    @cached_property
    def share_fetch(self) -> ShareFetch:
        from kohort.broker.shares.share_fetch import ShareFetch

        return ShareFetch(self.shares)

    @cached_property
    def share_acknowledge(self) -> ShareAcknowledge:
        from kohort.broker.shares.share_acknowledge import ShareAcknowledge

        return ShareAcknowledge(self.shares)

    @cached_property
    def topics(self) -> TopicChanges:
        from kohort.broker.topics.topic_changes import TopicChanges

        shared = self.shared
        return TopicChanges(
            shared.catalog, shared.creation, shared.configs, shared.config, shared.changes, shared.quotas
        )

    @cached_property
    def describe_configs(self) -> DescribeConfigs:
        from kohort.broker.configs.describe_configs import DescribeConfigs

        shared = self.shared
        return DescribeConfigs(
            shared.catalog,
            shared.dynamic_configs.of_topics[self.cluster.node_id],
            shared.group_configs,
            shared.dynamic_configs,
            self.cluster,
        )

    @cached_property
    def alter_configs(self) -> AlterConfigs:
        from kohort.broker.configs.alter_configs import AlterConfigs

        shared = self.shared
        return AlterConfigs(
            shared.catalog, shared.configs, shared.group_configs, shared.dynamic_configs, self.cluster, shared.changes
        )

    @cached_property
    def metadata(self) -> Metadata:
        from kohort.broker.topics.metadata import Metadata

        shared = self.shared
        return Metadata(
            shared.catalog, shared.partitions, self.cluster, shared.creation, shared.publication, shared.config
        )

    @cached_property
    def find_coordinator(self) -> FindCoordinator:
        from kohort.broker.apis.find_coordinator import FindCoordinator

        shared = self.shared
        return FindCoordinator(shared.catalog, shared.partitions, shared.creation, self.cluster, shared.coordinators)

    @cached_property
    def api_versions(self) -> ApiVersions:
        shared = self.shared
        return ApiVersions(self.handlers, shared.versions, shared.features, shared.catalog, self.cluster)

    @cached_property
    def log_dirs(self) -> LogDirs:
        from kohort.broker.admin.log_dirs import LogDirs

        shared = self.shared
        return LogDirs(shared.catalog, self.partitions, self.cluster, shared.store)

    @cached_property
    def reassignments(self) -> Reassignments:
        from kohort.broker.admin.reassignments import Reassignments

        shared = self.shared
        return Reassignments(shared.catalog, self.cluster, shared.replication, shared.changes)

    @cached_property
    def quorum(self) -> Quorum:
        from kohort.broker.admin.quorum import Quorum

        return Quorum(self.shared.catalog, self.cluster, self.shared.clock)

    @cached_property
    def tokens(self) -> TokenApis:
        from kohort.broker.tokens.token_apis import TokenApis

        shared = self.shared
        return TokenApis(shared.tokens, shared.changes, shared.config, shared.clock, authorizer=shared.authorizer)

    @cached_property
    def update_features(self) -> UpdateFeatures:
        from kohort.broker.features import UpdateFeatures

        shared = self.shared
        return UpdateFeatures(shared.catalog, shared.features, self.cluster, shared.changes)

    @cached_property
    def scram_credentials(self) -> ScramCredentials:
        from kohort.broker.admin.scram_credentials import ScramCredentials

        return ScramCredentials(self.shared.catalog, self.shared.changes)

    @cached_property
    def client_quotas(self) -> ClientQuotaApis:
        from kohort.broker.admin.client_quotas import ClientQuotaApis

        return ClientQuotaApis(self.shared.catalog, self.shared.changes)

    @cached_property
    def acls(self) -> AclApis:
        from kohort.broker.acls.acl_apis import AclApis
        from kohort.broker.acls.authorizer import AclAuthorizer

        authorizer = self.shared.authorizer
        return AclApis(authorizer.acls if isinstance(authorizer, AclAuthorizer) else None, self.shared.changes)


APIS: Final[Mapping[ApiKey, Callable[[BrokerApis], Handler]]] = {
    ApiKey.PRODUCE: lambda own: own.produce.produce,
    ApiKey.FETCH: lambda own: own.fetch.fetch,
    ApiKey.LIST_OFFSETS: lambda own: own.list_offsets.list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda own: own.offset_for_leader_epoch.offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: lambda own: own.delete_records.delete_records,
    ApiKey.WRITE_TXN_MARKERS: lambda own: own.write_txn_markers.write_txn_markers,
    ApiKey.DESCRIBE_PRODUCERS: lambda own: own.describe_producers.describe_producers,
    ApiKey.SHARE_FETCH: lambda own: own.share_fetch.share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: lambda own: own.share_acknowledge.share_acknowledge,
    ApiKey.CREATE_TOPICS: lambda own: own.topics.create_topics,
    ApiKey.DELETE_TOPICS: lambda own: own.topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: lambda own: own.topics.create_partitions,
    ApiKey.DESCRIBE_CONFIGS: lambda own: own.describe_configs.describe_configs,
    ApiKey.LIST_CONFIG_RESOURCES: lambda own: own.describe_configs.list_config_resources,
    ApiKey.ALTER_CONFIGS: lambda own: own.alter_configs.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda own: own.alter_configs.incremental_alter_configs,
    ApiKey.METADATA: lambda own: own.metadata.metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda own: own.metadata.describe_topic_partitions,
    ApiKey.DESCRIBE_CLUSTER: lambda own: own.cluster.describe_cluster,
    ApiKey.FIND_COORDINATOR: lambda own: own.find_coordinator.find_coordinator,
    ApiKey.API_VERSIONS: lambda own: own.api_versions.api_versions,
    ApiKey.DESCRIBE_LOG_DIRS: lambda own: own.log_dirs.describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda own: own.log_dirs.alter_replica_log_dirs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda own: own.reassignments.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda own: own.reassignments.list_partition_reassignments,
    ApiKey.ELECT_LEADERS: lambda own: own.reassignments.elect_leaders,
    ApiKey.DESCRIBE_QUORUM: lambda own: own.quorum.describe_quorum,
    ApiKey.UNREGISTER_BROKER: lambda own: own.quorum.unregister_broker,
    ApiKey.UNREGISTER_CONTROLLER: lambda own: own.quorum.unregister_controller,
    ApiKey.ADD_RAFT_VOTER: lambda own: own.quorum.add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: lambda own: own.quorum.remove_raft_voter,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: lambda own: own.shared.telemetry.get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: lambda own: own.shared.telemetry.push_telemetry,
    ApiKey.CREATE_DELEGATION_TOKEN: lambda own: own.tokens.create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda own: own.tokens.renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda own: own.tokens.expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda own: own.tokens.describe_delegation_token,
    ApiKey.UPDATE_FEATURES: lambda own: own.update_features.update_features,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda own: own.scram_credentials.describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda own: own.scram_credentials.alter_user_scram_credentials,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda own: own.client_quotas.describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: lambda own: own.client_quotas.alter_client_quotas,
    ApiKey.DESCRIBE_ACLS: lambda own: own.acls.describe_acls,
    ApiKey.CREATE_ACLS: lambda own: own.acls.create_acls,
    ApiKey.DELETE_ACLS: lambda own: own.acls.delete_acls,
}
"""The handler of each API that brokers answer themselves; those of the coordinators are added."""
