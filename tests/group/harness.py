"""
A group coordinator in virtual time: the real service, runtime and shard over logs in memory that commit by themselves.

`ask` sends a request as a client would. Its answer may come at once, or later when others have joined or time has passed.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast
from uuid import UUID

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.configs import GroupConfig
from kohort.group.events import GroupEvent
from kohort.group.kinds import KINDS, GroupKind, record_serde
from kohort.group.records import GroupRecord, GroupRecordSerde
from kohort.group.service import GroupService
from kohort.group.shard import GroupShard
from kohort.machine.ports import LatestOffsets, Persister
from kohort.machine.shard import EndTransaction, Producer
from kohort.machine.timeline import TimelineDict
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.model.image import ImageDelta
from kohort.runtime.ports import ADAPTIVE
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from kohort.testing import FaultyLog, FixedContext, VirtualNode, deleted_topics
from kohort.testing.context import take_all
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import read_header, read_records

NEWEST = {
    "join_group": 9,
    "sync_group": 5,
    "heartbeat": 4,
    "leave_group": 5,
    "offset_commit": 9,
    "txn_offset_commit": 5,
    "offset_fetch": 9,
    "list_groups": 5,
    "describe_groups": 6,
    "delete_groups": 2,
    "offset_delete": 0,
    "consumer_group_heartbeat": 1,
    "consumer_group_describe": 1,
    "share_group_heartbeat": 1,
    "share_group_describe": 1,
    "describe_share_group_offsets": 1,
    "alter_share_group_offsets": 0,
    "delete_share_group_offsets": 0,
}
RANGE = "range"


class Topic(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partition_count: int


class Image:
    """Some topics of four partitions."""

    def __init__(self, names: Iterable[str] = ("orders", "payments")) -> None:
        self.by_name = {name: Topic(name, UUID(int=index), 4) for index, name in enumerate(names, 1)}

    version = 0
    has_racks = False

    def racks(self, _topic_id: UUID, _partition: int, /) -> Sequence[str]:
        return ()

    def topic(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self.by_name.values() if topic.topic_id == topic_id), None)

    def topics(self) -> Iterable[Topic]:
        return self.by_name.values()


class CommittingLog(FaultyLog):
    """Commits what was appended a moment later, unless it is held back."""

    def __init__(self, node: VirtualNode, *, batch_bytes_max: int) -> None:
        super().__init__(CONSUMER_OFFSETS, 0, batch_bytes_max=batch_bytes_max)
        self._node = node
        self.is_held = False

    def append(self, batch: bytes | bytearray, *, leader_epoch: int) -> int:
        end = super().append(batch, leader_epoch=leader_epoch)
        if not self.is_held:
            self._node.call_soon(self.commit)
        return end


@dataclass
class Answer:
    """What a client has received so far."""

    responses: list[Any] = field(default_factory=list)

    @property
    def is_parked(self) -> bool:
        return not self.responses

    @property
    def response(self) -> Any:
        assert len(self.responses) == 1, f"{len(self.responses)} answers to one request"
        return self.responses[0]

    @property
    def code(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.response, name)


def classic_groups(shard: GroupShard) -> TimelineDict[str, ClassicGroup]:
    return cast("TimelineDict[str, ClassicGroup]", shard.groups)


class Coordinator:
    """One partition of `__consumer_offsets` and its coordinator."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        batch_bytes_max: int = 1_048_588,
        kinds: Sequence[GroupKind] = KINDS,
        serde: GroupRecordSerde | None = None,
        assignment_interval_ms: int = 0,
        persister: Persister | None = None,
        latest_offsets: LatestOffsets | None = None,
    ) -> None:
        """
        Args:
            assignment_interval_ms: of consumer and share groups. By default a target is computed at every change.
            persister: the share coordinators. By default there are none, and no share groups.
            latest_offsets: the leaders of partitions, as share groups ask them.
        """
        self.persister = persister
        self.latest_offsets = latest_offsets
        self.assignment_interval_ms = assignment_interval_ms
        self.config = config or GroupConfig()
        self.image = Image()
        self.node = VirtualNode()
        self.log = CommittingLog(self.node, batch_bytes_max=batch_bytes_max)
        self.leader_epoch = 0
        self.linger_ms = ADAPTIVE
        """Takes effect with the next restart."""
        self.is_burst = False
        """While it is on, all requests arrive in one turn and share one batch."""
        self.is_background_held = False
        """While it is on, background tasks wait for `run_background`."""
        self._background: list[Callable[[], None]] = []
        self.events: list[GroupEvent] = []
        self._kinds = kinds
        self._serde = serde or record_serde(kinds)
        self._uuids = count(1)
        self.verifications: list[Producer] = []
        self.unverified: CoordinatorError | None = None
        """The answer of the transaction coordinator; None for a transaction that is ongoing."""
        self.restart()

    def restart(self, config: GroupConfig | None = None, *, is_tail_lost: bool = False) -> None:
        """
        Forget everything but the log, and load it; without its uncommitted tail, as after a power cut.

        No background task waits then: loads from a database are background tasks, too.
        """
        self.is_background_held = False
        if config is not None:
            self.config = config
        if hasattr(self, "runtime"):
            self.runtime.close()
            self.node.settle()
        if is_tail_lost:
            self.log.lose_uncommitted()
        self.shards: list[GroupShard] = []
        self.runtime: Runtime[GroupShard] = Runtime(
            partition_count=1,
            make_shard=self._make_shard,
            serde=self._serde,
            image=self.image,
            clock=self.node.clock,
            processor=InlineProcessor(
                self.node.wheel,
                self.node.defer,
                self.node.call_soon,
                background=self._run_in_background,
                call_soon_threadsafe=self.node.call_soon,
            ),
            linger_ms=self.linger_ms,
            verify=self._verify,
            on_effects=lambda _partition, effects: self.events.extend(effects),
        )
        self.service = GroupService(
            self.runtime,
            self.config,
            self.image,
            self._kinds,
            self.events.append,
            self.persister,
            self.latest_offsets,
        )
        self.leader_epoch += 1
        self.runtime.load(0, self.log, self.leader_epoch)
        self.node.settle()

    def _run_in_background(self, task: Callable[[], None]) -> None:
        if self.is_background_held:
            self._background.append(task)
        else:
            self.node.call_soon(task)

    def run_background(self) -> None:
        """Let background tasks run that were held; they hand their results over in a later turn."""
        tasks, self._background = self._background, []
        for task in tasks:
            self.node.call_soon(task)

    def _make_shard(self, _: int, snapshots: Any, deadlines: Any) -> GroupShard:
        shard = GroupShard(
            snapshots,
            deadlines,
            self.config,
            lambda: f"uuid{next(self._uuids)}",
            kinds=self._kinds,
            assignment_interval_ms=lambda _kind: self.assignment_interval_ms,
        )
        self.shards.append(shard)
        return shard

    def _verify(self, _partition: int, producer: Producer, verified: Callable[[Exception | None], None]) -> None:
        self.verifications.append(producer)
        verified(self.unverified)

    @property
    def shard(self) -> GroupShard:
        return self.shards[-1]

    def has_deadline(self, *key: str) -> bool:
        context = self.runtime._contexts[0]
        return context._deadlines.get(key) is not None

    @property
    def groups(self) -> TimelineDict[str, ClassicGroup]:
        return classic_groups(self.shard)

    @property
    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    def advance(self, duration_ms: int) -> None:
        self.node.advance(duration_ms)

    def ask(self, api: str, request: Any, *, version: int | None = None, client_id: str = "client") -> Answer:
        """Send one request, and let everything happen that happens at once, unless a burst is on."""
        answer = self.send(api, request, version=version, client_id=client_id)
        if not self.is_burst:
            self.node.settle()
        return answer

    def send(self, api: str, request: Any, *, version: int | None = None, client_id: str = "client") -> Answer:
        """Send one request; nothing has been flushed when this returns."""
        context = FixedContext(NEWEST[api] if version is None else version, client_id, "/127.0.0.1")
        answer = Answer()
        response = self.service.handlers()[ApiKey[api.upper()]](request, context, answer.responses.append)
        if isinstance(response, Generator):
            take_all(response, answer.responses.append)
        elif response is not None:
            answer.responses.append(response)
        return answer

    # What is in the log

    def records(self, since: int = 0) -> list[GroupRecord]:
        return [
            self._serde.decode(bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for record in self._log_records()
            if record.offset >= since
        ]

    def _log_records(self) -> list[Any]:
        found = []
        for batch in self.log.batches:
            if not read_header(batch).is_control:
                found += list(read_records(batch))
        return found

    @property
    def end(self) -> int:
        return self.log.end_offset

    # The requests of clients, short

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "group",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = ((RANGE, b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int | None = None,
        client_id: str = "client",
    ) -> Answer:
        request = m.JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[m.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
        )
        return self.ask("join_group", request, version=version, client_id=client_id)

    def new_member_id(self, **options: Any) -> str:
        """What a dynamic member's first JoinGroup yields."""
        answer = self.join(**options)
        assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
        return str(answer.member_id)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "group",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = RANGE,
        version: int | None = None,
    ) -> Answer:
        request = m.SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                m.SyncGroupRequestAssignment(member_id=id_, assignment=assignment)
                for id_, assignment in (assignments or {}).items()
            ],
        )
        return self.ask("sync_group", request, version=version)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "group", instance: str | None = None
    ) -> ErrorCode:
        request = m.HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.ask("heartbeat", request).code

    def leave(self, *members: tuple[str, str | None], group: str = "group") -> list[ErrorCode]:
        """The code of each member, named by member id and instance id."""
        identities = [
            m.LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in members
        ]
        answer = self.ask("leave_group", m.LeaveGroupRequest(group_id=group, members=identities))
        assert answer.code is ErrorCode.NONE
        return [ErrorCode(member.error_code) for member in answer.members]

    def commit(
        self,
        positions: dict[tuple[str, int], int] | None = None,
        *,
        group: str = "group",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int | None = None,
    ) -> dict[tuple[str, int], ErrorCode]:
        """The code of each partition."""
        topics: dict[str, list[m.OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in (positions or {("orders", 0): 1}).items():
            entry = m.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(entry)
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[m.OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )
        answer = self.ask("offset_commit", request, version=version)
        return {
            (topic.name, entry.partition_index): ErrorCode(entry.error_code)
            for topic in answer.topics
            for entry in topic.partitions
        }

    def commit_in_transaction(
        self,
        positions: dict[tuple[str, int], int] | None = None,
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        group: str = "group",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        version: int | None = None,
    ) -> dict[tuple[str, int], ErrorCode]:
        """The code of each partition."""
        topics: dict[str, list[m.TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in (positions or {("orders", 0): 1}).items():
            entry = m.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
            topics.setdefault(topic, []).append(entry)
        request = m.TxnOffsetCommitRequest(
            transactional_id="transaction",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                m.TxnOffsetCommitRequestTopic(
                    name=name, topic_id=getattr(self.image.topic(name), "topic_id", None), partitions=entries
                )
                for name, entries in topics.items()
            ],
        )
        answer = self.ask("txn_offset_commit", request, version=version)
        return {
            (topic.name, entry.partition_index): ErrorCode(entry.error_code)
            for topic in answer.topics
            for entry in topic.partitions
        }

    def end_transaction(
        self, *, committed: bool, producer_id: int = 7, producer_epoch: int = 0, coordinator_epoch: int = 0
    ) -> Exception | None:
        """Write the marker of a transaction; the error if it was refused."""
        answers: list[Exception | None] = []
        end = EndTransaction(producer_id, producer_epoch, coordinator_epoch, committed)
        self.runtime.end_transaction(0, end, answers.append)
        self.node.settle()
        (answer,) = answers
        return answer

    def fetch(self, group: str = "group", *, require_stable: bool = False) -> dict[tuple[str, int], int]:
        """Every committed position of the group; -2 in the place of one that is unstable."""
        request = m.OffsetFetchRequest(
            groups=[m.OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=require_stable
        )
        (found,) = self.ask("offset_fetch", request).groups
        return {
            (topic.name, entry.partition_index): -2 if entry.error_code else entry.committed_offset
            for topic in found.topics
            for entry in topic.partitions
        }

    def delete_topics(self, *names: str) -> None:
        """Tell the shard that topics are gone, which `image` still has: a test may commit to new ones of these names."""
        known = [self.image.topic(name) for name in names]
        self.runtime.on_image(
            deleted_topics(*(name if topic is None else topic for name, topic in zip(names, known, strict=True)))
        )

    def on_image(self, delta: ImageDelta) -> None:
        """Tell the shard that the topics of `image` changed."""
        self.runtime.on_image(delta)
        self.node.settle()

    def describe(self, group: str = "group", *, version: int | None = None) -> Any:
        answer = self.ask("describe_groups", m.DescribeGroupsRequest(groups=[group]), version=version)
        return answer.groups[0]

    def delete(self, *groups: str) -> dict[str, ErrorCode]:
        answer = self.ask("delete_groups", m.DeleteGroupsRequest(groups_names=groups))
        return {result.group_id: ErrorCode(result.error_code) for result in answer.results}

    def listed(self) -> dict[str, str]:
        """State by group."""
        answer = self.ask("list_groups", m.ListGroupsRequest())
        assert answer.code is ErrorCode.NONE
        return {group.group_id: group.group_state for group in answer.groups}

    # Groups in a certain state

    def stable(
        self,
        size: int = 2,
        *,
        group: str = "group",
        instances: Sequence[str | None] = (),
        protocols: Sequence[tuple[str, bytes]] = ((RANGE, b""),),
        **options: Any,
    ) -> list[str]:
        """A stable group of so many members; their ids, the leader's first. The n-th is assigned b"n"."""
        members = self.completing(size, group=group, instances=instances, protocols=protocols, **options)
        generation = self.describe_generation(group)
        assignments = {member_id: str(index).encode() for index, member_id in enumerate(members)}
        name = self.groups[group].protocol_name
        answers = [
            self.sync(id_, generation, {} if index else assignments, group=group, protocol_name=name)
            for index, id_ in enumerate(members)
        ]
        assert [answer.code for answer in answers] == [ErrorCode.NONE] * size
        return members

    def completing(
        self, size: int = 2, *, group: str = "group", instances: Sequence[str | None] = (), **options: Any
    ) -> list[str]:
        """A group whose members have joined, and none has synchronised."""
        held = [*instances, *[None] * (size - len(instances))]
        ids = ["" if name is not None else self.new_member_id(group=group, **options) for name in held]
        answers = [self.join(id_, group=group, instance=name, **options) for id_, name in zip(ids, held, strict=True)]
        self.wait_initial_delay()
        assert [answer.code for answer in answers] == [ErrorCode.NONE] * size
        return [str(answer.member_id) for answer in answers]

    def wait_initial_delay(self) -> None:
        """The delay of a first rebalance, and that by which the second member has extended it."""
        self.advance(2 * self.config.group_initial_rebalance_delay_ms)

    def describe_generation(self, group: str = "group") -> int:
        return self.groups[group].generation


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer, version 0."""
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"
