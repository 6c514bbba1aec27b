"""
What the brokers of one process share: catalog, configurations, topics, partitions, transactions, and services over them.

A start does without some of it: that is a `cached_property`, which imports its module. `broker/apis/broker_apis.py` tells why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from kohort.broker.apis.api_table import served_versions
from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.changes import Changes
from kohort.broker.cluster import Cluster
from kohort.broker.configs.broker_changes import check_start
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.dynamic_configs import DynamicConfigs
from kohort.broker.configs.group_configs import GroupConfigs
from kohort.broker.features import SHARE_VERSION, Features
from kohort.broker.partitions.maintenance import LogMaintenance
from kohort.broker.partitions.partitions import Fetches, Partitions
from kohort.broker.partitions.replication import ReplicationControl
from kohort.broker.ports import CallLater, CoordinatorDirectory, Elsewhere, Handler, NoCoordinators, at_once
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.broker.records.log_reads import LogReads
from kohort.broker.topics.creation import TopicCreation
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.strays import refuse_missing, rename_strays
from kohort.broker.transactions.markers import LocalMarkers
from kohort.broker.transactions.producer_ids import ProducerIds
from kohort.broker.transactions.verification import LocalVerification, OptionalVerification
from kohort.machine.ports import LatestOffsets, Markers, Persister, Verification
from kohort.machine.shard import Reply
from kohort.runtime.ports import Clock
from kohort.runtime.purgatory import Purgatory
from kohort.security.authorization import Authorizer
from kohort.storage.log import LogStore
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.broker.records.fetch_broker import Permit
    from kohort.broker.records.fetch_turns import FetchTurns
    from kohort.broker.records.large_batches import LargeBatches
    from kohort.broker.records.produce_verification import TransactionVerifier
    from kohort.broker.shares.dead_letters import DeadLetterWriter, Producing
    from kohort.broker.shares.led_share_partition import LeaderServices
    from kohort.broker.shares.share_broker import ReadableTopics
    from kohort.broker.telemetry.telemetry import Telemetry
    from kohort.broker.tokens.tokens import Tokens

FETCH_BYTES_MAX: Final = (1 << 31) - 1


class SharedParts(ABC):
    """
    What the brokers of one process share. Not thread-safe: call from the event-loop thread.

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
        fetch_bytes_left: Callable[[], int] = lambda: FETCH_BYTES_MAX,
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
        self.catalog = Catalog(None if cluster.is_shared else store, clock, cluster)
        if not self.catalog.is_new:
            from kohort.broker.catalog.stored_values import set_aside_unusable  # with the checks of every kind of value

            set_aside_unusable(self.catalog, config)
        self.group_configs = GroupConfigs(config, self.catalog)
        self.dynamic_configs = DynamicConfigs(self.catalog, config, cluster)
        self.configs = self.dynamic_configs.of_topics[cluster.node_id]
        self.changes = Changes(self.catalog, call_later)
        self.features.attach(self.catalog)
        self.quotas = ClientQuotas(self.catalog, config, clock)
        self.authorizer = self._configured_authorizer() if authorizer is None else authorizer
        """Decides who may do what; None if everyone may do everything."""
        rename_strays(store, self.catalog)
        refuse_missing(store, self.catalog)
        self.fetches: Fetches = Purgatory(
            call_later, purge_interval=config.get_int("fetch.purgatory.purge.interval.requests")
        )
        self.partitions = Partitions(
            store, self.catalog, self.dynamic_configs.of_topics, cluster, self.fetches, call_later
        )
        self.publication = Publication(clock)
        self.creation = TopicCreation(self.catalog, self.configs, cluster, self.publication)
        self.creation.check_internal()
        self.replication = ReplicationControl(self.catalog, self.configs, cluster)
        if not cluster.is_shared:
            self.replication.heal()
        self.producer_ids = ProducerIds(self.catalog)
        self.log_maintenance = LogMaintenance(store, self.partitions, config, clock, call_later)
        hosts: CoordinatorDirectory = NoCoordinators() if coordinators is None else coordinators
        coordinator = LocalVerification(hosts) if verification is None else verification
        self.verification: Verification = OptionalVerification(coordinator, config)
        self.local_markers = LocalMarkers(self.partitions.find_led, clock, hosts)
        self.markers: Markers = self.local_markers
        self.hold_rebalance: Callable[[str], bool] | None = None
        """Asked with a group id before a rebalance is completed: whether it has to wait. For tests of clients."""
        self.store = store
        self.clock = clock
        self.call_later = call_later
        self.coordinators = hosts
        self.fetch_bytes_left = fetch_bytes_left
        self._elsewhere = elsewhere
        self.produce_at: Producing = self.produce
        """Has the leader of a partition append records without the rights of any user. Nodes of a cluster set another one."""
        self.log_reads = LogReads(elsewhere_reads)
        self.searches = LogReads(elsewhere_searches)
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
        self.versions = served_versions(config.release)
        """The oldest and the newest version of each API that the brokers serve."""
        if config.get_str("delegation.token.secret.key"):
            self.tokens  # noqa: B018 -- their sweep begins

    def _configured_authorizer(self) -> Authorizer | None:
        if not self.config.get_str("authorizer.class.name"):
            return None
        from kohort.broker.acls.authorizer import authorizer_of

        return authorizer_of(self.config, self.catalog)

    @abstractmethod
    def produce(self, node_id: int, request: m.ProduceRequest, reply: Reply[m.ProduceResponse], /) -> None:
        """Have a broker append records without the rights of any user."""

    @cached_property
    def tokens(self) -> Tokens:
        from kohort.broker.tokens.tokens import Tokens

        return Tokens(self.catalog, self.config, self.clock, self.call_later)

    @cached_property
    def telemetry(self) -> Telemetry:
        from kohort.broker.telemetry.telemetry import Telemetry

        return Telemetry(self.catalog, self.config, self.clock)

    @cached_property
    def fetch_turns(self) -> FetchTurns:
        from kohort.broker.records.fetch_turns import FetchTurns

        return FetchTurns(self.call_later)

    @cached_property
    def large_batches(self) -> LargeBatches:
        from kohort.broker.records.large_batches import LargeBatches

        return LargeBatches(self._elsewhere)

    @cached_property
    def verifier(self) -> TransactionVerifier:
        from kohort.broker.records.produce_verification import TransactionVerifier

        return TransactionVerifier(self.verification, self.config, self.clock, self.call_later)

    @cached_property
    def persister(self) -> Persister:
        from kohort.broker.shares.persister import RepeatingPersister

        return RepeatingPersister(lambda: self.coordinators.persister, self.catalog, self.creation, self.call_later)

    @cached_property
    def latest_offsets(self) -> LatestOffsets:
        """The ends of partitions, as the group coordinator asks for them. The nodes of a cluster set another value."""
        from kohort.broker.shares.latest_offsets import LocalLatestOffsets

        return LocalLatestOffsets(self.partitions.find_led)

    @cached_property
    def dead_letters(self) -> DeadLetterWriter:
        from kohort.broker.shares.dead_letters import DeadLetterWriter

        return DeadLetterWriter(
            self.catalog,
            self.creation,
            self.configs,
            self.config,
            self.partitions,
            self.log_reads,
            self.clock,
            self.call_later,
            self.produce_at,
        )

    @cached_property
    def share_services(self) -> LeaderServices:
        """The services that leaders of share partitions use."""
        from kohort.broker.shares.led_share_partition import LeaderServices
        from kohort.broker.shares.share_settings import LeaderSettingsOfGroups

        return LeaderServices(
            self.persister,
            LeaderSettingsOfGroups(self.group_configs, partial(self.features.level, SHARE_VERSION)),
            self.clock,
            self.call_later,
            self.searches,
            self.fetches.check_and_complete,
            self.dead_letters,
        )
