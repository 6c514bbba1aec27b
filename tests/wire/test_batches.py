"""Record batches: golden ones of Apache Kafka 4.2.1, and generated ones."""

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.wire import batches
from kohort.wire.batch_header import CONTROL, HEADER_BYTES
from kohort.wire.batches import (
    BatchRecord,
    EndTransactionMarker,
    LogRecord,
    build_batch,
    check_crc,
    encode_batch,
    iter_batches,
    read_header,
    read_marker,
    read_records,
    stamp,
    stamp_log_append_time,
    write_crc,
)
from kohort.wire.compression import Codec, compress, decompress
from kohort.wire.produced import validate_produced
from tests.wire.control_batches import control_batch

GOLDEN = sorted((Path(__file__).parent.parent / "data/batches").glob("*.log.gz"))
NAMES = [path.name.removesuffix(".log.gz") for path in GOLDEN]


def golden(path: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """A segment that Kafka wrote, and the batches that Kafka's own classes read there."""
    expected = gzip.decompress(path.with_name(path.name.replace(".log.gz", ".jsonl.gz")).read_bytes())
    return gzip.decompress(path.read_bytes()), [json.loads(line) for line in expected.splitlines()]


def as_written(record: LogRecord) -> BatchRecord:
    return BatchRecord(record.key, record.value, record.headers, record.timestamp)


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_headers_of_kafkas_batches(path: Path) -> None:
    segment, expected = golden(path)
    found = list(iter_batches(segment))
    assert [position for position, _ in found] == [batch["position"] for batch in expected]
    for (position, header), batch in zip(found, expected, strict=True):
        assert check_crc(segment, position) is batch["valid"]
        assert header.size_bytes == batch["size"]
        assert (header.base_offset, header.last_offset) == (batch["base_offset"], batch["last_offset"])
        assert header.next_offset == batch["last_offset"] + 1
        assert (header.magic, header.crc, header.record_count) == (batch["magic"], batch["crc"], batch["count"])
        assert Codec(header.codec).name.lower() == batch["compression"]
        assert header.is_log_append_time == (batch["timestamp_type"] == "LogAppendTime")
        assert (header.producer_id, header.producer_epoch) == (batch["producer_id"], batch["producer_epoch"])
        assert (header.base_sequence, header.last_sequence) == (batch["base_sequence"], batch["last_sequence"])
        assert (header.is_transactional, header.is_control) == (batch["transactional"], batch["control"])
        assert (header.partition_leader_epoch, header.max_timestamp) == (batch["leader_epoch"], batch["max_timestamp"])
        assert not header.has_delete_horizon


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_records_of_kafkas_batches(path: Path) -> None:
    segment, expected = golden(path)
    for (position, header), batch in zip(iter_batches(segment), expected, strict=True):
        records = read_records(segment[position : position + header.size_bytes])
        assert [
            (
                record.offset,
                record.timestamp,
                record.key and record.key.hex(),
                record.value and record.value.hex(),
                [(key, value if value is None else value.hex()) for key, value in record.headers],
            )
            for record in records
        ] == [
            (
                record["offset"],
                record["timestamp"],
                record["key"] and record["key"],
                record["value"] and record["value"],
                [(header["key"], header["value"]) for header in record.get("headers", [])],
            )
            for record in (unhexed(record) for record in batch["records"])
        ]


def unhexed(record: dict[str, Any]) -> dict[str, Any]:
    """Empty keys and values as they come out of a batch."""
    return {name: b"" if name in ("key", "value") and value == "" else value for name, value in record.items()}


@pytest.mark.parametrize("path", GOLDEN, ids=NAMES)
def test_what_we_write_is_what_kafka_wrote(path: Path) -> None:
    """Byte for byte where nothing is compressed; the records alone where another implementation compressed them."""
    segment, _ = golden(path)
    for position, header in iter_batches(segment):
        batch = segment[position : position + header.size_bytes]
        records = read_records(batch)
        again = bytearray(
            build_batch(
                [as_written(record) for record in records],
                timestamp_ms=0,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                control=header.is_control,
                compression=header.codec,
            )
        )
        stamp(again, base_offset=header.base_offset, leader_epoch=header.partition_leader_epoch)
        if header.codec or header.is_log_append_time:
            assert read_header(again).codec == header.codec
            assert list(map(as_written, read_records(again))) == list(map(as_written, records))
        else:
            assert again == batch


def test_a_marker_is_what_kafka_wrote() -> None:
    segment, _ = golden(next(path for path in GOLDEN if path.name.startswith("d-txn")))
    outcomes = set()
    for position, header in iter_batches(segment):
        if header.is_control:
            batch = segment[position : position + header.size_bytes]
            (record,) = read_records(batch)
            marker = read_marker(record)
            assert marker is not None
            outcomes.add(marker.committed)
            ours = bytearray(
                control_batch(
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    committed=marker.committed,
                    coordinator_epoch=marker.coordinator_epoch,
                    timestamp_ms=record.timestamp,
                )
            )
            stamp(ours, base_offset=header.base_offset, leader_epoch=header.partition_leader_epoch)
            assert ours == batch
    assert outcomes == {True, False}


def test_markers_that_are_none() -> None:
    (marker,) = read_records(
        control_batch(producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=9, timestamp_ms=5)
    )
    assert read_marker(marker) == EndTransactionMarker(committed=True, coordinator_epoch=9)
    (leader_change,) = read_records(build_batch([BatchRecord(b"\0\0\0\2", b"")], timestamp_ms=0, control=True))
    assert read_marker(leader_change) is None
    for key, value in ((b"\0\0", b""), (None, b""), (b"\0\0\0\1", b"\0\0"), (b"\0\0\0\1", None)):
        (damaged,) = read_records(build_batch([BatchRecord(key, value)], timestamp_ms=0, control=True))
        with pytest.raises(CorruptError):
            read_marker(damaged)


def test_batches_of_a_coordinator_are_what_kafka_wrote() -> None:
    """The group and share coordinators write base sequence 0 without a producer, the transaction coordinator -1."""
    for name, base_sequence in (("__share_group_state-0", 0), ("__transaction_state-1", -1)):
        segment, _ = golden(GOLDEN[NAMES.index(name)])
        for position, header in iter_batches(segment):
            batch = segment[position : position + header.size_bytes]
            pairs = [(record.key or b"", record.value) for record in read_records(batch)]
            ours = encode_batch(
                pairs,
                header.base_timestamp,
                base_sequence=base_sequence,
                base_offset=header.base_offset,
                leader_epoch=header.partition_leader_epoch,
            )
            assert ours == batch


def test_a_batch_of_a_coordinator_has_its_place_in_the_log() -> None:
    header = read_header(encode_batch([(b"k", b"v"), (b"k", None)], 1, base_offset=7, leader_epoch=5))
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (7, 8, 5)


@given(
    st.binary(max_size=260), st.none() | st.binary(max_size=260), st.integers(-1, 1 << 45), st.integers(0, 1 << 50),
    st.none() | st.integers(0, 1 << 60), st.sampled_from([-1, 0]), st.integers(0, 1 << 20),
)  # fmt: skip
def test_a_batch_of_one_record_is_what_the_builder_gives(
    key: bytes,
    value: bytes | None,
    timestamp_ms: int,
    base_offset: int,
    producer_id: int | None,
    base_sequence: int,
    leader_epoch: int,
) -> None:
    producer: dict[str, Any] = (
        {} if producer_id is None else {"producer_id": producer_id, "producer_epoch": 7, "transactional": True}
    )
    built = bytearray(
        build_batch([BatchRecord(key, value)], timestamp_ms=timestamp_ms, base_sequence=base_sequence, **producer)
    )
    stamp(built, base_offset=base_offset, leader_epoch=leader_epoch)
    assert built == encode_batch(
        [(key, value)],
        timestamp_ms,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        **producer,
    )


def test_records_of_all_sizes_have_forms_of_their_own() -> None:
    sizes = (0, 1, 2, 127, 128, 255, 256)
    for key, value in product(map(bytes, sizes), map(bytes, sizes)):
        (record,) = read_records(encode_batch([(key, value)], 5))
        assert (record.key, record.value) == (key, value)


def test_forms_of_batches_are_bounded() -> None:
    """Clients choose the sizes of names: whoever uses many gets batches of the builder."""
    kept = dict(batches._forms)
    try:
        batches._forms.clear()
        for size in range(2_000):
            key, value = bytes(size >> 6), bytes(size & 63)
            (record,) = read_records(encode_batch([(key, value)], 5))
            assert (record.key, record.value) == (key, value)
        assert len(batches._forms) == 1_024
    finally:
        batches._forms.clear()
        batches._forms.update(kept)


TEXT = st.text(max_size=8)
BLOB = st.none() | st.binary(max_size=40) | st.just(b"long " * 60)
RECORDS = st.lists(
    st.builds(
        BatchRecord,
        key=BLOB,
        value=BLOB,
        headers=st.lists(st.tuples(TEXT, BLOB), max_size=3),
        timestamp_ms=st.none() | st.just(-1) | st.integers(0, 1 << 45),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from(Codec), st.integers(0, 1 << 50), st.booleans(), st.booleans())
def test_what_is_written_is_read(
    records: list[BatchRecord], codec: Codec, base_offset: int, transactional: bool, control: bool
) -> None:
    batch = build_batch(
        records,
        timestamp_ms=1_700_000_000_000,
        producer_id=5,
        producer_epoch=2,
        base_sequence=(1 << 31) - 1,
        transactional=transactional,
        control=control,
        compression=codec,
        base_offset=base_offset,
    )
    ((position, header),) = iter_batches(batch)
    assert (position, header.size_bytes) == (0, len(batch))
    assert check_crc(batch)
    assert (header.codec, header.is_transactional, header.is_control) == (codec, transactional, control)
    assert (header.producer_id, header.producer_epoch, header.record_count) == (5, 2, len(records))
    assert header.last_sequence == (len(records) - 2 if len(records) > 1 else (1 << 31) - 1)
    read = read_records(batch)
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(records)))
    assert [(record.key, record.value, list(record.headers)) for record in read] == [
        (record.key, record.value, list(record.headers)) for record in records
    ]
    times = [1_700_000_000_000 if record.timestamp_ms is None else record.timestamp_ms for record in records]
    assert [record.timestamp for record in read] == times
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))


LONGS = st.sampled_from([-(1 << 63), -(1 << 62) - 5, -1, 0, 5, (1 << 62) + 5, (1 << 63) - 1])


@given(st.lists(LONGS, min_size=1, max_size=5))
def test_times_may_be_as_far_apart_as_longs_are(times: list[int]) -> None:
    """Java's arithmetic comes round again; so it is in a batch that Kafka packs anew."""
    data = build_batch([BatchRecord(b"k", b"v", timestamp_ms=it) for it in times], timestamp_ms=0)
    assert [record.timestamp for record in read_records(data)] == times
    assert read_header(data).max_timestamp == max(times)


def test_stamping_leaves_the_checksum_right() -> None:
    batch = bytearray(b"before") + encode_batch([(b"key", None)], 5)
    stamp(batch, base_offset=1 << 40, leader_epoch=7, position=6)
    header = read_header(batch, 6)
    assert (header.base_offset, header.partition_leader_epoch, header.base_sequence) == (1 << 40, 7, 0)
    assert check_crc(batch, 6)
    assert batch[:6] == b"before"


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = bytearray(build_batch([BatchRecord(b"a", b"", (), 5), BatchRecord(b"b", b"", (), 9)], timestamp_ms=0))
    stamp_log_append_time(batch, 1_000)
    assert check_crc(batch)
    assert read_header(batch).is_log_append_time
    assert [record.timestamp for record in read_records(batch)] == [1_000, 1_000]


def test_every_bit_behind_the_checksum_is_covered() -> None:
    batch = encode_batch([(b"key", b"value")], 5)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert not check_crc(damaged)


def test_a_torn_tail_ends_the_batches() -> None:
    batch = bytes(encode_batch([(b"key", b"value")], 5))
    for size in range(len(batch)):
        assert [position for position, _ in iter_batches(batch + batch[:size])] == [0]
    assert [position for position, _ in iter_batches(batch + batch)] == [0, len(batch)]
    assert [position for position, _ in iter_batches(b"xyz" + batch, 3)] == [3]


def test_what_is_no_batch_is_corrupt() -> None:
    batch = encode_batch([(b"key", b"value")], 5)
    for change in ({16: 1}, {16: 3}, {8: 0xFF}, {11: 48, 10: 0}):
        damaged = bytearray(batch)
        for position, value in change.items():
            damaged[position] = value
        with pytest.raises(CorruptError):
            list(iter_batches(damaged))
    with pytest.raises(CorruptError):
        list(iter_batches(bytes(100)))
    with pytest.raises(CorruptError):
        read_header(bytes(60))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 16), st.integers(0, 255), st.sampled_from(Codec))
def test_damaged_records_are_corrupt_or_other_records(at: int, value: int, codec: Codec) -> None:
    batch = bytearray(
        build_batch([BatchRecord(b"key", b"v" * 50, [("h", b"x")])] * 5, timestamp_ms=5, compression=codec)
    )
    batch[57 + at % (len(batch) - 57)] = value
    try:
        read_records(batch)
    except CorruptError:
        return


# What a producer sends.

HONEST = build_batch([BatchRecord(b"a", b"1"), BatchRecord(b"b", b"2")], timestamp_ms=5)


def changed(changes: dict[int, bytes], batch: bytes = HONEST, *, crc: bool = True) -> bytes:
    damaged = bytearray(batch)
    for position, value in changes.items():
        damaged[position : position + len(value)] = value
    if crc:
        write_crc(damaged)
    return bytes(damaged)


ZSTD = build_batch([BatchRecord(b"a", b"1")], timestamp_ms=5, compression=Codec.ZSTD)
PRODUCED = {
    "one batch": (HONEST, 3, None),
    "one batch, and a piece of another": (HONEST + HONEST[:-1], 3, None),
    "zstd from version 7 on": (ZSTD, 7, None),
    "zstd before": (ZSTD, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "nothing": (b"", 3, ErrorCode.INVALID_RECORD),
    "null": (None, 3, ErrorCode.INVALID_RECORD),
    "two batches": (HONEST + HONEST, 3, ErrorCode.INVALID_RECORD),
    "a batch that is cut off": (HONEST[:-1], 3, ErrorCode.INVALID_RECORD),
    "magic 1": (changed({16: b"\1"}), 3, ErrorCode.INVALID_RECORD),
    "magic 3": (changed({16: b"\3"}), 3, ErrorCode.CORRUPT_MESSAGE),
    "a negative magic": (changed({16: b"\xff"}), 3, ErrorCode.CORRUPT_MESSAGE),
    "a length below every record": (changed({8: b"\0\0\0\5"}), 3, ErrorCode.CORRUPT_MESSAGE),
    "a length below the header": (changed({8: b"\0\0\0\x30"})[:60], 3, ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (changed({60: b"\7"}, crc=False), 3, ErrorCode.CORRUPT_MESSAGE),
    "a base offset": (changed({7: b"\1"}), 3, ErrorCode.INVALID_RECORD),
    "too large": (build_batch([BatchRecord(b"a", b"x" * 1000)], timestamp_ms=5), 3, ErrorCode.MESSAGE_TOO_LARGE),
    "a control batch": (changed({21: CONTROL.to_bytes(2, "big")}), 3, ErrorCode.INVALID_RECORD),
    "no records": (changed({57: bytes(4), 23: b"\xff\xff\xff\xff"}), 3, ErrorCode.INVALID_RECORD),
    "fewer records than offsets": (changed({57: b"\0\0\0\1"}), 3, ErrorCode.INVALID_RECORD),
    "a producer id without a sequence": (changed({43: bytes(8)}), 3, ErrorCode.INVALID_RECORD),
    "a producer id without an epoch": (changed({43: bytes(8), 53: bytes(4)}), 3, None),
    "a sequence without a producer id": (changed({53: bytes(4)}), 3, None),
    "an unknown codec": (changed({21: b"\0\7"}), 3, ErrorCode.UNKNOWN_SERVER_ERROR),
    "unknown attributes": (changed({21: b"\xff\x80"}), 3, None),
}


@pytest.mark.parametrize("what", PRODUCED)
def test_produced_batches_are_checked_as_kafka_does(what: str) -> None:
    records, version, code = PRODUCED[what]
    if code is None:
        assert validate_produced(records, api_version=version, batch_bytes_max=1_000).record_count >= 1
        return
    with pytest.raises(CoordinatorError) as refusal:
        validate_produced(records, api_version=version, batch_bytes_max=1_000)
    assert refusal.value.code == code


def test_the_size_is_checked_before_the_checksum() -> None:
    large = changed({60: b"\7"}, build_batch([BatchRecord(b"a", b"x" * 1000)], timestamp_ms=5), crc=False)
    with pytest.raises(CoordinatorError) as refusal:
        validate_produced(large, api_version=3, batch_bytes_max=1_000)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


# Compression.

COMPRESSED = [codec for codec in Codec if codec]


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [0, 1, 1_000, 100_000, 300_000])
def test_what_is_compressed_comes_out(codec: Codec, size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert decompress(compress(data, codec), codec) == data
    assert decompress(compress(data, codec), codec, size) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_it_is_unpacked_whole(codec: Codec) -> None:
    bomb = compress(bytes(10_000_000), codec)
    for limit in (0, 1_000, 9_999_999):
        with pytest.raises(CorruptError, match="decompress to more than"):
            decompress(bomb, codec, limit)
    assert len(decompress(bomb, codec, 10_000_000)) == 10_000_000
    batch = build_batch([BatchRecord(None, bytes(1_000_000))], timestamp_ms=0, compression=codec)
    with pytest.raises(CorruptError):
        read_records(batch, decompressed_bytes_max=100_000)


def test_a_gzip_bomb_in_a_second_member_is_refused_as_well() -> None:
    members = compress(b"small", Codec.GZIP) + compress(bytes(1_000_000), Codec.GZIP)
    assert len(decompress(members, Codec.GZIP)) == 1_000_005
    with pytest.raises(CorruptError):
        decompress(members, Codec.GZIP, 1_000)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"garbage, and not little of it"])
def test_what_is_not_compressed_is_corrupt(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CorruptError):
        decompress(garbage, codec)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_prefix_is_corrupt_or_shorter(codec: Codec) -> None:
    data = bytes(range(256)) * 10
    packed = compress(data, codec)
    for size in range(len(packed)):
        try:
            out = decompress(packed[:size], codec)
        except CorruptError:
            continue
        assert len(out) < len(data)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptError, match="codec"):
        decompress(b"", codec)


def test_bare_snappy_is_read_too() -> None:
    """As some clients send it; Java's frames it in blocks."""
    assert decompress(bytes(cramjam.snappy.compress_raw(b"value " * 50)), Codec.SNAPPY) == b"value " * 50
    assert compress(b"value", Codec.SNAPPY).startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")


def test_blocks_of_lz4_must_not_depend_on_each_other() -> None:
    linked = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=True)
    linked.compress(b"value " * 50)
    with pytest.raises(CorruptError, match="depend"):
        decompress(bytes(linked.finish()), Codec.LZ4)
    assert compress(b"value " * 50, Codec.LZ4)[4] & 0x20


def test_the_header_has_61_bytes() -> None:
    assert HEADER_BYTES == 61
