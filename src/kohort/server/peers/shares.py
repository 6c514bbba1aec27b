"""
States of share partitions at the nodes of their share coordinators: the RPCs of brokers, one request a node and group for those
of a turn.

Source: KIP-932; Kafka PersisterStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from kohort.broker.cluster import NO_NODE_ID
from kohort.machine.ports import Persister, SharePartitionKey, SharePartitionState, StateBatch
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import SHARE_GROUP_STATE, coordinator_partition
from kohort.runtime.ports import Defer
from kohort.server.peers.gathering import Form, Gathering
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Directory, Peers
from kohort.share.coordinator import coordinator_key
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

Outcome = CoordinatorError | None
State = SharePartitionState | CoordinatorError
Item = tuple[SharePartitionKey, Any]
"""A share partition, and its element of the request."""
A = TypeVar("A")


class RemotePersister:
    """
    The share coordinators of a cluster: a `kohort.machine.ports.Persister` that tries once.

    Args:
        local: returns the coordinator of this node.
        partition_count: returns the number of partitions of `__share_group_state`.
    """

    def __init__(
        self,
        directory: Directory,
        local: Callable[[], Persister | None],
        partition_count: Callable[[], int],
        peers: Peers,
        defer: Defer,
    ) -> None:
        self._directory = directory
        self._local_of = local
        self._partition_count = partition_count
        self._initialize = Gathering(_INITIALIZE, peers, defer)
        self._read = Gathering(_READ, peers, defer)
        self._write = Gathering(_WRITE, peers, defer)
        self._delete = Gathering(_DELETE, peers, defer)
        self._summary = Gathering(_SUMMARY, peers, defer)

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Callable[[Outcome], None], /
    ) -> None:
        if (node_id := self._elsewhere(key)) is None:
            self._local.initialize(key, state_epoch, start_offset, done)
            return
        asked = m.InitializeShareGroupStateRequestPartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        _ask(self._initialize, node_id, key, asked, done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Callable[[State], None], /) -> None:
        if (node_id := self._elsewhere(key)) is None:
            self._local.read(key, leader_epoch, done)
            return
        asked = m.ReadShareGroupStateRequestPartitionData(partition=key.partition, leader_epoch=leader_epoch)

        def answered(answer: State) -> None:
            # The answer does not tell the epoch that the question has set.
            done(answer if isinstance(answer, CoordinatorError) else answer._replace(leader_epoch=leader_epoch))

        _ask(self._read, node_id, key, asked, answered)

    def write(self, key: SharePartitionKey, state: SharePartitionState, done: Callable[[Outcome], None], /) -> None:
        if (node_id := self._elsewhere(key)) is None:
            self._local.write(key, state, done)
            return
        asked = m.WriteShareGroupStateRequestPartitionData(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=[m.WriteShareGroupStateRequestStateBatch(**batch._asdict()) for batch in state.batches],
        )
        _ask(self._write, node_id, key, asked, done, weight=1 + len(state.batches))

    def delete(self, key: SharePartitionKey, done: Callable[[Outcome], None], /) -> None:
        if (node_id := self._elsewhere(key)) is None:
            self._local.delete(key, done)
            return
        _ask(self._delete, node_id, key, m.DeleteShareGroupStateRequestPartitionData(partition=key.partition), done)

    def summary(self, key: SharePartitionKey, done: Callable[[State], None], /) -> None:
        if (node_id := self._elsewhere(key)) is None:
            self._local.summary(key, done)
            return
        asked = m.ReadShareGroupStateSummaryRequestPartitionData(partition=key.partition, leader_epoch=-1)
        _ask(self._summary, node_id, key, asked, done)

    @property
    def _local(self) -> Persister:
        local = self._local_of()
        assert local is not None, "every node of a cluster hosts the coordinators"
        return local

    def _elsewhere(self, key: SharePartitionKey) -> int | None:
        """The node of the coordinator of a share partition; None for this one, and while none is known."""
        index = coordinator_partition(coordinator_key(key), self._partition_count())
        node_id = self._directory.leader(SHARE_GROUP_STATE, index)
        return None if node_id in (self._directory.node_id, NO_NODE_ID) else node_id


def _ask(
    gathering: Gathering[Item, A],
    node_id: int,
    key: SharePartitionKey,
    asked: Any,
    done: Callable[[A], None],
    weight: int = 1,
) -> None:
    place = (key.topic_id, key.partition)
    gathering.ask(node_id, place, (key, asked), done, common=key.group_id, weight=weight)


def _form(
    api_key: ApiKey,
    version: int,
    request: Callable[..., Any],
    of_topic: Callable[..., Any],
    answer: Callable[[Any], A],
    lost: Callable[[Lost | None], A],
) -> Form[Item, A]:
    def make(items: Sequence[Item]) -> Any:
        by_topic: dict[UUID, list[Any]] = {}
        for key, asked in items:
            by_topic.setdefault(key.topic_id, []).append(asked)
        topics = [of_topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()]
        return request(group_id=items[0][0].group_id, topics=topics)

    def answers(response: Any) -> Iterator[tuple[Hashable, A]]:
        for topic in response.results:
            for partition in topic.partitions:
                yield (topic.topic_id, partition.partition), answer(partition)

    return Form(Channel.SHARES, api_key, version, make, answers, lost)


def _outcome(result: Any) -> Outcome:
    return CoordinatorError(ErrorCode(result.error_code), result.error_message) if result.error_code else None


def _read_state(result: m.ReadShareGroupStateResponsePartitionResult) -> State:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in result.state_batches
    ]
    return _outcome(result) or SharePartitionState(result.state_epoch, -1, result.start_offset, -1, batches)


def _summed_state(result: m.ReadShareGroupStateSummaryResponsePartitionResult) -> State:
    return _outcome(result) or SharePartitionState(
        result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
    )


def _lost(_lost: Lost | None) -> CoordinatorError:
    """The caller repeats it: a write that has been applied is applied again without effect."""
    return CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")


_INITIALIZE: Final[Form[Item, Outcome]] = _form(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    0,
    m.InitializeShareGroupStateRequest,
    m.InitializeShareGroupStateRequestInitializeStateData,
    _outcome,
    _lost,
)
_READ: Final[Form[Item, State]] = _form(
    ApiKey.READ_SHARE_GROUP_STATE,
    0,
    m.ReadShareGroupStateRequest,
    m.ReadShareGroupStateRequestReadStateData,
    _read_state,
    _lost,
)
_WRITE: Final[Form[Item, Outcome]] = _form(
    ApiKey.WRITE_SHARE_GROUP_STATE,
    1,
    m.WriteShareGroupStateRequest,
    m.WriteShareGroupStateRequestWriteStateData,
    _outcome,
    _lost,
)
_DELETE: Final[Form[Item, Outcome]] = _form(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    0,
    m.DeleteShareGroupStateRequest,
    m.DeleteShareGroupStateRequestDeleteStateData,
    _outcome,
    _lost,
)
_SUMMARY: Final[Form[Item, State]] = _form(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    1,
    m.ReadShareGroupStateSummaryRequest,
    m.ReadShareGroupStateSummaryRequestReadStateSummaryData,
    _summed_state,
    _lost,
)
