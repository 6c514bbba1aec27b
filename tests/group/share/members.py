"""
Members of a share group in virtual time, on the coordinator of `tests.group.harness`, and the share coordinators behind it.

A `Member` keeps its epoch, and takes over the assignment that it is told. `beat` is one heartbeat; every field may be given to
send something else.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kohort.group.configs import GroupConfig
from kohort.group.share.group import ShareGroup
from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition, uuid_text
from kohort.model.image import ImageDelta
from kohort.wire import messages as m
from tests.group.harness import Answer, Coordinator, Topic

GROUP = "group"
NO_STATE = SharePartitionState(0, 0, -1, -1)


class States:
    """
    Share coordinators that keep their states in a dictionary: a `kohort.machine.ports.Persister`.

    Attributes:
        is_held: while it is on, calls wait for `let_go`.
        failures: by partition of a topic, the error of the next calls.
    """

    def __init__(self) -> None:
        self.known: dict[SharePartitionKey, SharePartitionState] = {}
        self.is_held = False
        self.failures: dict[tuple[str, int], ErrorCode] = {}
        self.names: dict[str, str] = {}
        self.calls: list[tuple[str, SharePartitionKey]] = []
        self.held: list[Callable[[], None]] = []

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Any, /) -> None:
        state = SharePartitionState(state_epoch, 0, start_offset, -1 if start_offset == -1 else 0)
        self._call("initialize", key, done, lambda: self.known.update({key: state}))

    def delete(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call("delete", key, done, lambda: self.known.pop(key, None) and None)

    def summary(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call("summary", key, done, lambda: self.known.get(key, NO_STATE))

    def read(self, key: SharePartitionKey, _leader_epoch: int, done: Any, /) -> None:
        raise AssertionError("only leaders read states")

    def write(self, key: SharePartitionKey, _state: SharePartitionState, done: Any, /) -> None:
        raise AssertionError("only leaders write states")

    def _call(self, name: str, key: SharePartitionKey, done: Any, answer: Callable[[], Any]) -> None:
        self.calls.append((name, key))
        code = self.failures.get((uuid_text(key.topic_id), key.partition))
        given = answer if code is None else partial(CoordinatorError, code, "no")

        def begin() -> None:
            done(given())

        if self.is_held:
            self.held.append(begin)
        else:
            begin()

    @property
    def waiting(self) -> int:
        return len(self.held)

    def let_go(self) -> None:
        """Answer the calls that wait."""
        held, self.held, self.is_held = self.held, [], False
        for begin in held:
            begin()


class ShareCoordinator(Coordinator):
    """A group coordinator with share coordinators behind it; `orders` and `payments` have four partitions each."""

    def __init__(self, config: GroupConfig | None = None, *, assignment_interval_ms: int = 0) -> None:
        self.states = States()
        self.ends: dict[TopicPartition, int | CoordinatorError] = {}
        """The high watermarks of partitions, 0 by default."""
        super().__init__(
            config, assignment_interval_ms=assignment_interval_ms, persister=self.states, latest_offsets=self
        )

    def latest_offset(self, topic_partition: TopicPartition, done: Any, /) -> None:
        done(self.ends.get(topic_partition, 0))

    @property
    def group(self) -> ShareGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def fail(self, topic: str, partition: int, code: ErrorCode | None = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Have the calls for a partition fail, or succeed again."""
        key = uuid_text(self.image.by_name[topic].topic_id), partition
        if code is None:
            del self.states.failures[key]
        else:
            self.states.failures[key] = code

    def start_offsets(self, topic: str = "orders") -> dict[int, int]:
        """The start offset of each partition that has a state."""
        topic_id = self.image.by_name[topic].topic_id
        return {
            key.partition: state.start_offset for key, state in self.states.known.items() if key.topic_id == topic_id
        }

    def set_topic(self, topic: Topic) -> None:
        """Make a topic, or give it more partitions."""
        is_new = topic.name not in self.image.by_name
        self._change({**self.image.by_name, topic.name: topic})
        self.runtime.on_image(ImageDelta(created=(topic,)) if is_new else ImageDelta(changed=(topic,)))
        self.node.settle()

    def delete_topic(self, name: str) -> None:
        topics = dict(self.image.by_name)
        topic = topics.pop(name)
        self._change(topics)
        self.runtime.on_image(ImageDelta(deleted=(topic,)))
        self.advance(10)

    def _change(self, topics: dict[str, Topic]) -> None:
        self.image.by_name = topics
        self.image.version += 1

    def describe_share(self, *group_ids: str, has_operations: bool = False) -> list[Any]:
        request = m.ShareGroupDescribeRequest(
            group_ids=group_ids or (GROUP,), include_authorized_operations=has_operations
        )
        return list(self.ask("share_group_describe", request).groups)

    def alter(self, topics: dict[str, dict[int, int]], group: str = GROUP) -> Answer:
        """Ask for start offsets by topic and partition."""
        partition = m.AlterShareGroupOffsetsRequestPartition
        asked = [
            m.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[partition(partition_index=each, start_offset=offset) for each, offset in offsets.items()],
            )
            for name, offsets in topics.items()
        ]
        return self.ask("alter_share_group_offsets", m.AlterShareGroupOffsetsRequest(group_id=group, topics=asked))

    def altered(self, answer: Answer) -> dict[str, dict[int, ErrorCode]]:
        """The codes of an answer, by topic and partition."""
        return {
            topic.topic_name: {each.partition_index: ErrorCode(each.error_code) for each in topic.partitions}
            for topic in answer.responses
        }

    def delete_offsets(self, *names: str, group: str = GROUP) -> Answer:
        topics = [m.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        return self.ask("delete_share_group_offsets", m.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics))

    def offsets(self, topics: dict[str, list[int]] | None = None, group: str = GROUP) -> Any:
        """The answer of DescribeShareGroupOffsets for one group."""
        named = None
        if topics is not None:
            topic = m.DescribeShareGroupOffsetsRequestTopic
            named = [topic(topic_name=name, partitions=partitions) for name, partitions in topics.items()]
        asked = m.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)
        (answer,) = self.ask("describe_share_group_offsets", m.DescribeShareGroupOffsetsRequest(groups=[asked])).groups
        return answer

    def lags(
        self, topics: dict[str, list[int]] | None = None, group: str = GROUP
    ) -> dict[str, dict[int, tuple[int, int]]]:
        """Start offset and lag by topic and partition."""
        answer = self.offsets(topics, group)
        assert answer.error_code == 0
        return {
            topic.topic_name: {each.partition_index: (each.start_offset, each.lag) for each in topic.partitions}
            for topic in answer.topics
        }

    def partitions_of(self, assignment: Any) -> dict[str, tuple[int, ...]]:
        """The partitions of an answer, by topic name."""
        found = {}
        for entry in assignment.topic_partitions:
            topic = self.image.topic_by_id(entry.topic_id)
            found[str(entry.topic_id) if topic is None else topic.name] = tuple(entry.partitions)
        return found


class Member:
    """
    Attributes:
        epoch: that the coordinator told it.
        assigned: its partitions by topic name.
    """

    def __init__(
        self,
        coordinator: ShareCoordinator,
        member_id: str = "a",
        topics: Sequence[str] = ("orders",),
        group: str = GROUP,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.topics = topics
        self.group = group
        self.epoch = 0
        self.assigned: dict[str, tuple[int, ...]] = {}

    def join(self, **fields: Any) -> Answer:
        return self.beat(**{"member_epoch": 0, "subscribed_topic_names": list(self.topics), **fields})

    def beat(self, *, client_id: str = "client", **fields: Any) -> Answer:
        """Send a heartbeat, and take over the answer if it is no error."""
        defaults: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        request = m.ShareGroupHeartbeatRequest(**{**defaults, **fields})
        answer = self.coordinator.ask("share_group_heartbeat", request, client_id=client_id)
        if not answer.is_parked and answer.code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = self.coordinator.partitions_of(answer.assignment)
        return answer

    def leave(self) -> Answer:
        return self.beat(member_epoch=-1)
