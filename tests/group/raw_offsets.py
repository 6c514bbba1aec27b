"""Logs of `__consumer_offsets` for tests of loading: recorded ones, and random ones of everything that may be in such a log."""

import random
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

from kohort.group.configs import GroupConfig
from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.model.ids import TopicPartition
from kohort.records.values import GroupMetadata, GroupMetadataMember, OffsetCommit, OffsetCommitTombstone
from kohort.testing.watched import NoDeadlines
from kohort.wire.batches import BatchRecord, build_batch, check_crc, iter_batches, read_marker, read_records, stamp
from kohort.wire.compression import Codec
from tests.group.harness import classic_groups
from tests.wire.control_batches import control_batch

DATA = Path(__file__).parents[1] / "data" / "pipeline"
RUNS = ("expiry", "legacy", "main", "tv1", "unclean", "unclean-torn")
OFFSETS_MAX = (1 << 63) - 1
_CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD)


class RawLog:
    """`kohort.runtime.ports.PartitionLog` of whole batches, for reading."""

    topic_partition = TopicPartition("__consumer_offsets", 0)

    def __init__(self, batches: list[bytes]) -> None:
        self.batches = batches
        self._next = [header.next_offset for batch in batches for _, header in iter_batches(batch)]
        self.end_offset = self._next[-1] if batches else 0

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        limit = self.end_offset if up_to is None else up_to
        found: list[bytes] = []
        for batch, following in zip(self.batches, self._next, strict=True):
            if following <= offset or following > limit:
                continue
            if found and sum(map(len, found)) + len(batch) > bytes_max:
                break
            found.append(batch)
        return b"".join(found)


def fresh() -> GroupShard:
    return GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")


def picture(shard: GroupShard) -> dict[str, Any]:
    """All of a shard's hard state, comparable."""
    return {
        "offsets": {group_id: dict(table) for group_id, table in shard.offsets.by_group.items()},
        "pending": {producer_id: dict(table) for producer_id, table in shard.offsets.pending.items()},
        "writers": {group_id: dict(table) for group_id, table in shard.offsets.writers.items()},
        "groups": {
            group_id: (
                group.state,
                group.generation,
                group.protocol_type,
                group.protocol_name,
                group.leader,
                group.state_timestamp_ms,
                {
                    member.member_id: (member.group_instance_id, tuple(member.protocols), member.assignment)
                    for member in group.members.values()
                },
            )
            for group_id, group in classic_groups(shard).items()
        },
    }


def replay_one_by_one(log: RawLog) -> GroupShard:
    """What a log says, record by record, leaving nothing out."""
    shard, serde = fresh(), GroupRecordSerde()
    for batch in log.batches:
        for _, header in iter_batches(batch):
            for record in read_records(batch, header=header):
                if header.is_control:
                    marker = read_marker(record)
                    assert marker is not None
                    shard.replay_end_transaction_marker(
                        header.producer_id, header.producer_epoch, committed=marker.committed
                    )
                elif record.key is not None:
                    try:
                        decoded = serde.decode(record.key, record.value)
                    except UnknownRecordTypeError:
                        continue
                    producer_id = header.producer_id if header.is_transactional else -1
                    shard.replay(record.offset, producer_id, header.producer_epoch, decoded)
    return shard


@cache
def recorded(run: str) -> dict[str, RawLog]:
    """The logs of `__consumer_offsets` of one run, by partition; a torn tail is cut off."""
    found: dict[str, bytes] = {}
    with tarfile.open(DATA / f"{run}.tar.xz") as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            path = Path(member.name)
            if path.suffix == ".log" and path.parent.name.startswith("__consumer_offsets-"):
                file = archive.extractfile(member)
                assert file is not None
                found[path.parent.name] = found.get(path.parent.name, b"") + file.read()
    return {name: RawLog(list(_whole(data))) for name, data in found.items()}


def _whole(data: bytes) -> Iterator[bytes]:
    try:
        for position, header in iter_batches(data):
            if not check_crc(data, position):
                return
            yield data[position : position + header.size_bytes]
    except CorruptError:
        return


# Random logs


class LogMaker:
    """A log with some of everything, from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        self.groups = [self._name(chance.choice((3, 8, 30))) for _ in range(chance.choice((1, 3, 12)))]
        self.topics = [self._name(chance.choice((4, 20, 90))) for _ in range(chance.choice((1, 4)))]
        if chance.random() < 0.3:
            self.groups += ["", "x" * 300, "grüße-" + "ß" * 40]
        self.partitions = chance.choice((2, 40))
        self.odd_share = chance.choice((0.0, 0.02, 0.3, 1.0))
        self.transactional_share = chance.choice((0.0, 0.0, 0.1, 0.5))
        self.records_max = chance.choice((1, 5, 200))
        self.versions = chance.choice(((4,), (4, 4, 4, 1), (0, 1, 2, 3, 4)))
        self.serde = GroupRecordSerde()

    def _name(self, size: int) -> str:
        return "".join(self.chance.choices("abcdefgh-._0123", k=size))

    def log(self, records: int = 600) -> RawLog:
        batches: list[bytes] = []
        offset = self.chance.choice((0, 1_000_000_007))
        written = 0
        while written < records:
            count = self.chance.randint(1, self.records_max)
            batch = bytearray(self._batch(count))
            stamp(batch, base_offset=offset, leader_epoch=0)
            ((_, header),) = iter_batches(batch)
            offset = header.next_offset + self.chance.choice((0, 0, 3))
            written += count
            batches.append(bytes(batch))
        return RawLog(batches)

    def _batch(self, count: int) -> bytes:
        chance = self.chance
        producer_id, producer_epoch = -1, -1
        if chance.random() < self.transactional_share:
            producer_id, producer_epoch = chance.choice((7, 8)), 3
            if chance.random() < 0.4:
                return control_batch(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    committed=chance.random() < 0.6,
                    coordinator_epoch=1,
                    timestamp_ms=5,
                )
        return build_batch(
            [BatchRecord(*self._pair(), timestamp_ms=5 + chance.choice((0, 0, 1, 70_000))) for _ in range(count)],
            timestamp_ms=5,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            transactional=producer_id >= 0,
            compression=chance.choice(_CODECS),
        )

    def _pair(self) -> tuple[bytes | None, bytes | None]:
        if self.chance.random() < self.odd_share:
            return self._odd_pair()
        if self.chance.random() < 0.1:
            # Under the key of Kafka 0.8 only version 0 was ever written, and nothing else is read.
            return self.key(is_legacy=True), self.value(0)
        return self.key(), self.value(self.chance.choice(self.versions))

    def key(self, *, is_legacy: bool = False) -> bytes:
        chance = self.chance
        commit = OffsetCommitTombstone(
            chance.choice(self.groups), chance.choice(self.topics), chance.randrange(self.partitions)
        )
        key, _ = self.serde.encode(commit)
        return b"\0\0" + key[2:] if is_legacy else key

    def value(self, version: int) -> bytes:
        """An offset in any version; version 4 with a topic id, another tagged field, or none."""
        chance = self.chance
        offset = chance.choice((0, 5, chance.randrange(1 << 40), OFFSETS_MAX))
        metadata = chance.choice(("", "", "meta", "grün", "m" * 200)).encode()
        commit_ms = chance.choice((0, 1_700_000_000_000 + chance.randrange(3), -1))
        head = pack(">hq", version, offset) + (pack(">i", chance.choice((-1, 0, 7))) if version >= 3 else b"")
        if version < 4:
            tail = pack(">q", chance.choice((-1, 99))) if version == 1 else b""
            return head + pack(">h", len(metadata)) + metadata + pack(">q", commit_ms) + tail
        size = len(metadata) + 1
        length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        topic_id = chance.choice((UUID(int=0), UUID(int=chance.randrange(4) << 64)))
        tags = chance.choice(
            (b"\0", b"\0", b"\1\0\x10" + topic_id.bytes, b"\1\5\2ab", b"\2\0\x10" + topic_id.bytes + b"\5\0")
        )
        return head + length + metadata + pack(">q", commit_ms) + tags

    def _odd_pair(self) -> tuple[bytes | None, bytes | None]:
        chance = self.chance
        group_id = chance.choice(self.groups)
        match chance.randrange(6):
            case 0 | 1:
                return self.key(is_legacy=chance.random() < 0.1), None
            case 2:
                member = GroupMetadataMember("member", None, "client", "/host", 1000, 1000, b"", b"")
                record = GroupMetadata(group_id, "consumer", chance.randrange(9), "range", "member", 5, (member,))
                return self.serde.encode(record)
            case 3:
                return pack(">hh", 2, len(group_id.encode())) + group_id.encode(), None
            case 4:
                return pack(">h", chance.choice((3, 99, -1))) + b"?", b"\0\0"
            case _:
                return None, b"nothing"


__all__ = ["RUNS", "LogMaker", "OffsetCommit", "RawLog", "fresh", "picture", "recorded", "replay_one_by_one"]
