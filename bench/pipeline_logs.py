"""Logs for the measures of the pipeline: offset commits as a busy cluster writes them, with valid checksums."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from crc32c import crc32c

SEGMENT_BYTES: Final = 100 << 20
POOL_BATCHES: Final = 3000
RECORDS_MAX: Final = 50
GROUPS: Final = 1500
TOPICS: Final = 40
PARTITIONS: Final = 40
"""Partitions of a topic. Each group reads one topic, so there are 60,000 keys."""
TOMBSTONES: Final = 0.03
GROUP_METADATA: Final = 0.01
TIMESTAMP_MS: Final = 1_795_252_834_000
VERSIONS: Final = ("v3", "v4", "v4 with topic id")
_TOPIC_ID: Final = bytes([1, 0, 16, *range(16)])


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit_value(version: str, offset: int) -> bytes:
    head = struct.pack(">hqi", 3 if version == "v3" else 4, offset, 5)
    if version == "v3":
        return head + text("") + struct.pack(">q", TIMESTAMP_MS)
    return head + b"\x01" + struct.pack(">q", TIMESTAMP_MS) + (_TOPIC_ID if "topic id" in version else b"\0")


def record(index: int, key: bytes, value: bytes | None) -> bytes:
    framed = varint(-1) if value is None else varint(len(value)) + value
    body = b"\0" + varint(index) + varint(index) + varint(len(key)) + key + framed + b"\0"
    return varint(len(body)) + body


def pair(version: str, chance: random.Random, groups: Sequence[int]) -> tuple[bytes, bytes | None]:
    number = chance.choice(groups)
    group = f"application-{number:04}"
    if chance.random() < GROUP_METADATA:
        nobody = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", 7, -1, -1, TIMESTAMP_MS, 0)
        return struct.pack(">h", 2) + text(group), nobody
    key = struct.pack(">h", 1) + text(group) + text(f"topic-{number % TOPICS:02}")
    key += struct.pack(">i", chance.randrange(PARTITIONS))
    return key, None if chance.random() < TOMBSTONES else commit_value(version, chance.randrange(1 << 40))


def batch(
    version: str, records: int, chance: random.Random, groups: Sequence[int] = range(GROUPS)
) -> tuple[bytes, int]:
    body = b"".join(record(index, *pair(version, chance, groups)) for index in range(records))
    last = records - 1
    covered = struct.pack(">hiqqqhii", 0, last, TIMESTAMP_MS, TIMESTAMP_MS + last, -1, -1, -1, records) + body
    prefix = struct.pack(">qiibI", 0, len(covered) + 9, 3, 2, crc32c(covered))
    return prefix + covered, records


def segment(
    version: str, size_bytes: int, base_offset: int, seed: int, groups: Sequence[int] = range(GROUPS)
) -> tuple[bytes, int]:
    """Make the bytes of a segment, and count its records. The base offset of a batch is not part of its checksum."""
    chance = random.Random(seed)
    pool = [batch(version, chance.randint(1, RECORDS_MAX), chance, groups) for _ in range(POOL_BATCHES)]
    raw = bytearray()
    records = 0
    while len(raw) < size_bytes:
        one, count = chance.choice(pool)
        at = len(raw)
        raw += one
        struct.pack_into(">q", raw, at, base_offset + records)
        records += count
    return bytes(raw), records


def write_logs(
    directory: Path, *, size_bytes: int, version: str = "v4", partitions: int = 4, groups: int = GROUPS
) -> int:
    """
    Write segments of at most `SEGMENT_BYTES` to partitions of `__consumer_offsets`. Returns the number of records.

    Args:
        groups: the number of groups, each with `PARTITIONS` keys in one of the partitions.
    """
    total = 0
    for partition in range(partitions):
        path = directory / f"__consumer_offsets-{partition}"
        path.mkdir(parents=True)
        left, base, mine = size_bytes // partitions, 0, range(partition, groups, partitions)
        while left > 0:
            raw, records = segment(version, min(left, SEGMENT_BYTES), base, partition, mine)
            (path / f"{base:020}.log").write_bytes(raw)
            left -= len(raw)
            base += records
        total += base
    return total


def write_topics(directory: Path) -> None:
    """Write the logs of all topics that groups read: one batch at each log end, as after retention."""
    chance = random.Random(0)
    for topic in range(TOPICS):
        for partition in range(PARTITIONS):
            path = directory / f"topic-{topic:02}-{partition}"
            path.mkdir(parents=True)
            raw, records = batch("v4", chance.randint(1, RECORDS_MAX), chance)
            base = (1 << 40) - records
            (path / f"{base:020}.log").write_bytes(struct.pack(">q", base) + raw[8:])
