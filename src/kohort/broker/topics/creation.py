"""
Making topics: what a wish for a topic becomes, whoever wishes it (CreateTopics, a client's first Metadata, a coordinator).

Everything is decided on the newest state of the catalog, so that of two wishes under way the second is refused.

Source: Kafka ReplicationControlManager.createTopics, DefaultAutoTopicCreationManager.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kohort.broker.catalog import Catalog, CatalogChange, Topic, new_topic_id
from kohort.broker.cluster import Cluster
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.ports import CallLater
from kohort.broker.topics.topic_names import colliding, name_problem
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_log = logging.getLogger("kohort.broker")

DEFAULT = -1
"""What a client sends to leave partition count or replication factor to the broker."""

PARTITIONS_PER_REQUEST_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants. `assignments` are (partition, brokers); empty lets the broker place the partitions."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: dict[str, str | None] = field(default_factory=dict)


class TopicCreation:
    """Decides wishes; the catalog makes them last."""

    def __init__(
        self,
        catalog: Catalog,
        configs: TopicConfigs,
        cluster: Cluster,
        *,
        new_id: Callable[[], UUID] = new_topic_id,
    ) -> None:
        self._catalog = catalog
        self._configs = configs
        self._cluster = cluster
        self._new_id = new_id
        self._refused: set[tuple[str, str]] = set()
        """Internal topics that could not be created, and why: what was said in the log already."""

    def check_internal(self) -> None:
        """
        Whether the internal topics can be created when they are asked for. Apache Kafka starts where they cannot; groups then
        wait for their coordinator for ever.

        Raises:
            ConfigError: the broker's configuration of one of them is none that a topic may have.
        """
        for name, internal in _INTERNAL.items():
            wish = self._unasked(name)
            try:
                self._configs.validate({key: value for key, value in wish.configs.items() if value is not None})
            except ConfigError as error:
                keys = " and ".join(broker_key for _, broker_key in internal.configs_of_broker)
                raise ConfigError(f"{name} cannot be created with {keys} as configured: {error}") from error

    def decide(self, wish: NewTopic) -> Topic:
        """
        The topic that the wish becomes; nothing is written yet.

        Raises:
            CoordinatorError: with the code and the sentence of the refusal.
        """
        self._check_name(wish.name)
        configs = self._check_configs(wish)
        return Topic(wish.name, self._new_id(), self._partition_count(wish), configs)

    def _check_name(self, name: str) -> None:
        if self._catalog.newest(name) is not None:
            raise CoordinatorError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if problem := name_problem(name):
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if other := colliding(name, self._catalog.newest_names()):
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )

    def _check_configs(self, wish: NewTopic) -> dict[str, str]:
        configs = {}
        for name, value in wish.configs.items():
            if value is None:
                raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
            configs[name] = value
        try:
            self._configs.validate(configs)
        except ConfigError as error:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return configs

    def _partition_count(self, wish: NewTopic) -> int:
        if wish.assignments:
            return self._assigned_count(wish)
        self._check_replication_factor(wish.replication_factor)
        if wish.partition_count < DEFAULT or wish.partition_count == 0:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        self._check_brokers(wish.replication_factor)
        if wish.partition_count == DEFAULT:
            return self._configs.broker.get_int("num.partitions")
        return wish.partition_count

    def _check_replication_factor(self, factor: int) -> None:
        if factor < DEFAULT or factor == 0:
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )

    def _check_brokers(self, factor: int) -> None:
        if factor > (brokers := len(self._cluster.nodes)):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
                f"cannot be reached because only {brokers} broker(s) are registered.",
            )

    def _assigned_count(self, wish: NewTopic) -> int:
        for asked, what in ((wish.replication_factor, "replication factor"), (wish.partition_count, "numPartitions")):
            if asked != DEFAULT:
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        indexes = [index for index, _ in wish.assignments]
        if sorted(indexes) != list(range(len(indexes))):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        self.check_assignments([brokers for _, brokers in wish.assignments])
        return len(indexes)

    def check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        """
        Raises:
            CoordinatorError: a broker is unknown or named twice, or there is none.
        """
        for brokers in assignments:
            problem = self._assignment_problem(brokers)
            if problem:
                raise CoordinatorError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def _assignment_problem(self, brokers: Sequence[int]) -> str | None:
        if not brokers:
            return "The manual partition assignment includes an empty replica list."
        if len(set(brokers)) < len(brokers):
            return f"The manual partition assignment includes the broker {brokers[0]} more than once."
        unknown = next((broker for broker in brokers if broker not in self._cluster.nodes), None)
        if unknown is not None:
            return f"The manual partition assignment includes broker {unknown}, but no such broker is registered."
        return None

    def auto_create(self, name: str) -> ErrorCode:
        """
        Begin to create a topic that is used but does not exist, if it does not come into being already.

        Returns what the client is told: that it is not there yet, or that it never will be.
        """
        if self._catalog.newest(name) is not None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            topic = self.decide(self._unasked(name))
        except CoordinatorError as error:
            self._tell(name, error)
            is_collision = error.code is ErrorCode.INVALID_TOPIC_EXCEPTION and name_problem(name) is None
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_collision else error.code
        self._catalog.change(CatalogChange(put=(topic,)), lambda _: None)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _tell(self, name: str, error: CoordinatorError) -> None:
        """Who asks for an internal topic is told to come again, and asks many times a second."""
        why = str(error)
        if name in _INTERNAL and (name, why) not in self._refused:
            self._refused.add((name, why))
            _log.error("topic.not_created topic=%s error=%r", name, why)

    def _unasked(self, name: str) -> NewTopic:
        broker = self._configs.broker
        internal = _INTERNAL.get(name)
        if internal is None:
            return NewTopic(name, replication_factor=broker.get_int("default.replication.factor"))
        configs = dict(internal.configs)
        configs |= {key: broker.text(broker_key) for key, broker_key in internal.configs_of_broker}
        return NewTopic(name, broker.get_int(internal.partition_count_key), configs=configs)


@dataclass(frozen=True, slots=True)
class _Internal:
    """
    How an internal topic is created. Its replication factor is not asked for: a cluster has as many replicas as it can.

    Source: GroupCoordinatorService, TransactionCoordinator, ShareCoordinatorService: the topics' configurations.
    """

    partition_count_key: str
    configs: dict[str, str | None]
    configs_of_broker: tuple[tuple[str, str], ...]


_INTERNAL = {
    CONSUMER_OFFSETS: _Internal(
        "offsets.topic.num.partitions",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        (("segment.bytes", "offsets.topic.segment.bytes"),),
    ),
    TRANSACTION_STATE: _Internal(
        "transaction.state.log.num.partitions",
        {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"},
        (
            ("min.insync.replicas", "transaction.state.log.min.isr"),
            ("segment.bytes", "transaction.state.log.segment.bytes"),
        ),
    ),
    SHARE_GROUP_STATE: _Internal(
        "share.coordinator.state.topic.num.partitions",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        (
            ("min.insync.replicas", "share.coordinator.state.topic.min.isr"),
            ("segment.bytes", "share.coordinator.state.topic.segment.bytes"),
        ),
    ),
}


def change_durably(
    catalog: Catalog,
    change: CatalogChange,
    timeout_ms: int,
    call_later: CallLater,
    done: Callable[[ErrorCode], None],
) -> None:
    """Make a change; `done(code)` once: when it is durable, has failed, or the time is up (it may still happen then)."""
    is_open = True

    def finish(code: ErrorCode) -> None:
        nonlocal is_open
        if is_open:
            is_open = False
            cancel()
            done(code)

    cancel = call_later(max(timeout_ms, 0), lambda: finish(ErrorCode.REQUEST_TIMED_OUT))
    catalog.change(change, finish)
