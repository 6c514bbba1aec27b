"""Three virtual brokers over memory, in virtual time, with the coordinators of groups and transactions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import COORDINATORS
from kohort.storage.log import LogStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness

BROKERS = (1, 2, 3)


class VirtualCluster(Harness):
    """
    Brokers 1, 2 and 3 of one process.

    Args:
        racks: of the brokers.
        settings: broker configurations, with underscores.
    """

    def __init__(
        self,
        *,
        store: LogStore | None = None,
        node: VirtualNode | None = None,
        racks: Sequence[str | None] = (None, None, None),
        **settings: Any,
    ) -> None:
        usual = {
            "offsets_topic_num_partitions": "4",
            "transaction_state_log_num_partitions": "2",
            "group_initial_rebalance_delay_ms": "0",
            "transaction_state_log_min_isr": "1",
        }
        super().__init__(store=store, node=node, racks=racks, **(usual | settings))
        node = self.node
        self.hosted = Coordinators(node.defer)
        processor = partial(InlineProcessor, node.wheel, node.defer, node.call_soon)
        self.hosted.start(COORDINATORS, self.broker, processor)
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            self.coordinators[topic] = self.hosted.marker_writer(topic)
        self.coordinators.verification = self.hosted.verification
        self.hosted.load()
        node.settle()

    def assign(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        """Create a topic with these replicas of each partition."""
        assignments = [
            m.CreateTopicsRequestCreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
            for index, brokers in enumerate(replicas)
        ]
        wanted = m.CreateTopicsRequestCreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=[
                m.CreateTopicsRequestCreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        (result,) = self.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)).topics
        assert result.error_code == 0, result

    def stop(self, node_id: int) -> None:
        """Move the leaders of a broker away, as a stop does before the listeners close."""
        self._take(partial(self.broker.replication.fence, node_id))

    def start(self, node_id: int) -> None:
        self._take(partial(self.broker.replication.unfence, self.cluster.brokers[node_id]))

    def _take(self, begin: Any) -> None:
        codes: list[ErrorCode] = []
        for _ in begin(codes.append):
            self.node.settle()
        self.node.settle()
        assert codes == [ErrorCode.NONE]

    @property
    def running(self) -> list[int]:
        return [node_id for node_id in BROKERS if self.cluster.is_active(node_id)]

    def state(self, name: str, index: int = 0, *, at: int | None = None) -> m.MetadataResponsePartition:
        """A partition as Metadata of a running broker shows it."""
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name)])
        (topic,) = self.ask(ApiKey.METADATA, request, at=self.running[0] if at is None else at).topics
        found: m.MetadataResponsePartition = topic.partitions[index]
        return found

    def coordinator(self, key: str, key_type: int = 0) -> int:
        """The broker that coordinates a group or a transactional id; -1 if there is none."""
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (found,) = self.ask(ApiKey.FIND_COORDINATOR, request, at=self.running[0]).coordinators
        self.node.settle()
        return int(found.node_id)
