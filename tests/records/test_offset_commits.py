"""The fast path of OffsetCommit gives what the codec compiled from the schema gives."""

import tracemalloc
from struct import error

from hypothesis import given
from hypothesis import strategies as st

from kohort.records import values
from kohort.records.codecs import decode_record, key_encoder, value_encoder
from kohort.records.offset_commits import decode_offset_commit, encode_offset_commit, offset_key, offset_value
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
    is_plain = record.topic_id is None and len(record.metadata.encode()) < 127
    assert fast == (slow if is_plain else None)


def test_decodes_most_records_of_a_broker() -> None:
    offsets = [r for r in golden_records() if r.topic == "__consumer_offsets"]
    seen = [r for r in offsets if r.key.startswith("0001") and (r.value or "").startswith("0004")]
    fast = [decode_offset_commit(r.key_bytes, r.value_bytes or b"") for r in seen]
    for record, found in zip(seen, fast, strict=True):
        assert found is None or found == decode_record(OFFSET_COMMIT, record.key_bytes, record.value_bytes)
    assert sum(found is not None for found in fast) > 200


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
