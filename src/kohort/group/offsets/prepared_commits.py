"""
Fast path for repeated commits: from a recognised request (`kohort.wire.templates`) to the records in the log.

Everything that follows from a request except its offsets is computed once and kept with the template of the request: the
records, their bytes without offset and timestamp, the encoded response. The rest is checked for every commit: that the topics
have not changed, the limit of metadata, the group and its member.

A request that cannot be prepared, or that is not a repetition, takes the plain way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count, repeat
from struct import Struct
from typing import Any, Final, TypeAlias, overload
from uuid import UUID

import msgspec

from kohort.group.context import GroupContext, HasContext
from kohort.group.errors import append_error
from kohort.group.front import GroupFront
from kohort.group.offsets.commit import (
    NO_RETENTION_MS,
    NamedPartition,
    check_partitions,
    committer_of,
    record,
    validate,
)
from kohort.group.offsets.commit_answers import TOPIC_IDS_SINCE, offset_commit_answers, topic_by_id
from kohort.group.offsets.offsets import CommittedOffset, GroupOffsets, Partition
from kohort.group.records import GroupRecord, utf16_length
from kohort.machine.bulk import PackedRecords
from kohort.machine.gradual import Stepwise, take_steps
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Operation
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import coordinator_partition
from kohort.model.image import ClusterImage, TopicImage
from kohort.records.offset_commits import NO_TIMESTAMP_MS, offset_key, offset_value
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import RECORD_OVERHEAD_BYTES, record_front
from kohort.wire.encoders import response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.primitives import INT64
from kohort.wire.templates import PreparedResponse, RequestTemplate, TemplateMatch

CommitResponse: TypeAlias = m.OffsetCommitResponse | PreparedResponse

_pack_long: Final = INT64.pack

_ANY_LENGTH: Final = 1 << 31
GROWTH_MAX: Final = 12
"""
The most bytes of records per byte of the request: each record repeats the names of group and topic. This and the number of
layouts keep a prepared commit within the memory that `kohort.wire.templates` counts for it.
"""
_LAYOUTS_MAX: Final = 3
"""A commit has one layout for each position in a batch: the first one, or behind other commits of its partition."""


class RepeatedCommits(Stepwise):
    """The handler of OffsetCommit requests, repeated ones and others; see `kohort.wire.templates`."""

    def __init__(self, front: GroupFront, in_steps: Callable[..., Generator[Any, None, Any]]) -> None:
        super().__init__(in_steps)
        self._front = front

    def __call__(
        self, request: m.OffsetCommitRequest | TemplateMatch, context: RequestContext, reply: Reply[CommitResponse]
    ) -> CommitResponse | None:
        if not isinstance(request, TemplateMatch):
            return take_steps(self.in_steps(request, context, reply), reply)
        prepared = self.prepared(request, context)
        if prepared is None:
            return take_steps(self.in_steps(request.unfold(), context, reply), reply)
        operation = CommitOperation(prepared, request.numbers, context.api_version)
        response: CommitResponse | None = self._front.runner.write(
            prepared.coordinator, operation, reply, prepared.failed
        )
        return response

    def prepared(self, request: TemplateMatch, context: RequestContext) -> PreparedCommit | None:
        """The prepared commit of a repeated request; None if it has to take the plain way."""
        front = self._front
        if not front.is_active or not request.numbers:
            return None
        template = request.template
        preparation: Preparation | None = template.memo
        if preparation is None or not preparation.is_current(front.image):
            preparation = template.memo = prepare(template, context, front.image, front.runner.partition_count)
        prepared = preparation.commit
        if prepared is None or prepared.metadata_length > front.config.offset_metadata_max_bytes:
            return None
        return prepared

    def with_numbers(self, request: m.OffsetCommitRequest, offsets: Iterator[int]) -> m.OffsetCommitRequest:
        return with_offsets(request, offsets)


def with_offsets(request: m.OffsetCommitRequest, offsets: Iterator[int]) -> m.OffsetCommitRequest:
    """The same commit with other offsets."""
    return m.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=[
            m.OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    m.OffsetCommitRequestPartition(
                        partition_index=entry.partition_index,
                        committed_offset=next(offsets),
                        committed_leader_epoch=entry.committed_leader_epoch,
                        committed_metadata=entry.committed_metadata,
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


class Preparation:
    """
    The outcome of preparing a template. A plain class: compiled code reads its attributes from fixed places.

    Args:
        topics: the topics in the request, as the cluster had them at that time; None for a missing one.

    Attributes:
        commit: None if each request has to take the plain way: it has a retention time, names partitions that do not exist or
            none at all, or the prepared commit would be too large.
    """

    __slots__ = ("_is_by_id", "_topics", "commit")

    def __init__(
        self,
        topics: list[tuple[str | UUID | None, TopicImage | None]],
        commit: PreparedCommit | None,
        *,
        is_by_id: bool,
    ) -> None:
        self._topics: Final = topics
        self._is_by_id: Final = is_by_id
        self.commit: Final = commit

    def is_current(self, image: ClusterImage) -> bool:
        """Whether the topics are unchanged. A changed topic is another object."""
        for key, topic in self._topics:  # noqa: SIM110 -- a generator would cost every commit half a microsecond
            if _topic(image, key, is_by_id=self._is_by_id) is not topic:
                return False
        return True


def prepare(template: RequestTemplate, context: RequestContext, image: ClusterImage, partitions: int) -> Preparation:
    """
    Prepare the commits of a template.

    Args:
        partitions: the number of partitions of `__consumer_offsets`.
    """
    request: m.OffsetCommitRequest = template.request
    is_by_id = context.api_version >= TOPIC_IDS_SINCE
    answers = offset_commit_answers()
    drain(answers.check(request.topics, image, _ANY_LENGTH, by_id=is_by_id))
    commit = None
    if request.retention_time_ms == NO_RETENTION_MS and answers.asked and not answers.refused:
        commits = [record(request.group_id, 0, NO_TIMESTAMP_MS, entry) for entry in answers.entries]
        response = m.OffsetCommitResponse(topics=drain(answers.topics()))
        encoded = response_encoder(ApiKey.OFFSET_COMMIT, context.api_version)(0, response)
        coordinator = coordinator_partition(request.group_id, partitions)
        commit = PreparedCommit(request, commits, response, PreparedResponse(encoded), coordinator)
        if commit.size_bytes > GROWTH_MAX * template.body_bytes:
            commit = None
    keys = [topic.topic_id if is_by_id else topic.name for topic in request.topics]
    return Preparation([(key, _topic(image, key, is_by_id=is_by_id)) for key in keys], commit, is_by_id=is_by_id)


def _topic(image: ClusterImage, key: Any, *, is_by_id: bool) -> TopicImage | None:
    return topic_by_id(image, key) if is_by_id else image.topic(key)


def commit_refused(answer: m.OffsetCommitResponse, code: ErrorCode) -> m.OffsetCommitResponse:
    """Refuse every partition of a commit, by its response on success."""
    return m.OffsetCommitResponse(
        topics=[
            m.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    m.OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=int(code))
                    for entry in topic.partitions
                ],
            )
            for topic in answer.topics
        ]
    )


class CommitOperation(Operation):
    """A prepared commit with its offsets."""

    __slots__ = ("_api_version", "_offsets", "_prepared")

    def __init__(self, prepared: PreparedCommit, offsets: tuple[int, ...], api_version: int) -> None:
        super().__init__(commit_prepared)
        self._prepared: Final = prepared
        self._offsets: Final = offsets
        self._api_version: Final = api_version

    def run(self, shard: HasContext, now_ms: int) -> Result[GroupRecord, CommitResponse]:
        return commit_prepared(shard.context, self._prepared, self._offsets, self._api_version, now_ms)


def commit_prepared(
    context: GroupContext, prepared: PreparedCommit, offsets: tuple[int, ...], api_version: int, now_ms: int
) -> Result[GroupRecord, CommitResponse]:
    """As `kohort.group.offsets.commit.offset_commit`."""
    try:
        check = validate(context, prepared.committer, api_version)
        if check is not None:
            check_partitions(context, prepared.named_partitions(), check)
    except CoordinatorError as exc:
        return Result(response=commit_refused(prepared.answer, exc.code))
    context.counters.offset_commits += len(offsets)
    return Result(PreparedRecords(prepared, offsets, now_ms), prepared.response)


class PreparedCommit:
    """
    Everything that the commits of one template have in common.

    Args:
        request: one of them.
        commits: its records, one for each number of the template; their offsets and timestamps are ignored.
        answer: its response on success.
        response: the same, encoded.
        coordinator: the partition of the group.

    Attributes:
        failed: the response, by the error with which the commit fails.
        committer: who commits.
        partitions: of the records.
        encoded: of each record the key, and the parts of the value: before the offset, between offset and timestamp, and after.
        metadata_length: of the longest metadata, as `offset.metadata.max.bytes` counts it.
        size_bytes: an upper bound of the size in a batch, equal to that of the plain way.
    """

    __slots__ = (
        "_layouts",
        "_one",
        "answer",
        "commits",
        "committer",
        "coordinator",
        "encoded",
        "failed",
        "group_id",
        "leader_epochs",
        "metadata",
        "metadata_length",
        "partitions",
        "request",
        "response",
        "size_bytes",
        "topic_ids",
    )

    def __init__(
        self,
        request: m.OffsetCommitRequest,
        commits: Sequence[OffsetCommit],
        answer: m.OffsetCommitResponse,
        response: PreparedResponse,
        coordinator: int,
    ) -> None:
        self.request = request
        self.group_id: str = request.group_id
        self.committer = committer_of(request)
        self.coordinator = coordinator
        self.failed: Callable[[Exception], m.OffsetCommitResponse] = self._failed
        self.commits = commits
        self.answer = answer
        self.response = response
        self.partitions: list[Partition] = [(commit.topic, commit.partition) for commit in commits]
        self.leader_epochs = [commit.leader_epoch for commit in commits]
        self.metadata = [commit.metadata for commit in commits]
        self.topic_ids = [commit.topic_id for commit in commits]
        self.encoded: list[tuple[bytes, bytes, bytes, bytes]] = [
            (
                offset_key(commit.group_id, commit.topic, commit.partition),
                *offset_value(commit.leader_epoch, commit.metadata, commit.topic_id),
            )
            for commit in commits
        ]
        self.metadata_length = max(map(utf16_length, self.metadata))
        self._layouts: dict[int, tuple[Struct, list[Any]]] = {}
        self._one: OneRecord | None = None
        self.size_bytes = sum(
            RECORD_OVERHEAD_BYTES + len(key) + len(front) + len(middle) + len(back) + 2 * INT64.size
            for key, front, middle, back in self.encoded
        )

    def _failed(self, error: Exception) -> m.OffsetCommitResponse:
        return commit_refused(self.answer, append_error(error))

    def named_partitions(self) -> Iterable[NamedPartition]:
        return ((commit.topic, commit.topic_id, commit.partition) for commit in self.commits)

    def layout(self, first_delta: int) -> tuple[Struct, list[Any]]:
        """
        The packing of the records in a batch: a `Struct` and its arguments.

        In each four arguments the second is an offset and the fourth a timestamp.
        """
        layout = self._layouts.get(first_delta)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            layout = self._layouts[first_delta] = self._make_layout(first_delta)
        return layout

    @property
    def one(self) -> OneRecord:
        """The packing of the only record."""
        one = self._one
        if one is None:
            one = self._one = OneRecord(*self.encoded[0])
        return one

    def _make_layout(self, first_delta: int) -> tuple[Struct, list[Any]]:
        parts: list[Any] = [b""]
        for delta, (key, front, middle, back) in enumerate(self.encoded, first_delta):
            value_bytes = len(front) + 8 + len(middle) + 8 + len(back)
            parts[-1] += record_front(key, value_bytes, delta) + front
            parts += (0, middle, 0, back + b"\0")
        form = "".join(f"{len(part)}s" if isinstance(part, bytes) else "q" for part in parts)
        return Struct(f">{form}"), parts


ONE_BYTE_DELTAS: Final = 64
"""Offset deltas below take one byte in a record, which is the double of the delta."""


class OneRecord:
    """The packing of a record with an offset delta below `ONE_BYTE_DELTAS`: most commits are of one partition."""

    __slots__ = ("_back", "_before_delta", "_between", "_front", "_pack")

    def __init__(self, key: bytes, front: bytes, middle: bytes, back: bytes) -> None:
        start = record_front(key, len(front) + len(middle) + len(back) + 2 * INT64.size, 0)
        size = next(index for index, byte in enumerate(start, 1) if byte < 1 << 7)  # of the varint of the size
        delta_at = size + 2  # attributes and timestamp delta
        self._before_delta: Final = start[:delta_at]
        self._front: Final = start[delta_at + 1 :] + front
        self._between: Final = middle
        self._back: Final = back + b"\0"
        form = f">{delta_at}sB{len(self._front)}sq{len(middle)}sq{len(self._back)}s"
        self._pack: Final = Struct(form).pack

    def pack(self, delta: int, offset: int, timestamp_ms: int) -> bytes:
        packed: bytes = self._pack(
            self._before_delta, 2 * delta, self._front, offset, self._between, timestamp_ms, self._back
        )
        return packed


class PreparedRecords(PackedRecords[OffsetCommit]):
    """The records of one repeated commit."""

    __slots__ = ("now_ms", "offsets", "prepared")

    def __init__(self, prepared: PreparedCommit, offsets: tuple[int, ...], now_ms: int) -> None:
        self.prepared = prepared
        self.offsets = offsets
        self.now_ms = now_ms

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> OffsetCommit: ...
    @overload
    def __getitem__(self, index: slice) -> list[OffsetCommit]: ...
    def __getitem__(self, index: int | slice) -> OffsetCommit | list[OffsetCommit]:
        return self._records()[index]

    def __iter__(self) -> Iterator[OffsetCommit]:
        return iter(self._records())

    def _records(self) -> list[OffsetCommit]:
        return [
            msgspec.structs.replace(commit, offset=offset, commit_timestamp_ms=self.now_ms)
            for commit, offset in zip(self.prepared.commits, self.offsets, strict=True)
        ]

    @property
    def size_bytes(self) -> int:
        return self.prepared.size_bytes

    def pack(self, first_delta: int, /) -> bytes:
        offsets = self.offsets
        if len(offsets) == 1 and first_delta < ONE_BYTE_DELTAS:
            return self.prepared.one.pack(first_delta, offsets[0], self.now_ms)
        layout, parts = self.prepared.layout(first_delta)
        parts = parts.copy()
        parts[1::4] = offsets
        parts[3::4] = repeat(self.now_ms, len(offsets))
        return layout.pack(*parts)

    def pairs(self) -> list[tuple[bytes, bytes | None]]:
        timestamp = _pack_long(self.now_ms)
        encoded = self.prepared.encoded
        pairs: list[tuple[bytes, bytes | None]] = []
        for index, offset in enumerate(self.offsets):
            key, front, middle, back = encoded[index]
            pairs.append((key, front + _pack_long(offset) + middle + timestamp + back))
        return pairs

    def replay(self, shard: HasContext, offset: int, /) -> None:
        group_id, offsets = self.prepared.group_id, shard.context.offsets
        shard.context.ensure_group(group_id)
        offsets.newest_record_offset = offset + len(self.offsets) - 1
        self.replay_into(offsets.to_fill(group_id), offset)

    def replay_into(self, table: GroupOffsets, record_offset: int) -> None:
        """Put the offsets into the table of their group; the first record is at `record_offset` in the log."""
        prepared, offsets = self.prepared, self.offsets
        if len(offsets) == 1:
            # Most commits are of one partition: without `map` that takes half the time.
            table.put(
                prepared.partitions[0],
                CommittedOffset(
                    offsets[0],
                    prepared.leader_epochs[0],
                    prepared.metadata[0],
                    self.now_ms,
                    NO_TIMESTAMP_MS,
                    prepared.topic_ids[0],
                    record_offset,
                ),
            )
            return
        values = map(
            CommittedOffset,
            offsets,
            prepared.leader_epochs,
            prepared.metadata,
            repeat(self.now_ms),
            repeat(NO_TIMESTAMP_MS),
            prepared.topic_ids,
            count(record_offset),
        )
        table.put_each(prepared.partitions, values)
