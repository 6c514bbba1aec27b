"""OffsetCommit records that the recorded logs do not have: unknown tags, malformed bytes, future versions."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.ids import uuid_text
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.offsets import MALFORMED_KEY, MALFORMED_VALUE, UNKNOWN_VERSION
from kohort.records.codecs import decode_record
from kohort.records.schema import record_types
from kohort.records.values import OffsetCommit
from tests.pipeline.logbytes import (
    TIMESTAMP_MS,
    batch,
    flexible_offset_value,
    offset_key,
    offset_value,
    segment,
    string,
    uvarint,
)
from tests.records.golden import golden_records

KEY = offset_key("group", "topic", 3)
TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def rows_of(raw: bytes, **options: Any) -> list[dict[str, Any]]:
    return [row for one in Decoder(**options).decode(raw, segment()) for row in one.to_pylist()]


def commit(value: bytes | None, key: bytes = KEY) -> dict[str, Any]:
    """The one row, a commit or damage, that a record gives."""
    (row,) = rows_of(batch(0, [(key, value)]))
    return row


def flexible(tags: bytes, metadata: bytes = b"\x01") -> bytes:
    return flexible_offset_value(42, metadata, tags)


def tag(number: int, data: bytes) -> bytes:
    return uvarint(number) + uvarint(len(data)) + data


# fmt: off
TAGS = {
    "none":                     (b"\x00",                                             None),
    "the topic id":             (b"\x01" + tag(0, TOPIC_ID),                          TOPIC_ID_TEXT),
    "a zero topic id":          (b"\x01" + tag(0, bytes(16)),                         None),
    "an unknown one":           (b"\x01" + tag(9, b"new"),                            None),
    "topic id and unknown":     (b"\x02" + tag(0, TOPIC_ID) + tag(200, b"x" * 300),   TOPIC_ID_TEXT),
    "as many as Kafka reads":   (b"\x90\x4e" + tag(0, TOPIC_ID) + tag(9, b"") * 9_999, TOPIC_ID_TEXT),
    "an empty unknown one":     (b"\x02" + tag(0, TOPIC_ID) + tag(1, b""),            TOPIC_ID_TEXT),
}
MALFORMED = {
    "an empty value":           b"",
    "a version alone":          struct.pack(">h", 3),
    "an offset alone":          struct.pack(">hq", 4, 1),
    "metadata too long":        struct.pack(">hqi", 3, 1, 1) + struct.pack(">h", 300) + bytes(20),
    "metadata of negative length": struct.pack(">hqi", 3, 1, 1) + struct.pack(">h", -2) + bytes(20),
    "null metadata":            flexible_offset_value(1, b"\x00", b"\x00"),
    "a timestamp cut off":      offset_value(1)[:-1],
    "no expire timestamp":      struct.pack(">hq", 1, 7) + string("") + struct.pack(">q", 1),
    "tags missing":             flexible(b""),
    "a tag cut off":            flexible(b"\x01" + tag(0, TOPIC_ID)[:-1]),
    "more tags than there are": flexible(b"\x02" + tag(0, TOPIC_ID)),
    "more tags than Kafka reads": flexible(b"\x91\x4e" + tag(0, TOPIC_ID) + tag(9, b"") * 10_000),
    "a tag of endless length":  flexible(b"\x01\x05" + b"\xff" * 9 + b"\x7f"),
}
KEYS = {
    "a key type alone":         struct.pack(">h", 1),
    "a group too long":         struct.pack(">hh", 1, 500) + b"group" + bytes(6),
    "a negative group length":  struct.pack(">hh", 1, -1) + bytes(12),
    "a topic too long":         struct.pack(">h", 1) + string("group") + struct.pack(">h", 99) + bytes(8),
    "no partition":             struct.pack(">h", 1) + string("group") + string("topic"),
}
# fmt: on


@pytest.mark.parametrize("name", TAGS)
def test_tagged_fields(name: str) -> None:
    tags, topic_id = TAGS[name]
    row = commit(flexible(tags))
    assert (row["offset"], row["commit_timestamp_ms"], row["topic_id"]) == (42, TIMESTAMP_MS, topic_id)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_values_are_reported(name: str) -> None:
    row = commit(MALFORMED[name])
    assert (row["kind"], row["log_offset"]) == ("damage", 0)
    assert row["problem"] in (MALFORMED_VALUE, UNKNOWN_VERSION)


@pytest.mark.parametrize("name", KEYS)
def test_malformed_keys_are_reported(name: str) -> None:
    assert commit(offset_value(1), KEYS[name])["problem"] == MALFORMED_KEY


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_versions_to_come_are_reported(version: int) -> None:
    row = commit(struct.pack(">h", version) + bytes(40))
    assert (row["kind"], row["problem"]) == ("damage", UNKNOWN_VERSION)


def test_a_malformed_record_costs_no_other() -> None:
    pairs = [(KEY, offset_value(1)), (KEY, b"\x00\x04"), (offset_key("g", "t", 0), offset_value(2)), (KEY, None)]
    rows = rows_of(batch(0, pairs))
    assert [(row["kind"], row["log_offset"], row["offset"], row["tombstone"]) for row in rows] == [
        ("offset_commit", 0, 1, False),
        ("offset_commit", 2, 2, False),
        ("offset_commit", 3, None, True),
        ("damage", 1, None, None),
    ]


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 4096, 20_000])
def test_compact_metadata_of_any_length(size: int) -> None:
    row = commit(flexible(b"\x00", uvarint(size + 1) + b"m" * size))
    assert row["metadata"] == "m" * size


def test_what_is_no_utf8_gets_replacement_characters() -> None:
    pairs = [(KEY, offset_value(1, metadata="fine")), (KEY, flexible(b"\x00", b"\x03\xff\xfe"))]
    assert [row["metadata"] for row in rows_of(batch(0, pairs))] == ["fine", "\ufffd\ufffd"]


TEXT = st.text(max_size=30)
COMMITS = st.tuples(
    TEXT,
    TEXT,
    st.integers(0, 2**31 - 1),
    st.none() | st.tuples(st.integers(0, 2**63 - 1), TEXT),
    st.sampled_from([0, 1]),
)


@settings(deadline=None)
@given(st.lists(st.lists(COMMITS, min_size=1, max_size=5), max_size=5), st.sampled_from([1, 200, 1 << 20]))
def test_every_commit_is_read_again(batches: list[list[Any]], window_bytes: int) -> None:
    raw = b""
    expected: list[Any] = []
    for commits in batches:
        base = len(expected)
        pairs = []
        for group, topic, partition, value, key_type in commits:
            encoded = None if value is None else offset_value(value[0], metadata=value[1])
            pairs.append((offset_key(group, topic, partition, key_type=key_type), encoded))
            offset, metadata = value or (None, None)
            expected.append((group, topic, partition, offset, metadata, value is None))
        raw += batch(base, pairs)
    names = ("group", "topic", "partition", "offset", "metadata", "tombstone")
    assert [tuple(row[name] for name in names) for row in rows_of(raw, window_bytes=window_bytes)] == expected


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.sampled_from([0, 1, 2]))
def test_any_value_is_read_or_reported(values: list[bytes], key_type: int) -> None:
    key = struct.pack(">h", key_type) + KEY[2:]
    rows = rows_of(batch(0, [(key, value) for value in values]))
    assert sorted(row["log_offset"] for row in rows) == list(range(len(values)))


@settings(deadline=None)
@given(st.lists(st.binary(min_size=2, max_size=40), min_size=1, max_size=6))
def test_any_key_is_read_or_reported_or_of_another_type(keys: list[bytes]) -> None:
    pairs = [(struct.pack(">h", index % 3) + key, offset_value(1)) for index, key in enumerate(keys)]
    assert len(rows_of(batch(0, pairs))) == len(keys)


def test_records_of_unknown_types_are_kept_as_bytes() -> None:
    pairs = [(struct.pack(">h", 99) + b"new", b"value"), (struct.pack(">h", 18), None), (None, b"value"), (b"", b"")]
    rows = rows_of(batch(0, [*pairs, (b"\x00", b"")]))
    assert [(row["kind"], row["key_type"], row["tombstone"], row["raw_key"], row["raw_value"]) for row in rows] == [
        ("coordinator", 18, True, struct.pack(">h", 18), None),
        ("coordinator", 99, False, struct.pack(">h", 99) + b"new", b"value"),
    ]


def test_columns_that_nobody_asked_for_are_left_out() -> None:
    schema = schemas.subset(["offset", "log_offset"])
    assert rows_of(batch(8, [(KEY, offset_value(5))]), schema=schema) == [{"offset": 5, "log_offset": 8}]


def test_columns_are_what_the_codec_of_single_records_reads() -> None:
    """The columns are speed code beside `kohort.records`: both read every offset that Apache Kafka wrote."""
    record_type = record_types()["__consumer_offsets", 1]
    golden = [r for r in golden_records() if r.topic == "__consumer_offsets" and r.decoded["key_type"] == 1]
    rows = rows_of(batch(0, [(record.key_bytes, record.value_bytes) for record in golden]))
    assert len(rows) > 300
    for record, row in zip(golden, rows, strict=True):
        found = decode_record(record_type, record.key_bytes, record.value_bytes)
        assert (row["group"], row["topic"], row["partition"]) == (found.group_id, found.topic, found.partition)
        assert row["tombstone"] == (record.value is None)
        if isinstance(found, OffsetCommit):
            names = ("offset", "metadata", "commit_timestamp_ms", "leader_epoch")
            assert [row[name] for name in names] == [getattr(found, name) for name in names]
            is_expiring = row["value_version"] == 1
            assert row["expire_timestamp_ms"] == (found.expire_timestamp_ms if is_expiring else None)
            assert row["topic_id"] == (None if found.topic_id is None else uuid_text(found.topic_id))
