"""
What producers may send, right and wrong, to topics of every configuration that judges it; and how an answer is compared.

A case is a topic's configuration and what is sent to it, one request after the other. Times are relative to the broker's.
"""

import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kohort.model.errors import ErrorCode
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records
from kohort.wire.batches import write_crc as seal_crc
from kohort.wire.compression import Codec, compress

NEWEST = 12
NOW_TOLERANCE_MS = 60_000
"""How far from a request's time the broker's may be; no case lies between this and what it is about."""
HOUR = 3_600_000

Send = Callable[[int], bytes]
"""The records, given the time."""


class Case(NamedTuple):
    """One row."""

    sends: Sequence[Send]
    configs: Mapping[str, str] = MappingProxyType({})
    version: int = NEWEST
    acks: int = -1


def plain(*values: bytes | None, at: int = 0, key: bytes | None = b"k", **what: Any) -> Send:
    """A batch as producers make it, its records `at` milliseconds from now."""

    def build(now_ms: int) -> bytes:
        return build_batch([BatchRecord(key, value) for value in values], timestamp_ms=now_ms + at, **what)

    return build


def timed(*offsets_ms: int, codec: int = 0) -> Send:
    """A record for each time from now."""

    def build(now_ms: int) -> bytes:
        records = [BatchRecord(b"k", b"v", timestamp_ms=now_ms + offset) for offset in offsets_ms]
        return build_batch(records, timestamp_ms=now_ms, compression=codec)

    return build


def fixed(timestamp_ms: int, *, attributes: int = 0) -> Send:
    """One record with that very time."""
    return patched(
        0, b"", of=lambda _: build_batch([BatchRecord(b"k", b"v")], timestamp_ms=timestamp_ms), low=attributes
    )


def patched(position: int, value: bytes, *, crc: bool = True, of: Send | None = None, low: int = 0) -> Send:
    """Some bytes changed, bits set in the attributes' low byte, and a checksum that is right or not."""

    def build(now_ms: int) -> bytes:
        changed = bytearray((of or plain(b"one", b"two", b"three"))(now_ms))
        changed[position : position + len(value)] = value
        changed[22] |= low
        if crc:
            seal_crc(changed)
        return bytes(changed)

    return build


def packed(codec: Codec, payload: bytes | None = None, *, change: Callable[[bytearray], None] | None = None) -> Send:
    """Three records, compressed; or something else in their place; or the unpacked records changed."""

    def build(now_ms: int) -> bytes:
        batch = bytearray(plain(b"one", b"two", b"three")(now_ms))
        records = batch[HEADER_BYTES:]
        if change is not None:
            change(records)
        batch[HEADER_BYTES:] = compress(bytes(records), codec) if payload is None else payload
        batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        batch[22] |= codec
        seal_crc(batch)
        return bytes(batch)

    return build


def keyed(*keys: bytes | None, codec: int = 0) -> Send:
    """A record for each key."""

    def build(now_ms: int) -> bytes:
        return build_batch([BatchRecord(key, b"v") for key in keys], timestamp_ms=now_ms, compression=codec)

    return build


def idempotent(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 77) -> Send:
    return plain(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def twice(send: Send, rest: int | None = None) -> Send:
    """The batch, and behind it a second one or a piece of it."""
    return lambda now_ms: send(now_ms) + send(now_ms)[:rest]


def cut(send: Send, end: int) -> Send:
    return lambda now_ms: send(now_ms)[:end]


def record(
    offset: bytes = b"\0",
    *,
    attributes: bytes = b"\0",
    time: bytes = b"\0",
    key: bytes = b"\2k",
    value: bytes = b"\2v",
    headers: bytes = b"\0",
    longer: int = 0,
) -> bytes:
    """A record of which each part is encoded already (varints in zigzag: 1 is -1, 2 is 1), and a length that may be wrong."""
    body = attributes + time + offset + key + value + headers
    return bytes([(len(body) + longer) << 1]) + body


def raw(*records: bytes, count: int | None = None, codec: Codec = Codec.NONE) -> Send:
    """These bytes as the records of a batch, which states as many of them or `count`."""

    def build(now_ms: int) -> bytes:
        stated = len(records) if count is None else count
        batch = bytearray(plain(b"v")(now_ms)[:HEADER_BYTES])
        batch[23:27] = (stated - 1).to_bytes(4, "big")
        batch[57:61] = stated.to_bytes(4, "big")
        batch += compress(b"".join(records), codec)
        batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        batch[22] |= codec
        seal_crc(batch)
        return bytes(batch)

    return build


def _second_offset_wrong(records: bytearray) -> None:
    first_size = (records[0] >> 1) + 1
    records[first_size + 3] = 8  # length, attributes, timestamp delta, then the offset delta: 4 as a varint


def _longer_than_it_is(records: bytearray) -> None:
    records[0] += 2


GOOD = plain(b"one", b"two", b"three")
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
COMPACT = {"cleanup.policy": "compact"}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
BEFORE = {"message.timestamp.before.max.ms": str(HOUR)}
AFTER = {"message.timestamp.after.max.ms": str(2 * HOUR)}

# fmt: off
CASES: dict[str, Case] = {
    # The frame of a request's records
    "as it should be":                      Case([GOOD, GOOD]),
    "no bytes":                             Case([lambda _: b""]),
    "two batches":                          Case([twice(GOOD)]),
    "bytes of a next header behind it":     Case([twice(GOOD, 16)]),
    "a next batch that is cut off":         Case([twice(GOOD, -1)]),
    "cut off":                              Case([cut(GOOD, -1)]),
    "cut off in the header":                Case([cut(GOOD, 16)]),
    "cut off behind the magic":             Case([cut(GOOD, 17)]),
    "magic 0":                              Case([patched(16, b"\x00", crc=False)]),
    "magic 1":                              Case([patched(16, b"\x01", crc=False)]),
    "magic 3":                              Case([patched(16, b"\x03", crc=False)]),
    "magic -1":                             Case([patched(16, b"\xff", crc=False)]),
    "length 5":                             Case([patched(8, b"\0\0\0\x05", crc=False)]),
    "length 14":                            Case([patched(8, b"\0\0\0\x0e", crc=False)]),
    "negative length":                      Case([patched(8, b"\xff\xff\xff\xff", crc=False)]),
    "wrong checksum":                       Case([patched(17, b"\0\0\0\0", crc=False)]),
    "acks 2":                               Case([GOOD], acks=2),
    "acks 1":                               Case([GOOD], acks=1),
    # Header
    "base offset 1":                        Case([patched(7, b"\x01", crc=False)]),
    "base offset -1":                       Case([patched(0, b"\xff" * 8, crc=False)]),
    "some leader epoch":                    Case([patched(12, b"\0\0\0\x09", crc=False)]),
    "fewer records than offsets":           Case([patched(57, b"\0\0\0\x02")]),
    "more records than offsets":            Case([patched(57, b"\0\0\0\x04")]),
    "more records and offsets than there are": Case([patched(57, b"\0\0\0\x04", of=patched(23, b"\0\0\0\x03"))]),
    "no records":                           Case([patched(57, b"\0\0\0\0")]),
    "negative number of records":           Case([patched(57, b"\xff\xff\xff\xff")]),
    "control batch":                        Case([patched(0, b"", low=0x20)]),
    "delete horizon bit":                   Case([patched(0, b"", low=0x40)]),
    "unused attribute bits":                Case([patched(21, b"\x7f")]),
    "transactional without an id":          Case([patched(0, b"", low=0x10, of=idempotent(0))]),
    "sequence without a producer id":       Case([patched(53, b"\0\0\0\x07")]),
    "epoch without a producer id":          Case([patched(51, b"\0\x07")]),
    "producer id without a sequence":       Case([patched(43, b"\0\0\0\0\0\0\0\x05")]),
    "producer id with epoch -1":            Case([idempotent(0, epoch=-1)]),
    # Sizes
    "just as large as allowed":             Case([plain(b"x" * 30, key=None)], {"max.message.bytes": "98"}),
    "one byte too large":                   Case([plain(b"x" * 31, key=None)], {"max.message.bytes": "98"}),
    "too large, and a wrong checksum":      Case([patched(17, b"\0\0\0\0", crc=False)], {"max.message.bytes": "20"}),
    "small when compressed":                Case([plain(b"x" * 500, compression=1)], {"max.message.bytes": "120"}),
    "too large when no more compressed":    Case([plain(b"x" * 500, compression=1)],
                                                 {"max.message.bytes": "120", "compression.type": "uncompressed"}),
    "too large until compressed":           Case([plain(b"x" * 500)],
                                                 {"max.message.bytes": "120", "compression.type": "gzip"}),
    # Timestamps
    "no timestamp":                         Case([fixed(-1)]),
    "timestamp -2":                         Case([fixed(-2)]),
    "of 1970":                              Case([fixed(0)]),
    "half an hour ahead":                   Case([timed(HOUR // 2)]),
    "an hour and more ahead":               Case([timed(HOUR + 300_000)]),
    "some records too far ahead":           Case([timed(0, 2 * HOUR, 0, 3 * HOUR)]),
    "some compressed records too far ahead": Case([timed(0, 2 * HOUR, 0, codec=1)]),
    "too far ahead, and a null key":        Case([plain(b"v", at=2 * HOUR, key=None)], COMPACT),
    "an hour ahead where two are allowed":  Case([timed(HOUR)], AFTER),
    "three hours ahead where two are allowed": Case([timed(3 * HOUR)], AFTER),
    "old where old is refused":             Case([timed(-2 * HOUR)], BEFORE),
    "old enough":                           Case([timed(-HOUR // 2)], BEFORE),
    "some records too old":                 Case([timed(-HOUR // 2, -2 * HOUR, -3 * HOUR)], BEFORE),
    "no timestamp where old is refused":    Case([fixed(-1)], BEFORE),
    "timestamp -2 where old is refused":    Case([fixed(-2)], BEFORE),
    "a wrong largest timestamp":            Case([patched(35, b"\0\0\0\0\0\0\0\x05")]),
    "a wrong largest timestamp, compressed": Case([patched(35, b"\0\0\0\0\0\0\0\x05", of=packed(Codec.GZIP))]),
    "a largest timestamp far ahead":        Case([patched(35, b"\x01\0\0\0\0\0\0\0")]),
    "marked LogAppendTime":                 Case([patched(0, b"", low=0x08)]),
    "marked LogAppendTime, no timestamp":   Case([fixed(-1, attributes=0x08)]),
    "marked LogAppendTime, compressed":     Case([patched(0, b"", low=0x08, of=packed(Codec.LZ4))]),
    "append time":                          Case([timed(-HOUR, -2 * HOUR)], APPEND_TIME),
    "append time, compressed":              Case([timed(-HOUR, -2 * HOUR, codec=1)], APPEND_TIME),
    "append time, far ahead":               Case([timed(9 * HOUR)], APPEND_TIME),
    "append time, no timestamp":            Case([fixed(-1)], APPEND_TIME),
    "append time, marked so already":       Case([patched(0, b"", low=0x08)], APPEND_TIME),
    "append time, old where old is refused": Case([timed(-2 * HOUR)], APPEND_TIME | BEFORE),
    # Keys
    "compacted, with keys":                 Case([keyed(b"a", b"")], COMPACT),
    "compacted, a null key":                Case([keyed(None)], COMPACT),
    "compacted, some null keys":            Case([keyed(b"a", None, b"c", None)], COMPACT),
    "compacted, some null keys, compressed": Case([keyed(b"a", None, b"c", None, codec=1)], COMPACT),
    "compacted and deleted, a null key":    Case([keyed(b"a", None)], {"cleanup.policy": "compact,delete"}),
    "deleted, a null key":                  Case([keyed(None)]),
    "compacted, null keys at version 7":    Case([keyed(b"a", None)], COMPACT, version=7),
    # Compression
    **{f"{codec.name.lower()}":             Case([packed(codec)]) for codec in CODECS},
    **{f"{codec.name.lower()} that is none": Case([packed(codec, b"no compressed data at all")]) for codec in CODECS},
    **{f"{codec.name.lower()} of nothing":  Case([packed(codec, compress(b"", codec))]) for codec in CODECS},
    **{f"{codec.name.lower()} cut off":     Case([packed(codec, compress(b"x" * 99, codec)[:-3])]) for codec in CODECS},
    **{f"{codec.name.lower()} of zeros":    Case([packed(codec, compress(bytes(1 << 20), codec))]) for codec in CODECS},
    **{f"{codec.name.lower()}, one byte more behind": Case([packed(codec, change=lambda it: it.append(0))])
       for codec in CODECS},
    "codec 5":                              Case([patched(0, b"", low=5)]),
    "codec 6":                              Case([patched(0, b"", low=6)]),
    "codec 7":                              Case([patched(0, b"", low=7)]),
    "codec 5 at version 6":                 Case([patched(0, b"", low=5)], version=6),
    "zstd at version 6":                    Case([packed(Codec.ZSTD)], version=6),
    "zstd at version 7":                    Case([packed(Codec.ZSTD)], version=7),
    "a wrong offset inside":                Case([patched(0, b"", of=packed(Codec.GZIP, change=_second_offset_wrong))]),
    "a wrong record length inside":         Case([packed(Codec.GZIP, change=_longer_than_it_is)]),
    "gzip in two members":                  Case([packed(Codec.GZIP, gzip.compress(b"a") + gzip.compress(b"b"))]),
    **{f"{codec.name.lower()} to a topic of {to}": Case([packed(codec) if codec else GOOD], {"compression.type": to})
       for codec in (Codec.NONE, *CODECS) for to in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")},
    # Records, as they are encoded
    "record by record":                     Case([raw(record(), record(b"\2"))]),
    "records as they are encoded, compressed": Case([raw(record(), record(b"\2"), codec=Codec.GZIP)]),
    "null key and value":                   Case([raw(record(key=b"\1", value=b"\1"))]),
    "fewer records stated than there are":  Case([raw(record(), record(b"\2"), count=1)]),
    "a record stated as 2^31 - 1":          Case([raw(record(), count=(1 << 31) - 1)]),
    "a byte behind the records":            Case([raw(record() + b"\0")]),
    "half a record behind the records":     Case([raw(record() + record()[:4])]),
    "a last record that is cut off":        Case([raw(record(), record(b"\2")[:-1])]),
    "a record longer than its parts":       Case([raw(record(longer=1) + b"\0")]),
    "a record shorter than its parts":      Case([raw(record(longer=-1))]),
    "a record that reaches into the next":  Case([raw(record(longer=1), record(b"\2"))]),
    "a negative record length":             Case([raw(b"\1" + record()[1:])]),
    "record attributes 7":                  Case([raw(record(attributes=b"\7"))]),
    "a key longer than the record":         Case([raw(record(key=b"\x40k"))]),
    "a value longer than the record":       Case([raw(record(value=b"\x40v"))]),
    "a key of length -2":                   Case([raw(record(key=b"\3"))]),
    "a value of length -2":                 Case([raw(record(value=b"\3"))]),
    "a header":                             Case([raw(record(headers=b"\2\2h\2v"))]),
    "a header with a null value":           Case([raw(record(headers=b"\2\2h\1"))]),
    "a header with an empty key":           Case([raw(record(headers=b"\2\0\2v"))]),
    "a header with a null key":             Case([raw(record(headers=b"\2\1\2v"))]),
    "a header with a null key, compressed": Case([raw(record(headers=b"\2\1\2v"), codec=Codec.GZIP)]),
    "a header with a key that is not UTF-8": Case([raw(record(headers=b"\2\2\xff\2v"))]),
    "a header with a value of length -2":   Case([raw(record(headers=b"\2\2h\3"))]),
    "a header longer than the record":      Case([raw(record(headers=b"\2\2h\x40v"))]),
    "more headers than there are":          Case([raw(record(headers=b"\4\2h\2v"))]),
    "fewer headers than there are":         Case([raw(record(headers=b"\0\2h\2v"))]),
    "a negative number of headers":         Case([raw(record(headers=b"\1"))]),
    "many headers stated":                  Case([raw(record(headers=b"\xfe\xff\xff\xff\x0f"))]),
    "the same offset twice":                Case([raw(record(), record())]),
    "falling offsets":                      Case([raw(record(b"\2"), record())]),
    "an offset behind the batch":           Case([raw(record(), record(b"\x14"))]),
    "an offset before the batch":           Case([raw(record(), record(b"\1"))]),
    "an offset of more bytes than needed":  Case([raw(record(), record(b"\x82\0"))]),
    "an offset of six bytes":               Case([raw(record(), record(b"\x82\x80\x80\x80\x80\0"))]),
    "an offset of more than 32 bits":       Case([raw(record(b"\x80\x80\x80\x80\x10"))]),
    "a time of eleven bytes":               Case([raw(record(time=b"\x80" * 10 + b"\0"))]),
    "a time that wraps around":             Case([raw(record(time=b"\xfe" + b"\xff" * 8 + b"\1"))]),
    "a time that wraps around backwards":   Case([raw(record(time=b"\xff" * 9 + b"\1"))]),
    "malformed, to a topic of append time": Case([raw(record() + b"\0")], APPEND_TIME),
    "malformed, to a topic of gzip":        Case([raw(record() + b"\0")], {"compression.type": "gzip"}),
    "malformed, and a null key":            Case([raw(record(key=b"\1"), record(b"\2") + b"\0")], COMPACT),
    "far ahead, and malformed":             Case([raw(record(time=b"\xfe\xff\xff\x0f"), record(b"\2") + b"\0")]),
    "one far ahead of three":               Case([raw(record(), record(b"\2", time=b"\xfe\xff\xff\x0f"), record(b"\4"))]),
    "one far ahead of three, compressed":   Case([raw(record(), record(b"\2", time=b"\xfe\xff\xff\x0f"), record(b"\4"),
                                                      codec=Codec.ZSTD)]),
    # Idempotent producers
    "in order":                             Case([idempotent(0), idempotent(1, 3), idempotent(4)]),
    "sent again":                           Case([idempotent(0, 2), idempotent(2), idempotent(0, 2), idempotent(2)]),
    "sent again with other lengths":        Case([idempotent(0, 2), idempotent(0, 1)]),
    "sent again, as long but later":        Case([idempotent(0, 2), idempotent(1, 2)]),
    "a gap":                                Case([idempotent(0), idempotent(2)]),
    "begins anywhere":                      Case([idempotent(9), idempotent(10)]),
    "sixth from the end sent again":        Case([*(idempotent(n) for n in range(6)), idempotent(0)]),
    "fifth from the end sent again":        Case([*(idempotent(n) for n in range(5)), idempotent(0)]),
    "a new epoch begins at 0":              Case([idempotent(0), idempotent(1), idempotent(0, epoch=1)]),
    "a new epoch begins elsewhere":         Case([idempotent(0), idempotent(1, epoch=1)]),
    "an old epoch":                         Case([idempotent(0, epoch=2), idempotent(1, epoch=1)]),
    "wraps around":                         Case([idempotent((1 << 31) - 2, 2), idempotent(0)]),
    "wraps around within":                  Case([idempotent((1 << 31) - 2, 4), idempotent(2)]),
    "wraps around to 1":                    Case([idempotent((1 << 31) - 2, 2), idempotent(1)]),
    "sent again with a null key":           Case([keyed(b"a"), plain(b"v", key=None, producer_id=5, producer_epoch=0,
                                                                     base_sequence=0)], COMPACT),
    "out of order, and too far ahead":      Case([idempotent(0), plain(b"v", at=3 * HOUR, producer_id=77,
                                                                       producer_epoch=0, base_sequence=5)]),
}
# fmt: on


def summarize(partition: Any, now_ms: int, topic: str) -> dict[str, Any]:
    """What a producer was answered, without what differs from run to run."""
    time = partition.log_append_time_ms
    row = {
        "code": ErrorCode(partition.error_code).name,
        "base_offset": partition.base_offset,
        "log_append_time": relative(time, now_ms),
        "log_start_offset": partition.log_start_offset,
        "record_errors": [
            [it.batch_index, _plain_text(it.batch_index_error_message, topic)] for it in partition.record_errors
        ],
        "message": _plain_text(partition.error_message, topic),
    }
    return {key: value for key, value in row.items() if value not in (None, [])}


def relative(timestamp_ms: int, now_ms: int) -> str | int:
    """A time as hours from now, where it is near any; else as it is."""
    hours, rest = divmod(timestamp_ms - now_ms + NOW_TOLERANCE_MS, HOUR // 2)
    return f"now {hours / 2:+} h" if rest <= 2 * NOW_TOLERANCE_MS and abs(hours) < 100 else timestamp_ms


def _plain_text(text: str | None, topic: str) -> str | None:
    return None if text is None else re.sub(r"\d{12,}", "<time>", text.replace(topic, "<topic>"))


def stored(data: bytes, now_ms: int) -> list[dict[str, Any]]:
    """The batches that a consumer gets, as far as they do not depend on how well somebody compresses."""
    rows = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        row = {
            "offsets": [header.base_offset, header.last_offset],
            "attributes": header.attributes,
            "max_timestamp": relative(header.max_timestamp, now_ms),
            "base_timestamp": relative(header.base_timestamp, now_ms),
            "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
        }
        try:
            row["records"] = [[it.offset, relative(it.timestamp, now_ms)] for it in read_records(batch)]
        except Exception as error:  # noqa: BLE001 -- what cannot be read is a row, too
            row["records"] = type(error).__name__
        rows.append(row)
    return rows
