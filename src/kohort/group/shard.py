"""
The group coordinator of one partition of `__consumer_offsets`: what it is made of, and how it is replayed.

Handlers live beside it, one module per API. A classic group's contents are soft in so far as its handlers change them ahead of
the write, as in Kafka; the log then says what a later load sees (records with `replayed` off).

Source: Kafka GroupCoordinatorShard, GroupMetadataManager, OffsetMetadataManager.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kohort.group.classic.describe import describe_group
from kohort.group.classic.expiry import expire_member
from kohort.group.classic.group import ClassicGroup, group_from_record
from kohort.group.classic.heartbeat import heartbeat
from kohort.group.classic.join import join_group
from kohort.group.classic.leave import leave_group
from kohort.group.classic.rebalance import prepare_rebalance, refuse_parked_join, refuse_parked_sync
from kohort.group.classic.registry import GroupRegistry, Releases
from kohort.group.classic.states import DEAD
from kohort.group.classic.sync import sync_group
from kohort.group.configs import GroupConfig
from kohort.group.deletion import DeleteGroupResults, delete_groups
from kohort.group.listing import list_groups
from kohort.group.metrics import GroupCounters, GroupGauges
from kohort.group.offsets.commit import commit_prepared, offset_commit
from kohort.group.offsets.deletion import TopicDeletion, offset_delete, topic_tombstones
from kohort.group.offsets.expiry import cleanup_expired_offsets
from kohort.group.offsets.fetch import fetch_offsets
from kohort.group.offsets.offsets import Offsets
from kohort.group.offsets.prepared_commits import CommitRun, PreparedCommit
from kohort.group.offsets.scan import OffsetScan
from kohort.group.records import GroupMetadata, GroupRecord, GroupTombstone, OffsetCommit, OffsetTombstone
from kohort.machine.bulk import RawRecords
from kohort.machine.shard import NO_PRODUCER_ID, Release, Reply, Result, Timers
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.image import ClusterImage, ImageDelta
from kohort.wire import messages as m
from kohort.wire.encoders import PreparedResponse

SWEEP_TIMER: Final = "expire offsets"
SWEEP_PART_TIMER: Final = "expire offsets of some groups"
DELETED_TOPICS_TIMER: Final = "delete offsets of deleted topics"


class GroupShard:
    """
    Implements `kohort.machine.shard.Shard` for `GroupRecord`.

    Args:
        snapshots: the shard's; whoever runs the shard takes them.
        new_uuid: text of a fresh random UUID.
        counters: those of the partition, which outlive the shard; new ones by default.
    """

    def __init__(
        self,
        snapshots: SnapshotRegistry,
        timers: Timers,
        config: GroupConfig,
        new_uuid: Callable[[], str],
        counters: GroupCounters | None = None,
    ) -> None:
        groups: TimelineDict[str, ClassicGroup] = TimelineDict(snapshots)
        self.registry = GroupRegistry(groups, timers, config, new_uuid, expire_member, counters or GroupCounters())
        self.offsets = Offsets(snapshots)
        self._timers = timers
        self._config = config
        self._snapshots = snapshots
        self._deleted_topics: dict[str, int] = {}
        """Those whose offsets are still to be deleted, as `TopicDeletion.topics`, without those of the deletion under way."""
        self._deletion: TopicDeletion | None = None

    @property
    def groups(self) -> TimelineDict[str, ClassicGroup]:
        return self.registry.groups

    # Replay

    def replay(self, offset: int, producer_id: int, _producer_epoch: int, record: GroupRecord, /) -> None:
        match record:
            case OffsetCommit():
                self._know_group(record.group_id)
                if producer_id == NO_PRODUCER_ID:
                    self.offsets.replay_commit(offset, record)
                else:
                    self.offsets.replay_transactional_commit(offset, producer_id, record)
            case OffsetTombstone():
                self.offsets.replay_tombstone(record)
            case GroupMetadata():
                self.groups.put(record.group_id, group_from_record(record))
            case GroupTombstone():
                self.groups.remove(record.group_id)

    def replay_all(self, offset: int, producer_id: int, producer_epoch: int, records: Sequence[GroupRecord], /) -> None:
        """See `kohort.machine.bulk.RunShard`: a commit of many partitions is one pass over its group's table."""
        if type(records) is CommitRun and producer_id == NO_PRODUCER_ID:
            group_id = records.plan.request.group_id
            self._know_group(group_id)
            self.offsets.newest_record_offset = offset + len(records.offsets) - 1
            records.replay_into(self.offsets.to_fill(group_id), offset)
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
        """All of one group."""
        self._know_group(commits[0].group_id)
        self.offsets.replay_commits(offset, commits)

    def _know_group(self, group_id: str) -> None:
        """Offsets make a group where there is none."""
        groups = self.registry.groups
        if group_id not in groups:
            groups.put(group_id, ClassicGroup(group_id))

    def replay_bulk(self, records: RawRecords, replay_one: Callable[[int], None], /) -> Iterator[None]:
        """See `kohort.machine.bulk.BulkShard`."""
        # With numpy, which a server starts without.
        from kohort.group.bulk import replay_offsets

        return replay_offsets(self, records, replay_one)

    def replay_end_transaction_marker(self, producer_id: int, _producer_epoch: int, /, *, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed=committed)

    # Life cycle

    def on_loaded(self, _image: ClusterImage, now_ms: int, /) -> None:
        """Every member gets a whole session to show up; a group that is too large now rebalances to shrink."""
        for group in self.groups.values():
            for member in group.members.values():
                self.registry.arm_session(group, member)
            if len(group.members) > self._config.group_max_size:
                releases: Releases = []
                prepare_rebalance(self.registry, group, releases, now_ms)
                assert not releases, "nothing is parked right after a load"
        self._schedule_sweep()

    def on_coordinator_epoch(self, _coordinator_epoch: int, /) -> None:
        """Do nothing: no record of a group holds the coordinator epoch."""

    def on_image(self, _image: ClusterImage, delta: ImageDelta, _now_ms: int, /) -> Result[GroupRecord, None]:
        """Delete the offsets of deleted topics, in operations of their own: there may be many."""
        if delta.deleted:
            names = [topic.name for topic in delta.deleted]
            self._deleted_topics.update(dict.fromkeys(names, self._newest_record_offset()))
            if self._deletion is None:
                self._begin_deletion()
            elif self._timers.is_scheduled(DELETED_TOPICS_TIMER):
                # One that failed need not wait any longer.
                self._go_on_deleting(self._deletion)
        return Result()

    def _newest_record_offset(self) -> int:
        """Whatever is committed from now on lies behind it."""
        snapshot = self._snapshots.newest
        return max(self.offsets.newest_record_offset, -1 if snapshot is None else snapshot.epoch - 1)

    def on_unloaded(self) -> Iterable[Release]:
        """Whoever waits is sent to look for the new coordinator; group by group, there may be many."""
        for group in self.groups.values():
            releases: Releases = []
            group.move_to(DEAD, group.state_timestamp_ms or 0)
            for member in group.members.values():
                refuse_parked_join(group, member, releases, ErrorCode.NOT_COORDINATOR, member.member_id)
                refuse_parked_sync(member, releases, ErrorCode.NOT_COORDINATOR)
            yield from releases

    def _schedule_sweep(self) -> None:
        delay_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(SWEEP_TIMER, delay_ms, self._sweep, retry=True)

    def _sweep(self, _now_ms: int) -> Result[GroupRecord, None]:
        self._schedule_sweep()
        self._schedule_part(OffsetScan(list(self.groups)))
        return Result()

    def _schedule_part(self, under_way: OffsetScan) -> None:
        self._timers.schedule(SWEEP_PART_TIMER, 0, partial(self._sweep_part, under_way), retry=True)

    def _sweep_part(self, under_way: OffsetScan, now_ms: int) -> Result[GroupRecord, None]:
        """Some offsets in an operation, and the rest in the next when this one is written; one that fails is tried again."""
        records, following = cleanup_expired_offsets(self.registry, self.offsets, now_ms, under_way)

        def after(error: Exception | None) -> Iterable[Release]:
            if error is None and following is not None:
                self._schedule_part(following)
            return ()

        return Result(records, after=after, is_atomic=False)

    def _begin_deletion(self) -> None:
        topics, self._deleted_topics = self._deleted_topics, {}
        self._go_on_deleting(TopicDeletion(topics) if topics else None)

    def _go_on_deleting(self, under_way: TopicDeletion | None) -> None:
        self._deletion = under_way
        if under_way is not None:
            self._timers.schedule(DELETED_TOPICS_TIMER, 0, partial(self._delete_part, under_way), retry=True)

    def _delete_part(self, under_way: TopicDeletion, _now_ms: int) -> Result[GroupRecord, None]:
        """As `_sweep_part`; topics that were deleted meanwhile come when these are done."""
        records, following = topic_tombstones(self.offsets, under_way)

        def after(error: Exception | None) -> Iterable[Release]:
            # A part that was not written in time is tried again, and may be written twice: that counts once.
            if error is None and under_way is self._deletion:
                if following is None:
                    self._begin_deletion()
                else:
                    self._go_on_deleting(following)
            return ()

        return Result(records, after=after, is_atomic=False)

    # Classic groups

    def join_group(
        self, request: m.JoinGroupRequest, context: RequestContext, reply: Reply[m.JoinGroupResponse], now_ms: int
    ) -> Result[GroupRecord, m.JoinGroupResponse]:
        return join_group(self.registry, request, context, reply, now_ms)

    def sync_group(
        self, request: m.SyncGroupRequest, reply: Reply[m.SyncGroupResponse], now_ms: int
    ) -> Result[GroupRecord, m.SyncGroupResponse]:
        return sync_group(self.registry, request, reply, now_ms)

    def heartbeat(self, request: m.HeartbeatRequest) -> Result[GroupRecord, m.HeartbeatResponse]:
        return heartbeat(self.registry, request)

    def leave_group(self, request: m.LeaveGroupRequest, now_ms: int) -> Result[GroupRecord, m.LeaveGroupResponse]:
        return leave_group(self.registry, request, now_ms)

    # Groups of any type

    def describe_group(
        self, group_id: str, *, api_version: int, committed_offset: int
    ) -> m.DescribeGroupsResponseDescribedGroup:
        return describe_group(self.groups, group_id, api_version=api_version, committed_offset=committed_offset)

    def list_groups(
        self, request: m.ListGroupsRequest, *, committed_offset: int
    ) -> list[m.ListGroupsResponseListedGroup]:
        states, types = request.states_filter, request.types_filter
        return list(list_groups(self.groups, states=states, types=types, committed_offset=committed_offset))

    def delete_groups(self, group_ids: Sequence[str]) -> Result[GroupRecord, DeleteGroupResults]:
        return delete_groups(self.registry, self.offsets, group_ids)

    def count(self, gauges: GroupGauges) -> GroupGauges:
        """Add what there is here."""
        return gauges.add(self.groups.values(), self.offsets)

    # Offsets

    def offset_commit(
        self, request: m.OffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result[GroupRecord, m.OffsetCommitResponse]:
        return offset_commit(self.registry, request, context, now_ms)

    def commit_prepared(
        self, plan: PreparedCommit, offsets: tuple[int, ...], context: RequestContext, now_ms: int
    ) -> Result[GroupRecord, m.OffsetCommitResponse | PreparedResponse]:
        return commit_prepared(self.registry, plan, offsets, context, now_ms)

    def offset_fetch(self, request: m.OffsetFetchRequestGroup, *, committed_offset: int) -> m.OffsetFetchResponseGroup:
        """As of the high watermark, pending transactions or not."""
        return fetch_offsets(
            self.registry, self.offsets, request, require_stable=False, committed_offset=committed_offset
        )

    def offset_fetch_stable(
        self, request: m.OffsetFetchRequestGroup
    ) -> Result[GroupRecord, m.OffsetFetchResponseGroup]:
        """The newest state; a result without records, so that it is answered when all of that is committed."""
        response = fetch_offsets(self.registry, self.offsets, request, require_stable=True, committed_offset=None)
        return Result(response=response)

    def offset_delete(self, request: m.OffsetDeleteRequest) -> Result[GroupRecord, m.OffsetDeleteResponse]:
        return offset_delete(self.registry, self.offsets, request)
