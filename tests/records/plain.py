"""
A plain decoder of committed offsets, written for tests with `struct` alone: it shares no code with the program.

Source: Apache Kafka 4.2.1, OffsetCommitKey.json, OffsetCommitValue.json; KIP-482.
"""

import struct
from typing import NamedTuple


class PlainOffset(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes | None


class RefusedError(Exception):
    """The bytes end early, or state a version or a length that cannot be."""


class Bytes:
    """Takes pieces off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.left):
            raise RefusedError
        piece, self.left = self.left[:size], self.left[size:]
        return piece

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(">" + layout, self.take(struct.calcsize(layout)))
        return int(value)

    def varint(self) -> int:
        value = 0
        for index in range(5):
            byte = self.take(1)[0]
            value += (byte % 128) << (7 * index)
            if byte < 128:
                return value
        raise RefusedError

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "replace")


def plain_offset(key: bytes, value: bytes) -> PlainOffset:
    """A committed offset in any version; under key type 0, of Kafka 0.8, there is only version 0."""
    names = Bytes(key)
    key_type = names.number("h")
    group_id, topic = names.text(names.number("h")), names.text(names.number("h"))
    partition = names.number("i")
    body = Bytes(value)
    version = body.number("h")
    if version not in range(5 if key_type else 1):
        raise RefusedError
    offset = body.number("q")
    leader_epoch = body.number("i") if version >= 3 else -1
    metadata = body.text(body.varint() - 1 if version == 4 else body.number("h"))
    commit_ms = body.number("q")
    expire_ms = body.number("q") if version == 1 else -1
    topic_id = None
    for _ in range(body.varint() if version == 4 else 0):
        tag, size = body.varint(), body.varint()
        content = body.take(size)
        if tag == 0:
            if size != 16:
                raise RefusedError
            topic_id = content if any(content) else None
    return PlainOffset(group_id, topic, partition, offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)
