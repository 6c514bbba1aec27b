"""
A commit that comes again with other offsets, in one piece from the request to the log.

What follows from a request but for its offsets (which records, how they are encoded but for offset and time, what is answered)
is found once, and kept with the request's pattern (`kohort.wire.templates`). What can change between two commits is looked at
every time: the topics and the limit of the metadata by the service, the group and its member by `commit.commit_again`.
"""

from collections.abc import Iterator, Sequence
from itertools import count, repeat
from struct import Struct
from typing import Any, Final, overload

import msgspec

from kohort.group.offsets.offsets import CommittedOffset, GroupOffsets, Partition
from kohort.group.records import utf16_length
from kohort.machine.bulk import PackedRecords
from kohort.records.offset_commits import NO_TIMESTAMP_MS, offset_key, offset_value
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m
from kohort.wire.batches import RECORD_OVERHEAD_BYTES, record_front
from kohort.wire.encoders import PreparedResponse
from kohort.wire.primitives import INT64

_pack_long: Final = INT64.pack

GROWTH_MAX: Final = 12
"""
Records may take so many times the bytes of the request: each repeats the names of group and topic. That and the number of
layouts keep a plan below what `kohort.wire.templates` takes it for.
"""
_LAYOUTS_MAX: Final = 3
"""A commit has a layout for each place in a batch that it has had: the first, or behind others of its partition."""


def with_offsets(request: m.OffsetCommitRequest, offsets: Iterator[int]) -> m.OffsetCommitRequest:
    """The same commit of other offsets (`kohort.wire.templates.WithNumbers`)."""
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


class PreparedCommit:
    """
    What is the same in all commits of one pattern.

    Args:
        request: one of them.
        commits: what it logs, with an offset for each number of the pattern; their offsets and times do not matter.
        answer: what it is answered when that is committed.
        response: the same, encoded.

    Attributes:
        partitions: of the records, in the order of the offsets.
        encoded: per record its key, and of its value what stands before the offset, between offset and time, and behind both.
        metadata_length: of the longest metadata, as `offset.metadata.max.bytes` counts it.
        size_bytes: an upper bound of what the records take in a batch, the same as if they had been encoded one by one.
    """

    __slots__ = (
        "_layouts",
        "answer",
        "commits",
        "encoded",
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
    ) -> None:
        self.request = request
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
        self.size_bytes = sum(
            RECORD_OVERHEAD_BYTES + len(key) + len(front) + len(middle) + len(back) + 2 * INT64.size
            for key, front, middle, back in self.encoded
        )

    def layout(self, first_delta: int) -> tuple[Struct, list[Any]]:
        """How the records are packed into a batch, and the arguments: of every four the second an offset, the fourth a time."""
        layout = self._layouts.get(first_delta)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            layout = self._layouts[first_delta] = self._laid_out(first_delta)
        return layout

    def _laid_out(self, first_delta: int) -> tuple[Struct, list[Any]]:
        parts: list[Any] = [b""]
        for delta, (key, front, middle, back) in enumerate(self.encoded, first_delta):
            value_bytes = len(front) + 8 + len(middle) + 8 + len(back)
            parts[-1] += record_front(key, value_bytes, delta) + front
            parts += (0, middle, 0, back + b"\0")
        form = "".join(f"{len(part)}s" if isinstance(part, bytes) else "q" for part in parts)
        return Struct(f">{form}"), parts


class CommitRun(PackedRecords[OffsetCommit]):
    """The records of one commit."""

    __slots__ = ("now_ms", "offsets", "plan")

    def __init__(self, plan: PreparedCommit, offsets: tuple[int, ...], now_ms: int) -> None:
        self.plan = plan
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
            for commit, offset in zip(self.plan.commits, self.offsets, strict=True)
        ]

    @property
    def size_bytes(self) -> int:
        return self.plan.size_bytes

    def pack(self, first_delta: int, /) -> bytes:
        layout, parts = self.plan.layout(first_delta)
        parts = parts.copy()
        parts[1::4] = self.offsets
        parts[3::4] = repeat(self.now_ms, len(self.offsets))
        return layout.pack(*parts)

    def pairs(self) -> list[tuple[bytes, bytes | None]]:
        time = _pack_long(self.now_ms)
        encoded = self.plan.encoded
        pairs: list[tuple[bytes, bytes | None]] = []
        for index, offset in enumerate(self.offsets):
            key, front, middle, back = encoded[index]
            pairs.append((key, front + _pack_long(offset) + middle + time + back))
        return pairs

    def replay_into(self, positions: GroupOffsets, record_offset: int) -> None:
        """Put the group's new positions into its table; the first record is at `record_offset` in the log."""
        plan, offsets = self.plan, self.offsets
        if len(offsets) == 1:
            # Most commits are of one partition: written out, that takes half the time.
            positions.put(
                plan.partitions[0],
                CommittedOffset(
                    offsets[0],
                    plan.leader_epochs[0],
                    plan.metadata[0],
                    self.now_ms,
                    NO_TIMESTAMP_MS,
                    plan.topic_ids[0],
                    record_offset,
                ),
            )
            return
        values = map(
            CommittedOffset,
            offsets,
            plan.leader_epochs,
            plan.metadata,
            repeat(self.now_ms),
            repeat(NO_TIMESTAMP_MS),
            plan.topic_ids,
            count(record_offset),
        )
        positions.put_each(plan.partitions, values)
