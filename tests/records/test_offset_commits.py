"""The fast path of OffsetCommit gives what the codec compiled from the schema gives."""

import tracemalloc
from struct import error
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.records import values
from kohort.records.codecs import decode_record, key_encoder, value_encoder
from kohort.records.offset_commits import (
    decode_offset_commit,
    encode_offset_commit,
    offset_key,
    offset_value,
    topic_id_of,
)
from kohort.records.schema import record_types
from kohort.wire.primitives import INT64
from tests.records.golden import golden_records
from tests.records.strategies import records_of

OFFSET_COMMIT = record_types()["__consumer_offsets", 1]
NAMES = st.text(max_size=150)
COMMITS = st.builds(
    values.OffsetCommit,
    NAMES, NAMES, st.integers(-1, 9), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-1, 1 << 30),
    st.sampled_from(["", "x", "x" * 126, "x" * 127, "x" * 128, "méta ☃"]) | NAMES,
    st.integers(-1, 1 << 60), st.just(-1), st.none() | st.uuids(),
)  # fmt: skip
EXPIRING = records_of(OFFSET_COMMIT, 1)


@given(COMMITS | EXPIRING)
def test_encodes_as_the_schema_does(record: values.OffsetCommit) -> None:
    version = 1 if record.expire_timestamp_ms != -1 else 4
    slow = key_encoder("OffsetCommit")(record), value_encoder("OffsetCommit", version)(record)
    assert encode_offset_commit(record) == slow


@given(COMMITS)
def test_the_prepared_parts_are_the_value(record: values.OffsetCommit) -> None:
    front, middle, back = offset_value(record.leader_epoch, record.metadata, record.topic_id)
    value = front + INT64.pack(record.offset) + middle + INT64.pack(record.commit_timestamp_ms) + back
    assert (offset_key(record.group_id, record.topic, record.partition), value) == encode_offset_commit(record)


@given(COMMITS)
def test_decodes_as_the_schema_does(record: values.OffsetCommit) -> None:
    key, value = encode_offset_commit(record)
    slow = decode_record(OFFSET_COMMIT, key, value)
    fast = decode_offset_commit(key, value)
    is_plain = len(record.metadata.encode()) < 127
    assert fast == (slow if is_plain else None)


def test_decodes_most_records_of_a_broker() -> None:
    offsets = [r for r in golden_records() if r.topic == "__consumer_offsets"]
    seen = [r for r in offsets if r.key.startswith("0001") and (r.value or "").startswith("0004")]
    fast = [decode_offset_commit(r.key_bytes, r.value_bytes or b"") for r in seen]
    for record, found in zip(seen, fast, strict=True):
        assert found is None or found == decode_record(OFFSET_COMMIT, record.key_bytes, record.value_bytes)
    assert sum(found is None for found in fast) == 2, "one of each release has long metadata"
    assert sum(found is not None and found.topic_id is not None for found in fast) > 50


TOPIC_ID = UUID(int=7)
TAGS = {
    "the topic id":            ([b"\0\x10" + TOPIC_ID.bytes], True),
    "a zero topic id":         ([b"\0\x10" + bytes(16)], True),
    "one of a later release":  ([b"\0\x10" + TOPIC_ID.bytes, b"\3\1\7"], False),
    "a topic id that is cut":  ([b"\0\x10" + bytes(15)], False),
    "none but a later one":    ([b"\3\1\7"], False),
}  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_the_topic_id_alone_is_read_fast(name: str) -> None:
    tags, is_fast = TAGS[name]
    key, value = encode_offset_commit(values.OffsetCommit("g", "orders", 0, 1, -1, "", 0))
    value = value[:-1] + bytes([len(tags)]) + b"".join(tags)
    assert decode_offset_commit(key, value) == (decode_record(OFFSET_COMMIT, key, value) if is_fast else None)


def test_offsets_of_one_topic_share_its_id() -> None:
    """A table may have millions of offsets."""
    written = [values.OffsetCommit("g", "orders", each, 1, -1, "", 0, -1, UUID(int=7)) for each in range(2)]
    first, second = (decode_offset_commit(*encode_offset_commit(each)) for each in written)
    assert first is not None
    assert second is not None
    assert first.topic_id is second.topic_id
    assert (topic_id_of.cache_info().maxsize or 0) == 16_384


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_reads_nothing_that_the_schema_refuses(key: bytes, value: bytes) -> None:
    key, value = b"\x00\x01" + key, b"\x00\x04" + value
    try:
        fast = decode_offset_commit(key, value)
    except (IndexError, error, UnicodeDecodeError):
        fast = None
    assert fast is None or fast == decode_record(OFFSET_COMMIT, key, value)


def test_the_cache_of_keys_is_bounded() -> None:
    """A group id may have 32 kB; the keys of such a group are not kept."""
    tracemalloc.start()
    try:
        for partition in range(300):
            key, _ = encode_offset_commit(values.OffsetCommit("g" * 30_000, "orders", partition, 1, -1, "", 0))
            assert len(key) > 30_000
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
