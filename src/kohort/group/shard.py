"""
The group coordinator of one partition of `__consumer_offsets`: replay and life cycle of groups of all kinds and of offsets.

Handlers are in the rooms beside it, one module per API; they work on `GroupShard.context`.

Source: Kafka GroupCoordinatorShard, GroupMetadataManager, OffsetMetadataManager.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kohort.group.assignors.builtin import BUILT_IN
from kohort.group.assignors.interface import SteppedAssignor
from kohort.group.configs import GroupConfig, GroupConfigs, GroupOverrides, no_overrides
from kohort.group.context import GroupContext, HasContext, never_held
from kohort.group.events import GroupEvent
from kohort.group.groups import Group
from kohort.group.kinds import KINDS, GroupKind
from kohort.group.metrics import GroupCounters
from kohort.group.offsets.maintenance import cleanup_deadline, delete_topics
from kohort.group.offsets.offsets import GroupOffsets, Offsets
from kohort.group.records import GroupRecord
from kohort.machine.bulk import PackedRecords, RawRecords
from kohort.machine.shard import NO_PRODUCER_ID, Deadlines, Executor, Result
from kohort.machine.steps import Deadline
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineValue
from kohort.model.image import NO_TOPICS, ClusterImage, ImageDelta
from kohort.records.values import OffsetCommit, OffsetCommitTombstone
from kohort.security.authorization import Authorizer
from kohort.wire.apis import ApiKey


class GroupShard(HasContext):
    """
    Implements `kohort.machine.shard.Shard` for `GroupRecord`.

    Args:
        snapshots: the shard's; the runtime takes them.
        new_uuid: gives the text of a fresh random UUID.
        counters: those of the partition, which outlive the shard; new ones by default.
        kinds: the kinds of groups that there may be.
        overrides: the configurations of single groups.
        assignors: that members of consumer groups may choose; the built-in ones that `config` names by default.
        new_member_id: gives a fresh member id in Kafka's form of random ids; `new_uuid` by default.
        assignment_interval_ms: gives the present assignment interval of the broker for a kind of groups; that of `config` by
            default.
        is_held: whether the rebalance of a group may not be completed yet.
        authorizer: decides who may do what; by default everybody may do everything.
    """

    def __init__(
        self,
        snapshots: SnapshotRegistry,
        deadlines: Deadlines,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        counters: GroupCounters | None = None,
        kinds: Sequence[GroupKind] = KINDS,
        overrides: GroupOverrides = no_overrides,
        assignors: Sequence[SteppedAssignor] | None = None,
        new_member_id: Callable[[], str] | None = None,
        assignment_interval_ms: Callable[[str], int] | None = None,
        is_held: Callable[[str], bool] = never_held,
        authorizer: Authorizer | None = None,
    ) -> None:
        groups: TimelineDict[str, Group] = TimelineDict(snapshots)
        context = GroupContext(
            snapshots=snapshots,
            groups=groups,
            prepared=TimelineDict(snapshots),
            offsets=Offsets(snapshots),
            deadlines=deadlines,
            config=config,
            group_configs=GroupConfigs(config, overrides, assignment_interval_ms),
            assignors=assignors or [BUILT_IN[name] for name in config.group_consumer_assignors if name in BUILT_IN],
            image=NO_TOPICS,
            new_uuid=new_uuid,
            new_member_id=new_member_id or new_uuid,
            make_group=next(kind.make_group for kind in kinds if kind.make_group is not None),
            counters=counters or GroupCounters(),
            deleted_topics=TimelineDict(snapshots),
            is_deleting_topics=TimelineValue(snapshots, False),
            is_held=is_held,
            authorizer=authorizer and authorizer.for_api(ApiKey.CONSUMER_GROUP_HEARTBEAT),
        )
        super().__init__(context)
        self.groups = groups
        self.offsets = self.context.offsets
        self._replayers: dict[type, Callable[[Any], None]] = {}
        for kind in kinds:
            manager = self.context.managers[kind.name] = kind.make_manager(self.context)
            self._replayers.update(manager.replayers)

    # Replay

    def replay(self, offset: int, producer_id: int, _producer_epoch: int, record: GroupRecord, /) -> None:
        if type(record) is OffsetCommit:
            if record.group_id not in self.groups:
                self.context.ensure_group(record.group_id)
            if producer_id == NO_PRODUCER_ID:
                self.offsets.replay_commit(offset, record)
            else:
                self.offsets.replay_transactional_commit(offset, producer_id, record)
        elif type(record) is OffsetCommitTombstone:
            self.offsets.replay_tombstone(record)
        else:
            self._replayers[type(record)](record)

    def replay_all(self, offset: int, producer_id: int, producer_epoch: int, records: Sequence[GroupRecord], /) -> None:
        """See `kohort.machine.shard.Shard`: a commit of many partitions is one pass over its group's table."""
        if type(records) is not list and isinstance(records, PackedRecords) and producer_id == NO_PRODUCER_ID:
            records.replay(self, offset)
            return
        commits: list[OffsetCommit] = []
        for record in records:
            if type(record) is OffsetCommit and producer_id == NO_PRODUCER_ID:
                if commits and record.group_id != commits[0].group_id:
                    self._replay_commits(offset, commits)
                    offset, commits = offset + len(commits), []
                commits.append(record)
                continue
            if commits:
                self._replay_commits(offset, commits)
                offset, commits = offset + len(commits), []
            self.replay(offset, producer_id, producer_epoch, record)
            offset += 1
        if commits:
            self._replay_commits(offset, commits)

    def _replay_commits(self, offset: int, commits: list[OffsetCommit]) -> None:
        """Replay commits of one group."""
        self.context.ensure_group(commits[0].group_id)
        self.offsets.replay_commits(offset, commits)

    def replay_bulk(self, records: RawRecords, replay_one: Callable[[int], None], /) -> Iterator[None]:
        """See `kohort.machine.shard.Shard`."""
        # With numpy, which a server starts without.
        from kohort.group.bulk import replay_offsets

        if len(records):
            self.offsets.newest_record_offset = int(records.offsets[-1])
        return replay_offsets(self._table_to_fill, records, replay_one)

    def _table_to_fill(self, group_id: str) -> GroupOffsets:
        self.context.ensure_group(group_id)
        return self.offsets.to_fill(group_id)

    def replay_end_transaction_marker(self, producer_id: int, _producer_epoch: int, /, *, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed=committed)

    # Life cycle

    def on_coordinator_epoch(self, _coordinator_epoch: int, /) -> None:
        """Do nothing: no record of a group holds the coordinator epoch."""

    def use_executor(self, executor: Executor, /) -> None:
        self.context.executor = executor

    def on_loaded(self, image: ClusterImage, now_ms: int, /) -> Result[GroupRecord, None]:
        self.context.image = image
        managers = self.context.managers
        deadlines: list[Deadline] = []
        effects: list[GroupEvent] = []
        for group in self.groups.values():
            begun = managers[group.kind].on_loaded(group, now_ms)
            deadlines += begun.deadlines
            effects += begun.effects
        deadlines.append(cleanup_deadline(self.context))
        return Result(deadlines=deadlines, effects=effects)

    def on_image(self, image: ClusterImage, delta: ImageDelta, _now_ms: int, /) -> Result[GroupRecord, None]:
        """Delete the offsets of deleted topics, in operations of their own: there may be many."""
        self.context.image = image
        deadlines = [deadline for manager in self.context.managers.values() for deadline in manager.on_image(delta)]
        if delta.deleted:
            deadlines += delete_topics(self.context, delta.deleted)
        return Result(deadlines=deadlines)

    def on_unloaded(self) -> None:
        """Do nothing: the shard has begun nothing outside."""
