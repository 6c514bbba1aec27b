"""
Creation of topics: the rules that CreateTopics, auto-creation by Metadata, and internal topics have in common.

The rules apply to the newest view of the catalog, so that of two concurrent creations the second is refused.

Source: Kafka ReplicationControlManager.createTopics, DefaultAutoTopicCreationManager.
"""

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import Catalog, new_topic_id
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.cluster import Cluster
from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState, assignment_error, first_state, placed
from kohort.broker.topics.publication import Publication
from kohort.broker.topics.topic_names import colliding, name_error
from kohort.model.context import RequestContext
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE

_log = logging.getLogger("kohort.broker")

DEFAULT = -1
"""The partition count or replication factor that means the broker's default."""

RECORDS_PER_REQUEST_MAX = 10_000
"""Records of the metadata log that a request may make, which bounds the partitions. Source: Kafka QuorumController."""


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. `assignments` are (partition, brokers); if empty the broker assigns the partitions."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: dict[str, str | None] = {}


class TopicCreation:
    """
    Validation of new topics, and auto-creation.

    Attributes:
        new_id: makes the ids of topics; simulations set another function, which repeats them.
        elsewhere: has the controller of a cluster create a topic without being asked by a client, or for the client of a
            request; returns False if this node is to do it.
    """

    def __init__(
        self,
        catalog: Catalog,
        configs: TopicConfigs,
        cluster: Cluster,
        publication: Publication,
    ) -> None:
        self._catalog = catalog
        self._configs = configs
        self._cluster = cluster
        self._publication = publication
        self.new_id: Callable[[], UUID] = new_topic_id
        self.elsewhere: Callable[[NewTopic, RequestContext | None], bool] = _nowhere
        self._refused: set[tuple[str, str]] = set()
        """Internal topics that could not be created, with the error message: these errors are logged once."""

    @property
    def is_alone(self) -> bool:
        """Whether the cluster has one broker, and gets no other one."""
        return len(self._cluster.brokers) == 1 and not self._cluster.is_shared

    def check_internal(self) -> None:
        """
        Check that the internal topics can be created. Apache Kafka starts even if they cannot; groups then wait for their
        coordinator for ever.

        Raises:
            ConfigError: the broker's configuration of an internal topic is not valid for a topic.
        """
        for name, internal in _INTERNAL.items():
            new_topic = self._default_topic(name)
            try:
                self._configs.validate({key: value for key, value in new_topic.configs.items() if value is not None})
            except ConfigError as error:
                keys = " and ".join(broker_key for _, broker_key in internal.configs_of_broker)
                raise ConfigError(f"{name} cannot be created with {keys} as configured: {error}") from error

    def validate(self, new_topic: NewTopic) -> Topic:
        """
        Validate a new topic and give it an id; the catalog is not changed.

        Raises:
            CoordinatorError: the topic cannot be created; with the code and the message of the response.
        """
        self._check_name(new_topic.name)
        configs = self._check_configs(new_topic)
        count, factor = self._counts(new_topic)
        topic = Topic(new_topic.name, self.new_id(), count, configs, self._catalog.starts)
        if self.is_alone:
            return topic
        assigned = [tuple(brokers) for _, brokers in sorted(new_topic.assignments)]
        return self._catalog.with_states(topic, self.place(topic, assigned or count, factor))

    def place(self, topic: Topic, wanted: int | Sequence[Sequence[int]], factor: int) -> list[PartitionState]:
        """
        The states of new partitions of a topic.

        Args:
            wanted: the number of partitions, or the brokers of each.

        Raises:
            CoordinatorError: the brokers of a partition are all stopped.
        """
        cluster = self._cluster
        if isinstance(wanted, int):
            wanted = placed(self._usable(), wanted, factor, topic.topic_id.int, cluster.is_active)
        states = [first_state(replicas, cluster.is_active) for replicas in wanted]
        for index, state in enumerate(states):
            if state.leader == NO_LEADER:
                raise CoordinatorError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                    "controlled shutdown.",
                )
        return states

    def _check_name(self, name: str) -> None:
        if self._catalog.newest(name) is not None:
            raise CoordinatorError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if message := name_error(name):
            raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        if other := colliding(name, self._catalog.newest_names()):
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
            )

    def _check_configs(self, new_topic: NewTopic) -> dict[str, str]:
        configs = {}
        for name, value in new_topic.configs.items():
            if value is None:
                raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
            configs[name] = value
        try:
            self._configs.validate(configs)
        except ConfigError as error:
            raise CoordinatorError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return configs

    def _counts(self, new_topic: NewTopic) -> tuple[int, int]:
        """The number of partitions and the replication factor."""
        if new_topic.assignments:
            return self._assigned_count(new_topic), len(new_topic.assignments[0][1])
        factor = new_topic.replication_factor
        if factor < DEFAULT or factor == 0:
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if new_topic.partition_count < DEFAULT or new_topic.partition_count == 0:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        if factor == DEFAULT:
            factor = self._configs.broker.get_int("default.replication.factor")
        self.check_factor(factor, f"Unable to replicate the partition {factor} time(s): ")
        if new_topic.partition_count == DEFAULT:
            return self._configs.broker.get_int("num.partitions"), factor
        return new_topic.partition_count, factor

    def check_factor(self, factor: int, prefix: str = "") -> None:
        """
        Raises:
            CoordinatorError: there are fewer brokers that may get partitions. Its message begins with `prefix`.

        Source: Kafka StripedReplicaPlacer.
        """
        usable = self._usable()
        if not any(self._cluster.is_active(node_id) for node_id, _ in usable):
            reason = "All brokers are currently fenced, or have all their log directories cordoned."
        elif factor > len(usable):
            reason = (
                f"The target replication factor of {factor} cannot be reached because only {len(usable)} broker(s) are "
                "registered or some brokers have all their log directories cordoned."
            )
        else:
            return
        raise CoordinatorError(ErrorCode.INVALID_REPLICATION_FACTOR, prefix + reason)

    def _usable(self) -> list[tuple[int, str | None]]:
        """The ids and racks of the brokers that may get partitions."""
        brokers = self._cluster.brokers.values()
        return [(broker.node_id, broker.rack) for broker in brokers if broker.node_id not in self._cluster.cordoned]

    def _assigned_count(self, new_topic: NewTopic) -> int:
        for asked, what in (
            (new_topic.replication_factor, "replication factor"),
            (new_topic.partition_count, "numPartitions"),
        ):
            if asked != DEFAULT:
                raise CoordinatorError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        indexes = [index for index, _ in new_topic.assignments]
        if sorted(indexes) != list(range(len(indexes))):
            raise CoordinatorError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        self.check_assignments([brokers for _, brokers in new_topic.assignments])
        return len(indexes)

    def check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        """
        Raises:
            CoordinatorError: an assignment has no broker, an unknown one, or one broker twice.
        """
        for brokers in assignments:
            if message := assignment_error(brokers, self._cluster.brokers, self._cluster.cordoned):
                raise CoordinatorError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

    def auto_create(self, name: str, context: RequestContext | None = None) -> ErrorCode:
        """
        Begin to create a topic that does not exist, unless its creation is in progress. Clients hear of it a moment later, but
        for internal topics, which coordinators wait for.

        Args:
            context: of the request that needs it; None if the node needs it itself.

        Returns:
            The code for the client: UNKNOWN_TOPIC_OR_PARTITION if it is to retry, else why the topic cannot be created.
        """
        if self._catalog.newest(name) is not None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new_topic = self._default_topic(name)
        try:
            topic = self.validate(new_topic)
        except CoordinatorError as error:
            self._log_refusal(name, error)
            is_collision = error.code is ErrorCode.INVALID_TOPIC_EXCEPTION and name_error(name) is None
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_collision else error.code
        if self.elsewhere(new_topic, context):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name not in INTERNAL_TOPICS:
            self._publication.begin(topic.topic_id)
        self._catalog.change(CatalogChange(put=(topic,)), lambda _: None)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def internal_partition_count(self, name: str) -> int:
        """The number of partitions of an internal topic: those that it has, or will have when it is created."""
        topic = self._catalog.topic(name)
        if topic is not None:
            return topic.partition_count
        return self._configs.broker.get_int(_INTERNAL[name].partition_count_key)

    def _log_refusal(self, name: str, error: CoordinatorError) -> None:
        """Log once why an internal topic cannot be created. Clients are told to retry, which they do many times a second."""
        message = str(error)
        if name in _INTERNAL and (name, message) not in self._refused:
            self._refused.add((name, message))
            _log.error("topic.not_created topic=%s error=%r", name, message)

    def _default_topic(self, name: str) -> NewTopic:
        broker = self._configs.broker
        internal = _INTERNAL.get(name)
        if internal is None:
            return NewTopic(name, replication_factor=broker.get_int("default.replication.factor"))
        configs = dict(internal.configs)
        configs |= {key: broker.text(broker_key) for key, broker_key in internal.configs_of_broker}
        factor = min(broker.get_int(internal.replication_factor_key), len(self._cluster.brokers))
        return NewTopic(name, broker.get_int(internal.partition_count_key), factor, configs=configs)


def _nowhere(_topic: NewTopic, _context: RequestContext | None) -> bool:
    """A node that is alone creates its topics itself."""
    return False


class _Internal(msgspec.Struct, frozen=True):
    """
    Configuration of an internal topic at its creation. Its replication factor is at most the number of brokers.

    Source: Kafka GroupCoordinatorService, TransactionCoordinator, ShareCoordinatorService.
    """

    partition_count_key: str
    replication_factor_key: str
    configs: dict[str, str | None]
    configs_of_broker: tuple[tuple[str, str], ...]


_INTERNAL = {
    CONSUMER_OFFSETS: _Internal(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        (("segment.bytes", "offsets.topic.segment.bytes"),),
    ),
    TRANSACTION_STATE: _Internal(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {"cleanup.policy": "compact", "compression.type": "uncompressed", "unclean.leader.election.enable": "false"},
        (
            ("min.insync.replicas", "transaction.state.log.min.isr"),
            ("segment.bytes", "transaction.state.log.segment.bytes"),
        ),
    ),
    SHARE_GROUP_STATE: _Internal(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        (
            ("min.insync.replicas", "share.coordinator.state.topic.min.isr"),
            ("segment.bytes", "share.coordinator.state.topic.segment.bytes"),
        ),
    ),
}
