"""
The group coordinator's APIs on one node. What does not depend on a group is checked here; then its shard is asked.

Every API is a method `api(request, context, reply)`: it returns the response, or None and calls `reply` later, exactly once.
No method raises: errors become codes of the response. The APIs of one kind of groups are in that kind's room.

Source: Kafka GroupCoordinatorService, and the group handlers of KafkaApis.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.deletion import DeleteGroupResults, delete_groups
from kohort.group.errors import append_error, stable_fetch_error
from kohort.group.events import GroupEvents, no_events
from kohort.group.front import GroupFront
from kohort.group.groups import Group
from kohort.group.kinds import KINDS, GroupKind
from kohort.group.listing import GroupFilter, Listed, begin_listing, filter_of, list_groups
from kohort.group.metrics import GroupGauges
from kohort.group.offsets import validation, versions
from kohort.group.offsets.commit import commit_refused, offset_commit
from kohort.group.offsets.deletion import offset_delete
from kohort.group.offsets.fetch import fetch_offsets, fetch_refused
from kohort.group.offsets.long_commits import (
    OffsetCommitOf,
    TxnOffsetCommitOf,
    long_offset_commit,
    long_txn_offset_commit,
    offset_commit_of,
    partitions_of,
    txn_offset_commit_of,
)
from kohort.group.offsets.offsets import GroupOffsets
from kohort.group.offsets.prepared_commits import RepeatedCommits
from kohort.group.offsets.transactional_commit import (
    producer_of,
    transactional_error,
    txn_commit_refused,
    txn_offset_commit,
)
from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, Awaited, LongHandler, chunks
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply, Result, Runner
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain

T = TypeVar("T")


class GroupService(GroupFront):
    """
    Args:
        image: the topics of the cluster; a live view.
        kinds: the kinds of groups that there may be.
        emit: receives the events of requests that are refused before the shard is asked.
    """

    def __init__(
        self,
        runner: Runner[HasContext],
        config: GroupConfig,
        image: ClusterImage,
        kinds: Sequence[GroupKind] = KINDS,
        emit: GroupEvents = no_events,
    ) -> None:
        super().__init__(runner, config, image, emit)
        self._apis = [kind.make_apis(self) for kind in kinds]

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        handlers: dict[ApiKey, Callable[..., Any]] = {
            ApiKey.OFFSET_COMMIT: RepeatedCommits(self, self.offset_commit, self.commit_in_steps),
            ApiKey.TXN_OFFSET_COMMIT: LongHandler(self.txn_offset_commit, self.txn_commit_in_steps),
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
        }
        for apis in self._apis:
            handlers.update(apis.handlers())
        return handlers

    # Groups of any kind

    def list_groups(
        self, request: m.ListGroupsRequest, _context: RequestContext, _reply: Reply[m.ListGroupsResponse]
    ) -> Generator[None, None, m.ListGroupsResponse]:
        """
        List, in steps, the groups of all shards here. An error of one shard fails the request, unless it is NOT_COORDINATOR.

        Up to `HANDLER_STEP` groups of one shard are listed as of one moment. Of a larger shard each such number of groups is
        listed as of its own time: groups that are new since the beginning or were deleted before their turn are left out.
        """
        if not self.is_active:
            return m.ListGroupsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        wanted = yield from filter_of(request)
        groups: list[m.ListGroupsResponseListedGroup] = []
        visited = 0
        for partition in range(self.runner.partition_count):
            code, count, found, rest = self._begin_listing(partition, wanted)
            visited += count
            for group_ids in rest:
                yield
                code, listed = self._list(partition, wanted, group_ids)
                if code is not ErrorCode.NONE:
                    break
                found += listed
            if code is ErrorCode.NONE:
                groups += found
            elif code is not ErrorCode.NOT_COORDINATOR:
                return m.ListGroupsResponse(error_code=int(code))
            if visited >= HANDLER_STEP:
                visited = 0
                yield
        return m.ListGroupsResponse(groups=groups)

    def _begin_listing(
        self, partition: int, wanted: GroupFilter
    ) -> tuple[ErrorCode, int, Listed, Sequence[Sequence[str]]]:
        def query(shard: HasContext, at: int) -> tuple[ErrorCode, int, Listed, Sequence[Sequence[str]]]:
            return ErrorCode.NONE, *begin_listing(shard.context, wanted, committed_offset=at)

        return self.runner.read(partition, query, lambda error: (append_error(error), 0, [], ()))

    def _list(self, partition: int, wanted: GroupFilter, group_ids: Sequence[str]) -> tuple[ErrorCode, Listed]:
        def query(shard: HasContext, at: int) -> tuple[ErrorCode, Listed]:
            return ErrorCode.NONE, list_groups(shard.context, wanted, group_ids, committed_offset=at)

        return self.runner.read(partition, query, lambda error: (append_error(error), []))

    def delete_groups(
        self, request: m.DeleteGroupsRequest, _context: RequestContext, reply: Reply[m.DeleteGroupsResponse]
    ) -> m.DeleteGroupsResponse | None:
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request.groups_names):
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        if not self.is_active:
            group_ids = [group_id for group_ids in by_partition.values() for group_id in group_ids]
            return _merge_deleted([_deletion_refused(group_ids, ErrorCode.COORDINATOR_NOT_AVAILABLE)])
        aggregator = ResponseAggregator(len(by_partition), _merge_deleted, reply)
        for index, (partition, group_ids) in enumerate(by_partition.items()):
            aggregator.put(index, self._delete(partition, group_ids, aggregator.reply_to(index)))
        return aggregator.finish()

    def _delete(
        self, partition: int, group_ids: list[str], reply: Reply[DeleteGroupResults]
    ) -> DeleteGroupResults | None:
        return self.runner.write(
            partition,
            lambda shard, _: delete_groups(shard.context, group_ids),
            reply,
            lambda error: _deletion_refused(group_ids, append_error(error)),
        )

    # Offsets

    def offset_commit(
        self, request: m.OffsetCommitRequest, context: RequestContext, reply: Reply[m.OffsetCommitResponse]
    ) -> m.OffsetCommitResponse | None:
        if self.is_active and validation.is_plain_commit(request, context, self.image):
            return self._commit(request, context, reply)
        checked = validation.check_commit(request, context, self.image)
        if not checked.request.topics:
            # Kafka does not ask the group when no topic is left.
            return checked.merge(m.OffsetCommitResponse())
        if not self.is_active:
            return checked.merge(commit_refused(checked.request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        response = self._commit(checked.request, context, checked.merging(reply))
        return None if response is None else checked.merge(response)

    def commit_in_steps(
        self, request: m.OffsetCommitRequest, context: RequestContext, _reply: Reply[m.OffsetCommitResponse]
    ) -> Generator[Any, None, m.OffsetCommitResponse]:
        """A request with many elements. The group takes its offsets as a whole, as those of a short request."""

        def check() -> Generator[None, None, tuple[validation.CheckedCommit, OffsetCommitOf]]:
            checked = yield from validation.check_commit_in_steps(request, context, self.image)
            commit = offset_commit_of(checked.request)
            yield from commit.accept(self.config.offset_metadata_max_bytes)
            return checked, commit

        checked, commit = yield from self._of_one_image(check)
        accepted, version = checked.request, context.api_version
        if accepted.topics:
            code = ErrorCode.NONE if self.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code is ErrorCode.NONE:
                awaited: Awaited[ErrorCode] = Awaited()
                response = self.runner.write(
                    self.partition_for(accepted.group_id),
                    lambda shard, now_ms: long_offset_commit(shard.context, accepted, commit.entries, version, now_ms),
                    awaited.reply,
                    append_error,
                )
                code = yield from awaited.get(response)
            if code is not ErrorCode.NONE:
                yield from commit.refuse(code)
        return (yield from checked.merge_in_steps(m.OffsetCommitResponse(topics=commit.answers)))

    def _of_one_image(self, check: Callable[[], Generator[None, None, T]]) -> Generator[None, None, T]:
        """The result of a check in steps. It is repeated in one step if topics have changed meanwhile."""
        version = self.image.version
        checked = yield from check()
        return checked if self.image.version == version else drain(check())

    def _commit(
        self, request: m.OffsetCommitRequest, context: RequestContext, reply: Reply[m.OffsetCommitResponse]
    ) -> m.OffsetCommitResponse | None:
        version = context.api_version
        return self.runner.write(
            coordinator_partition(request.group_id, self.runner.partition_count),
            lambda shard, now_ms: offset_commit(shard.context, request, version, now_ms),
            reply,
            lambda error: commit_refused(request, append_error(error)),
        )

    def txn_offset_commit(
        self, request: m.TxnOffsetCommitRequest, context: RequestContext, reply: Reply[m.TxnOffsetCommitResponse]
    ) -> m.TxnOffsetCommitResponse | None:
        checked = validation.check_txn_commit(request, self.image)
        accepted = checked.request
        if not accepted.topics:
            # As for OffsetCommit, Kafka asks neither the group nor the transaction coordinator.
            return checked.merge(m.TxnOffsetCommitResponse())
        code = self.refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return checked.merge(txn_commit_refused(accepted, code))
        version = context.api_version
        response = self.runner.write_transactional(
            self.partition_for(request.group_id),
            producer_of(request, version),
            lambda shard, now_ms: txn_offset_commit(shard.context, accepted, now_ms),
            lambda response: reply(checked.merge(response)),
            lambda error: txn_commit_refused(accepted, transactional_error(error, version)),
        )
        return None if response is None else checked.merge(response)

    def txn_commit_in_steps(
        self, request: m.TxnOffsetCommitRequest, context: RequestContext, _reply: Reply[m.TxnOffsetCommitResponse]
    ) -> Generator[Any, None, m.TxnOffsetCommitResponse]:
        """A request with many elements, whose offsets become pending as a whole."""

        def check() -> Generator[None, None, tuple[validation.CheckedTxnCommit, TxnOffsetCommitOf]]:
            checked = yield from validation.check_txn_commit_in_steps(request, self.image)
            commit = txn_offset_commit_of(checked.request)
            yield from commit.accept(self.config.offset_metadata_max_bytes)
            return checked, commit

        checked, commit = yield from self._of_one_image(check)
        accepted, version = checked.request, context.api_version
        if accepted.topics:
            code = self.refusal(request.group_id)
            if code is ErrorCode.NONE:
                partitions = yield from partitions_of(request.group_id, commit.entries)
                awaited: Awaited[ErrorCode] = Awaited()
                response = self.runner.write_transactional(
                    self.partition_for(request.group_id),
                    producer_of(request, version),
                    lambda shard, now_ms: long_txn_offset_commit(
                        shard.context, accepted, commit.entries, partitions, now_ms
                    ),
                    awaited.reply,
                    lambda error: transactional_error(error, version),
                )
                code = yield from awaited.get(response)
            if code is not ErrorCode.NONE:
                yield from commit.refuse(code)
        return (yield from checked.merge_in_steps(m.TxnOffsetCommitResponse(topics=commit.answers)))

    def offset_fetch(
        self, request: m.OffsetFetchRequest, context: RequestContext, reply: Reply[m.OffsetFetchResponse]
    ) -> m.OffsetFetchResponse | None:
        groups = versions.upgrade_fetch(request, context)
        aggregator: ResponseAggregator[m.OffsetFetchResponseGroup, m.OffsetFetchResponse] = ResponseAggregator(
            len(groups), lambda parts: versions.downgrade_fetch(parts, context), reply
        )
        for index, group in enumerate(groups):
            answer = self._fetch(group, context, aggregator.reply_to(index), is_stable=request.require_stable)
            aggregator.put(index, answer)
        return aggregator.finish()

    def _fetch(
        self,
        group: m.OffsetFetchRequestGroup,
        context: RequestContext,
        reply: Reply[m.OffsetFetchResponseGroup],
        *,
        is_stable: bool,
    ) -> m.OffsetFetchResponseGroup | None:
        if not self.is_active:
            return fetch_refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        checked = validation.check_fetch(group, context, self.image)
        partition = self.partition_for(group.group_id)
        if is_stable:
            # A write operation without records sees the newest state, and is answered when that is committed.
            later: m.OffsetFetchResponseGroup | None = self.runner.write(
                partition,
                lambda shard, _: Result(
                    response=fetch_offsets(shard.context, checked.request, require_stable=True, committed_offset=None)
                ),
                lambda response: reply(checked.merge(response)),
                lambda error: fetch_refused(group, stable_fetch_error(error)),
            )
            return None if later is None else checked.merge(later)
        response = self.runner.read(
            partition,
            lambda shard, at: fetch_offsets(shard.context, checked.request, require_stable=False, committed_offset=at),
            lambda error: fetch_refused(group, append_error(error)),
        )
        return checked.merge(response)

    def offset_delete(
        self, request: m.OffsetDeleteRequest, _context: RequestContext, reply: Reply[m.OffsetDeleteResponse]
    ) -> m.OffsetDeleteResponse | None:
        code = self.refusal(request.group_id)
        if code is not ErrorCode.NONE:
            return m.OffsetDeleteResponse(error_code=int(code))
        checked = validation.check_delete(request, self.image)
        response = self.runner.write(
            self.partition_for(request.group_id),
            lambda shard, _: offset_delete(shard.context, checked.request),
            lambda response: reply(checked.merge(response)),
            lambda error: m.OffsetDeleteResponse(error_code=int(append_error(error))),
        )
        return None if response is None else checked.merge(response)

    # Metrics

    def gauges_in_steps(self) -> Generator[None, None, GroupGauges]:
        """Count, in steps, the groups and offsets of all shards that are active here."""
        gauges = GroupGauges()
        shards: Sequence[tuple[list[Group], list[GroupOffsets]]] = self.runner.read_all(
            lambda shard, _: (list(shard.context.groups.values()), list(shard.context.offsets.by_group.values())),
            lambda _: ([], []),
        )
        for groups, offsets in shards:
            for some in chunks(groups, LOOK_STEP):
                gauges.add(some)
                yield
            for lists in chunks(offsets, LOOK_STEP):
                gauges.offsets += sum(map(len, lists))
                yield
        return gauges


def _deletion_refused(group_ids: Sequence[str], code: ErrorCode) -> DeleteGroupResults:
    return tuple(
        m.DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=int(code)) for group_id in group_ids
    )


def _merge_deleted(parts: Sequence[DeleteGroupResults]) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(results=[result for part in parts for result in part])
