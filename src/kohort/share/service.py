"""
The APIs of the share coordinator on one node, which brokers use: InitializeShareGroupState (83), ReadShareGroupState (84) and
DeleteShareGroupState (86), version 0; WriteShareGroupState (85) and ReadShareGroupStateSummary (87), versions 0 and 1: v1 the
count of offsets whose delivery is complete.

A share partition that is named twice is served twice and answered once, with the last answer. All levels of `share.version`
are served.

Source: KIP-932, KIP-1226; Kafka ShareCoordinatorService, KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from kohort.machine.gradual import HANDLER_STEP, Awaited, Stepwise
from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.share.coordinator import ShareCoordinator
from kohort.share.records import state_batches
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

A = TypeVar("A")
"""The answer about a share partition."""
R = TypeVar("R")
"""The same in the response."""

_ZERO_ID: Final = UUID(int=0)
OPERATIONS_STEP: Final = 20
"""Operations of the coordinator between two yields of a handler."""


class ShareService(ShareCoordinator):
    """A share coordinator with its handlers."""

    def handlers(self) -> dict[ApiKey, Callable[..., Any]]:
        """The method of each API."""
        return {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: Stepwise(self.initialize_share_group_state),
            ApiKey.READ_SHARE_GROUP_STATE: Stepwise(self.read_share_group_state),
            ApiKey.WRITE_SHARE_GROUP_STATE: Stepwise(self.write_share_group_state),
            ApiKey.DELETE_SHARE_GROUP_STATE: Stepwise(self.delete_share_group_state),
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Stepwise(self.read_share_group_state_summary),
        }

    def initialize_share_group_state(
        self,
        request: m.InitializeShareGroupStateRequest,
        _context: RequestContext,
        _reply: Reply[m.InitializeShareGroupStateResponse],
    ) -> Generator[Any, None, m.InitializeShareGroupStateResponse]:
        def ask(key: SharePartitionKey, asked: Any, done: Callable[[CoordinatorError | None], None]) -> None:
            self.initialize(key, asked.state_epoch, asked.start_offset, done)

        found = yield from _answers(request.group_id, request.topics, ask, needs_partitions=False)
        results = yield from _results(
            found,
            partial(_outcome, m.InitializeShareGroupStateResponsePartitionResult),
            m.InitializeShareGroupStateResponseInitializeStateResult,
        )
        return m.InitializeShareGroupStateResponse(results=results)

    def read_share_group_state(
        self,
        request: m.ReadShareGroupStateRequest,
        _context: RequestContext,
        _reply: Reply[m.ReadShareGroupStateResponse],
    ) -> Generator[Any, None, m.ReadShareGroupStateResponse]:
        def ask(
            key: SharePartitionKey, asked: Any, done: Callable[[SharePartitionState | CoordinatorError], None]
        ) -> None:
            self.read(key, asked.leader_epoch, done)

        found = yield from _answers(request.group_id, request.topics, ask)
        results = yield from _results(found, _read_result, m.ReadShareGroupStateResponseReadStateResult)
        return m.ReadShareGroupStateResponse(results=results)

    def write_share_group_state(
        self,
        request: m.WriteShareGroupStateRequest,
        _context: RequestContext,
        _reply: Reply[m.WriteShareGroupStateResponse],
    ) -> Generator[Any, None, m.WriteShareGroupStateResponse]:
        def ask(key: SharePartitionKey, asked: Any, done: Callable[[CoordinatorError | None], None]) -> None:
            changed = SharePartitionState(
                asked.state_epoch,
                asked.leader_epoch,
                asked.start_offset,
                asked.delivery_complete_count,
                state_batches(asked.state_batches),
            )
            self.write(key, changed, done)

        found = yield from _answers(request.group_id, request.topics, ask)
        results = yield from _results(
            found,
            partial(_outcome, m.WriteShareGroupStateResponsePartitionResult),
            m.WriteShareGroupStateResponseWriteStateResult,
        )
        return m.WriteShareGroupStateResponse(results=results)

    def delete_share_group_state(
        self,
        request: m.DeleteShareGroupStateRequest,
        _context: RequestContext,
        _reply: Reply[m.DeleteShareGroupStateResponse],
    ) -> Generator[Any, None, m.DeleteShareGroupStateResponse]:
        def ask(key: SharePartitionKey, _asked: Any, done: Callable[[CoordinatorError | None], None]) -> None:
            self.delete(key, done)

        found = yield from _answers(request.group_id, request.topics, ask)
        results = yield from _results(
            found,
            partial(_outcome, m.DeleteShareGroupStateResponsePartitionResult),
            m.DeleteShareGroupStateResponseDeleteStateResult,
        )
        return m.DeleteShareGroupStateResponse(results=results)

    def read_share_group_state_summary(
        self,
        request: m.ReadShareGroupStateSummaryRequest,
        _context: RequestContext,
        _reply: Reply[m.ReadShareGroupStateSummaryResponse],
    ) -> Generator[Any, None, m.ReadShareGroupStateSummaryResponse]:
        def ask(
            key: SharePartitionKey, _asked: Any, done: Callable[[SharePartitionState | CoordinatorError], None]
        ) -> None:
            self.summary(key, done)

        found = yield from _answers(request.group_id, request.topics, ask)
        results = yield from _results(
            found, _summary_result, m.ReadShareGroupStateSummaryResponseReadStateSummaryResult
        )
        return m.ReadShareGroupStateSummaryResponse(results=results)


def _outcome(result: Callable[..., R], partition: int, answer: CoordinatorError | None) -> R:
    """The result of an operation that answers nothing but its error."""
    return result(partition=partition, **_error(answer))


def _read_result(
    partition: int, answer: SharePartitionState | CoordinatorError
) -> m.ReadShareGroupStateResponsePartitionResult:
    if isinstance(answer, CoordinatorError):
        return m.ReadShareGroupStateResponsePartitionResult(partition=partition, **_error(answer))
    batches: Any = answer.batches
    return m.ReadShareGroupStateResponsePartitionResult(
        partition=partition, state_epoch=answer.state_epoch, start_offset=answer.start_offset, state_batches=batches
    )


def _summary_result(
    partition: int, answer: SharePartitionState | CoordinatorError
) -> m.ReadShareGroupStateSummaryResponsePartitionResult:
    if isinstance(answer, CoordinatorError):
        return m.ReadShareGroupStateSummaryResponsePartitionResult(partition=partition, **_error(answer))
    return m.ReadShareGroupStateSummaryResponsePartitionResult(
        partition=partition,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )


def _error(answer: CoordinatorError | None) -> dict[str, Any]:
    """The fields of an error."""
    if answer is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": answer.code, "error_message": answer.message}


def _asked(
    group_id: str, topics: Sequence[Any], needs_partitions: bool
) -> Generator[None, None, list[tuple[SharePartitionKey, Any]]]:
    """
    The share partitions of a request, in steps, each with its element of the request. There are none without a group.

    Args:
        needs_partitions: whether nothing of the request is served if a topic has no partitions.
    """
    found: list[tuple[SharePartitionKey, Any]] = []
    for number, topic in enumerate(topics if group_id else (), 1):
        if needs_partitions and not topic.partitions:
            return []
        topic_id = topic.topic_id or _ZERO_ID
        for asked in topic.partitions:
            found.append((SharePartitionKey(group_id, topic_id, asked.partition), asked))
            if len(found) % HANDLER_STEP == 0:
                yield
        if number % HANDLER_STEP == 0:
            yield
    return found


def _answers(
    group_id: str,
    topics: Sequence[Any],
    ask: Callable[[SharePartitionKey, Any, Callable[[A], None]], None],
    *,
    needs_partitions: bool = True,
) -> Generator[Any, None, dict[UUID, dict[int, A]]]:
    """
    Ask about all share partitions of a request, in steps; the answers by topic and partition.

    Args:
        ask: `ask(key, element of the request, done)` asks about one share partition.
    """
    partitions = yield from _asked(group_id, topics, needs_partitions)
    awaited: Awaited[list[A]] = Awaited()
    gathered: ResponseAggregator[A, list[A]] = ResponseAggregator(len(partitions), list, awaited.reply)
    for index, (key, asked) in enumerate(partitions):
        ask(key, asked, gathered.reply_to(index))
        if index % OPERATIONS_STEP == 0:
            yield
    answers = yield from awaited.get(gathered.finish())
    found: dict[UUID, dict[int, A]] = {}
    for index, answer in enumerate(answers):
        key, _ = partitions[index]
        found.setdefault(key.topic_id, {})[key.partition] = answer
        if index % HANDLER_STEP == 0:
            yield
    return found


def _results(
    found: dict[UUID, dict[int, A]], result: Callable[[int, A], Any], of_topic: Callable[..., R]
) -> Generator[None, None, list[R]]:
    """The results of a response, in steps."""
    results: list[R] = []
    count = 0
    for topic_id, answers in found.items():
        partitions: list[Any] = []
        for partition, answer in answers.items():
            partitions.append(result(partition, answer))
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        results.append(of_topic(topic_id=topic_id, partitions=partitions))
    return results
