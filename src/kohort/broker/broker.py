"""
Composition of the parts that all brokers of a process share: topics, partitions, transactions and configurations.

The handlers of the APIs are in `kohort.broker.apis`, one set for each broker.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.apis import BrokerApis
from kohort.broker.catalog import Catalog
from kohort.broker.cluster import Cluster
from kohort.broker.configs.broker_changes import check_start
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.dynamic_configs import DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.features import Features
from kohort.broker.log_maintenance import LogMaintenance
from kohort.broker.partitions import Fetches, Partitions
from kohort.broker.ports import CallLater, CoordinatorDirectory, Elsewhere, Handler, NoCoordinators, at_once
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.fetch import BYTES_MAX
from kohort.broker.records.fetch_turns import FetchTurns
from kohort.broker.records.large_batches import LargeBatches
from kohort.broker.records.log_reads import LogReads
from kohort.broker.records.produce_verification import TransactionVerifier
from kohort.broker.replication import ReplicationControl
from kohort.broker.stored_values import set_aside_unusable
from kohort.broker.telemetry.telemetry import Telemetry
from kohort.broker.topics.creation import TopicCreation
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.strays import refuse_missing, rename_strays
from kohort.broker.transactions.markers import LocalMarkers
from kohort.broker.transactions.optional_verification import OptionalVerification
from kohort.broker.transactions.producer_ids import ProducerIds
from kohort.broker.transactions.verification import LocalVerification
from kohort.machine.ports import Markers, Verification
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Purgatory
from kohort.storage.log import LogStore
from kohort.wire.apis import ApiKey


class Broker:
    """
    The brokers of one process. Not thread-safe: call from the event-loop thread.

    Args:
        cluster: the brokers as clients see them; addresses may be set later, when the listeners are bound.
        coordinators: the coordinators of this node; they may be added until the first request.
        verification: the transaction coordinator, as partition leaders ask it. Default: the one among `coordinators`.
        features: the finalised levels of features. Default: the newest ones.
        fetch_bytes_left: how many bytes of records the next Fetch response may have. Default: as many as are asked for.
        elsewhere: runs long computations on another thread. Default: on this one.
        elsewhere_reads, elsewhere_searches: run reads of logs, and searches for times in them, on other threads. Default: on
            this one.

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
        elsewhere_reads: Elsewhere = at_once,
        elsewhere_searches: Elsewhere = at_once,
    ) -> None:
        check_start(config)
        self.config = config
        self.features = Features() if features is None else features
        self.cluster = cluster
        self.group_configs = GroupConfigs(config)
        self.catalog = Catalog(store, clock, cluster)
        set_aside_unusable(self.catalog, config)
        self.dynamic_configs = DynamicConfigs(self.catalog, config, cluster.nodes)
        self.configs = self.dynamic_configs.of_topics[cluster.node_id]
        self.features.attach(self.catalog)
        self.quotas = ClientQuotas(self.catalog, config, clock)
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
        self.markers: Markers = LocalMarkers(self.partitions.find_led, clock, hosts)
        self.verifier = TransactionVerifier(self.verification, config, clock, call_later)
        self.store = store
        self.clock = clock
        self.call_later = call_later
        self.coordinators = hosts
        self.fetch_bytes_left = fetch_bytes_left
        self.large_batches = LargeBatches(elsewhere)
        self.log_reads = LogReads(elsewhere_reads)
        self.searches = LogReads(elsewhere_searches)
        self.telemetry = Telemetry(self.catalog, config, clock)
        self.apis = {node_id: BrokerApis(self, cluster.seen_from(node_id)) for node_id in cluster.nodes}
        """The handlers of each broker, by its id."""

    @property
    def handlers(self) -> dict[ApiKey, Handler]:
        """The handlers of the first broker."""
        return self.apis[self.cluster.node_id].handlers

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register a handler at the first broker."""
        self.apis[self.cluster.node_id].serve(api_key, handler)
