"""
The group coordinator's APIs on one node. What does not depend on a group is checked here; then its shard is asked.

Every API is a method `api(request, context, reply)`: it returns the response, or None and calls `reply` later, exactly once.
No method raises: errors become codes of the response. The APIs of one kind of groups are in that kind's room.

Source: Kafka GroupCoordinatorService, and the group handlers of KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.deletion import DeleteGroupResults, delete_groups
from kohort.group.errors import append_error, stable_fetch_error
from kohort.group.events import GroupEvents, no_events
from kohort.group.front import GroupFront
from kohort.group.groups import Group
from kohort.group.kinds import KINDS, GroupKind, PreparesDeletion
from kohort.group.listing import GroupFilter, Listed, begin_listing, filter_of, list_groups
from kohort.group.metrics import GroupGauges
from kohort.group.offsets import validation, versions
from kohort.group.offsets.commit import offset_commit
from kohort.group.offsets.commit_answers import (
    TOPIC_IDS_SINCE,
    TXN_TOPIC_IDS_SINCE,
    CommitAnswers,
    offset_commit_answers,
    txn_offset_commit_answers,
)
from kohort.group.offsets.deletion import offset_delete
from kohort.group.offsets.fetch import (
    Found,
    answer_found,
    asked_partitions,
    fetch_refused,
    find_offsets,
    find_stable_offsets,
)
from kohort.group.offsets.offsets import GroupOffsets, Partition
from kohort.group.offsets.prepared_commits import RepeatedCommits
from kohort.group.offsets.repeated_fetches import FetchResponse, RepeatedFetch
from kohort.group.offsets.transactional_commit import (
    partitions_of,
    producer_of,
    transactional_error,
    txn_offset_commit,
)
from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, Awaited, Stepwise, chunks
from kohort.machine.ports import LatestOffsets, Persister
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply, Runner
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from kohort.wire.templates import Repeatable, RequestTemplate

A = TypeVar("A")
T = TypeVar("T")


class GroupService(GroupFront):
    """
    Args:
        image: the topics of the cluster; a live view.
        kinds: the kinds of groups that there may be.
        emit: receives the events of requests that are refused before the shard is asked.
        persister: the share coordinators; None on a host that has none, which serves no share groups.
        latest_offsets: the leaders of partitions, for the lag of share groups; without them it is unknown.
    """

    def __init__(
        self,
        runner: Runner[HasContext],
        config: GroupConfig,
        image: ClusterImage,
        kinds: Sequence[GroupKind] = KINDS,
        emit: GroupEvents = no_events,
        persister: Persister | None = None,
        latest_offsets: LatestOffsets | None = None,
    ) -> None:
        super().__init__(runner, config, image, emit, persister, latest_offsets)
        self._apis = [kind.make_apis(self) for kind in kinds]
        self._preparing = next((apis for apis in self._apis if isinstance(apis, PreparesDeletion)), None)

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        handlers: dict[ApiKey, Callable[..., Any]] = {
            ApiKey.OFFSET_COMMIT: RepeatedCommits(self, self.commit_offsets),
            ApiKey.TXN_OFFSET_COMMIT: Stepwise(self.commit_transactional_offsets),
            ApiKey.OFFSET_FETCH: Repeatable(self.offset_fetch, self.offset_fetch_again),
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
        def prepared(refused: Mapping[str, ErrorCode]) -> None:
            left = [group_id for group_id in group_ids if group_id not in refused]
            results = [*chain.from_iterable(_deletion_refused([group_id], code) for group_id, code in refused.items())]
            deleted = self._delete_prepared(partition, left, lambda deleted: reply((*results, *deleted)))
            if deleted is not None:
                reply((*results, *deleted))

        if self._preparing is not None and self._preparing.prepare_deletion(partition, group_ids, prepared):
            return None
        return self._delete_prepared(partition, group_ids, reply)

    def _delete_prepared(
        self, partition: int, group_ids: list[str], reply: Reply[DeleteGroupResults]
    ) -> DeleteGroupResults | None:
        return self.runner.write(
            partition,
            lambda shard, _: delete_groups(shard.context, group_ids),
            reply,
            lambda error: _deletion_refused(group_ids, append_error(error)),
        )

    # Offsets

    def commit_offsets(
        self, request: m.OffsetCommitRequest, context: RequestContext, _reply: Reply[m.OffsetCommitResponse]
    ) -> Generator[Any, None, m.OffsetCommitResponse]:
        """OffsetCommit. The group takes the offsets as a whole. It is not asked when no topic is left, as in Kafka."""
        version = context.api_version
        by_id = version >= TOPIC_IDS_SINCE
        answers = yield from self._checked(offset_commit_answers, request.topics, by_id=by_id)
        if answers.asked:
            code = ErrorCode.NONE if self.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code is ErrorCode.NONE:
                awaited: Awaited[ErrorCode] = Awaited()
                response = self.runner.write(
                    coordinator_partition(request.group_id, self.runner.partition_count),
                    Operation(offset_commit, request, answers.entries, version),
                    awaited.reply,
                    append_error,
                )
                code = yield from awaited.get(response)
            if code is not ErrorCode.NONE:
                yield from answers.refuse(code)
        return m.OffsetCommitResponse(topics=(yield from answers.topics()))

    def commit_transactional_offsets(
        self, request: m.TxnOffsetCommitRequest, context: RequestContext, _reply: Reply[m.TxnOffsetCommitResponse]
    ) -> Generator[Any, None, m.TxnOffsetCommitResponse]:
        """
        TxnOffsetCommit. The offsets become pending as a whole. As for OffsetCommit, neither the group nor the transaction
        coordinator is asked when no topic is left.
        """
        version = context.api_version
        by_id = version >= TXN_TOPIC_IDS_SINCE
        answers = yield from self._checked(txn_offset_commit_answers, request.topics, by_id=by_id)
        if answers.asked:
            code = self.refusal(request.group_id)
            if code is ErrorCode.NONE:
                partitions = yield from partitions_of(request.group_id, answers.entries)
                awaited: Awaited[ErrorCode] = Awaited()
                response = self.runner.write_transactional(
                    self.partition_for(request.group_id),
                    producer_of(request, version),
                    Operation(txn_offset_commit, request, answers.entries, partitions, version),
                    awaited.reply,
                    partial(transactional_error, version),
                )
                code = yield from awaited.get(response)
            if code is not ErrorCode.NONE:
                yield from answers.refuse(code)
        return m.TxnOffsetCommitResponse(topics=(yield from answers.topics()))

    def _checked(
        self, make: Callable[[], CommitAnswers[A, T]], topics: Sequence[Any], *, by_id: bool
    ) -> Generator[None, None, CommitAnswers[A, T]]:
        """Check the topics of a commit in steps; again in one step if topics have changed meanwhile."""
        answers, version = make(), self.image.version
        yield from answers.check(topics, self.image, self.config.offset_metadata_max_bytes, by_id=by_id)
        if self.image.version != version:
            answers = make()
            drain(answers.check(topics, self.image, self.config.offset_metadata_max_bytes, by_id=by_id))
        return answers

    def offset_fetch(
        self, request: m.OffsetFetchRequest, context: RequestContext, reply: Reply[m.OffsetFetchResponse]
    ) -> m.OffsetFetchResponse | None:
        version = context.api_version
        groups = versions.upgrade_fetch(request, version)
        if len(groups) == 1:
            # Most requests: an aggregator of one part is a tenth of their cost.
            answered = self._fetch(
                groups[0],
                context,
                lambda part: reply(versions.downgrade_fetch((part,), version)),
                is_stable=request.require_stable,
            )
            return None if answered is None else versions.downgrade_fetch((answered,), version)
        aggregator: ResponseAggregator[m.OffsetFetchResponseGroup, m.OffsetFetchResponse] = ResponseAggregator(
            len(groups), lambda parts: versions.downgrade_fetch(parts, version), reply
        )
        for index, group in enumerate(groups):
            answer = self._fetch(group, context, aggregator.reply_to(index), is_stable=request.require_stable)
            aggregator.put(index, answer)
        return aggregator.finish()

    def offset_fetch_again(
        self, template: RequestTemplate, context: RequestContext, reply: Reply[FetchResponse]
    ) -> FetchResponse | None:
        """As `offset_fetch`, for a repeated request."""
        request: m.OffsetFetchRequest = template.request
        fetch: RepeatedFetch | None = template.memo
        if fetch is None:
            fetch = template.memo = RepeatedFetch(template, context.api_version)
        if fetch.group is None or not self.is_active:
            return self.offset_fetch(request, context, reply)
        found = self._find(
            fetch.group,
            fetch.partitions,
            lambda found: reply(fetch.answer(found)),
            is_stable=request.require_stable,
        )
        return None if found is None else fetch.answer(found)

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
        named = checked.request
        found = self._find(
            named,
            asked_partitions(named),
            lambda found: reply(checked.merge(answer_found(named, found))),
            is_stable=is_stable,
        )
        return None if found is None else checked.merge(answer_found(named, found))

    def _find(
        self,
        group: m.OffsetFetchRequestGroup,
        partitions: list[Partition] | None,
        reply: Reply[Found],
        *,
        is_stable: bool,
    ) -> Found | None:
        """Let the shard of a group look its offsets up."""
        partition = coordinator_partition(group.group_id, self.runner.partition_count)
        if is_stable:
            # A write operation without records sees the newest state, and is answered when that is committed.
            return self.runner.write(
                partition, Operation(find_stable_offsets, group, partitions), reply, stable_fetch_error
            )
        return self.runner.read(
            partition,
            lambda shard, at: find_offsets(shard.context, group, partitions, require_stable=False, committed_offset=at),
            append_error,
        )

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
