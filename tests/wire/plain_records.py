"""
A plain decoder of record batches, written for tests with the standard library alone: it shares no code with the program.

Source: Kafka DefaultRecordBatch, DefaultRecord.
"""

import struct
import zlib
from typing import NamedTuple

CODECS = (0, 1)
"""None and gzip; the others need a library."""


class RefusedError(Exception):
    """The records are not as their batch states."""


class NotTextError(RefusedError):
    """The key of a header is not UTF-8."""


class PlainRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise RefusedError
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bytes_max: int = 5) -> int:
        value = 0
        for index in range(bytes_max):
            byte = self.take(1)[0]
            value |= (byte % 128) << (7 * index)
            if byte < 128:
                if value >= 1 << (32 if bytes_max == 5 else 64):
                    raise RefusedError
                return value // 2 if value % 2 == 0 else -(value + 1) // 2
        raise RefusedError

    def nullable(self) -> bytes | None:
        size = self.varint()
        if size < -1:
            raise RefusedError
        return None if size == -1 else self.take(size)


def plain_records(batch: bytes) -> list[PlainRecord] | None:
    """
    The records of one whole batch of magic 2; None for a codec that is not read here.

    Raises:
        RefusedError: a record does not fit into its batch, or has a strange offset.
    """
    names = "base_offset length epoch magic crc attributes last_delta base_ms max_ms producer epoch_ sequence count"
    header = dict(zip(names.split(), struct.unpack(">qiibIhiqqqhii", batch[:61]), strict=True))
    if header["attributes"] & 7 not in CODECS:
        return None
    body = batch[61:]
    if header["attributes"] & 7:
        try:
            body = zlib.decompress(body, wbits=31)
        except zlib.error as exc:
            raise RefusedError from exc
    data = _Bytes(body)
    found = []
    if header["count"] < 0:
        raise RefusedError
    for _ in range(header["count"]):
        record = _Bytes(data.take(data.varint()))
        record.take(1)
        timestamp = header["base_ms"] + record.varint(10)
        delta = record.varint()
        if not 0 <= delta <= header["last_delta"]:
            raise RefusedError
        key, value = record.nullable(), record.nullable()
        headers = []
        count = record.varint()
        if count < 0:
            raise RefusedError
        for _ in range(count):
            name = record.take(record.varint())
            headers.append((_text(name), record.nullable()))
        if record.at != len(record.data):
            raise RefusedError
        if header["attributes"] & 8:
            timestamp = header["max_ms"]
        found.append(PlainRecord(header["base_offset"] + delta, timestamp, key, value, headers))
    if data.at != len(data.data):
        raise RefusedError
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise NotTextError from exc
