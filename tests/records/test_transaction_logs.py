"""The fast path of TransactionLog gives what the codec compiled from the schema gives."""

from struct import error

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.ids import TopicPartition
from kohort.records import transaction_logs, values
from kohort.records.codecs import decode_record, key_encoder, value_encoder
from kohort.records.schema import record_types
from kohort.records.transaction_logs import decode_transaction_log, encode_transaction, other_tags
from kohort.wire.primitives import INT64 as LONG
from kohort.wire.primitives import write_uvarint
from tests.records.golden import golden_records

TRANSACTION_LOG = record_types()["__transaction_state", 0]
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(max_size=150) | st.sampled_from(["x" * 126, "x" * 127, "tx-☃"])
PARTS = st.builds(
    values.TransactionLogPartitionsSchema, NAMES, st.lists(st.integers(0, 1 << 31 - 1), max_size=140).map(tuple)
)
LOGS = st.builds(
    values.TransactionLog,
    NAMES, INT64, st.integers(-1, 32767), st.integers(0, 1 << 31 - 1), st.integers(0, 7),
    st.none() | st.lists(PARTS, max_size=3).map(tuple), INT64, INT64,
    st.just(-1) | INT64, st.just(-1) | INT64, st.sampled_from([0, 1, 2]), st.just(-1) | st.just(3),
)  # fmt: skip


def encoded(record: values.TransactionLog) -> tuple[bytes, bytes]:
    """The key and the value as the codec compiled from the schema gives them."""
    return key_encoder("TransactionLog")(record), value_encoder("TransactionLog", 1)(record)


@given(
    NAMES, INT64, st.integers(-1, 32767), st.integers(0, 1 << 31 - 1), st.integers(0, 7),
    st.none() | st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 1 << 31 - 1)), max_size=6),
    INT64, INT64, st.sampled_from([0, 1, 2]), st.just(-1) | INT64, st.just(-1) | INT64,
)  # fmt: skip
def test_encodes_a_transaction_as_the_schema_does(
    name: str,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    status: int,
    partitions: frozenset[TopicPartition] | None,
    updated_ms: int,
    started_ms: int,
    version: int,
    previous_id: int,
    next_id: int,
) -> None:
    parts = None
    if partitions is not None:
        topics = sorted({each.topic for each in partitions})
        parts = tuple(
            values.TransactionLogPartitionsSchema(
                topic, tuple(sorted(each.partition for each in partitions if each.topic == topic))
            )
            for topic in topics
        )
    record = values.TransactionLog(
        name,
        producer_id,
        producer_epoch,
        timeout_ms,
        status,
        parts,
        updated_ms,
        started_ms,
        previous_id,
        next_id,
        version,
    )
    fast = encode_transaction(
        name, producer_id, producer_epoch, timeout_ms, status, partitions, updated_ms, started_ms, version,
        previous_id, next_id,
    )  # fmt: skip
    assert fast == encoded(record)


@given(LOGS)
def test_decodes_as_the_schema_does(record: values.TransactionLog) -> None:
    key, value = encoded(record)
    fast = decode_transaction_log(key, value)
    assert fast is None or fast == decode_record(TRANSACTION_LOG, key, value)
    parts = record.transaction_partitions or ()
    is_plain = record.next_producer_epoch == -1 and all(
        len(part.topic.encode()) < 127 and len(part.partition_ids) < 127 for part in parts
    )
    assert (fast is not None) is is_plain


def test_decodes_every_record_of_a_broker() -> None:
    seen = [r for r in golden_records() if r.topic == "__transaction_state" and r.value is not None]
    newest = [r for r in seen if r.value_bytes and r.value_bytes[:2] == b"\x00\x01"]
    for record in newest:
        found = decode_transaction_log(record.key_bytes, record.value_bytes or b"")
        assert found is not None
        assert found == decode_record(TRANSACTION_LOG, record.key_bytes, record.value_bytes)
    shown = [record.decoded["value"] for record in newest]
    plain = [value for value in shown if "previousProducerId" not in value]
    assert len(plain) > 50
    assert len(newest) > len(plain), "every record of 4.4.0 has a previous producer id"
    assert any("nextProducerId" in value for value in shown), "the last epoch of a producer id"


ID_TAG = bytes([0, 8]) + LONG.pack(1000)
NEXT_TAG = bytes([1, 8]) + LONG.pack(1001)
VERSION_TAG = bytes([2, 2, 0, 2])
TAGS = {
    "as Kafka 4.4.0 writes them": ([ID_TAG, NEXT_TAG, VERSION_TAG], True),
    "of a later release":         ([ID_TAG, VERSION_TAG, bytes([5, 2, 7, 7])], False),
    "in another order":           ([VERSION_TAG, ID_TAG], False),
    "twice":                      ([ID_TAG, ID_TAG], False),
    "with another size":          ([bytes([0, 4, 0, 0, 0, 9])], False),
}  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_only_tags_that_kafka_writes_are_read_fast(name: str) -> None:
    tags, is_fast = TAGS[name]
    key, value = encoded(values.TransactionLog("tx", 1000, 0, 60_000, 0, None, 5, 6))
    value = value[:-1] + bytes([len(tags)]) + b"".join(tags)
    found = decode_transaction_log(key, value)
    assert found == (decode_record(TRANSACTION_LOG, key, value) if is_fast else None)


TAG_LISTS = st.lists(
    st.tuples(st.integers(3, 300), st.binary(max_size=200)), max_size=130, unique_by=lambda tag: tag[0]
).map(sorted)


@given(LOGS, TAG_LISTS)
def test_tags_of_later_releases_are_kept(record: values.TransactionLog, others: list[tuple[int, bytes]]) -> None:
    """Kafka drops them."""
    record = msgspec.structs.replace(record, next_producer_epoch=-1)
    key, value = encoded(record)
    at = 1 + sum(
        size
        for is_there, size in (
            (record.previous_producer_id != -1, 10),
            (record.next_producer_id != -1, 10),
            (record.client_transaction_version != 0, 4),
        )
        if is_there
    )
    tags = []
    for tag, content in others:
        field = bytearray()
        write_uvarint(field, tag)
        write_uvarint(field, len(content))
        tags.append(bytes(field) + content)
    section = bytearray()
    write_uvarint(section, value[-at] + len(tags))
    front = value[:-at] + bytes(section) + value[len(value) - at + 1 :]
    assert other_tags(front + b"".join(tags)) == tuple(tags)
    parts = record.transaction_partitions
    partitions = (
        None
        if parts is None
        else frozenset(TopicPartition(part.topic, index) for part in parts for index in part.partition_ids)
    )
    again = encode_transaction(
        record.transactional_id, record.producer_id, record.producer_epoch, record.transaction_timeout_ms,
        record.transaction_status, partitions, record.transaction_last_update_timestamp_ms,
        record.transaction_start_timestamp_ms, record.client_transaction_version, record.previous_producer_id,
        record.next_producer_id, tuple(tags),
    )  # fmt: skip
    assert again[0] == key
    assert again[1].endswith(bytes(section) + value[len(value) - at + 1 :] + b"".join(tags))
    assert other_tags(again[1]) == tuple(tags)


def test_many_tags_of_later_releases_are_kept() -> None:
    """Those of the record, and not those of its partitions, which change with each record."""
    tags = tuple(bytes([tag, 1, 7]) for tag in range(3, 128)) + tuple(bytes([tag, 1, 1, 7]) for tag in range(128, 140))
    _, value = encode_transaction("tx", 1, 0, 5, 1, frozenset({TopicPartition("t", 0)}), 5, 6, 2, 1, -1, tags)
    assert other_tags(value) == tags
    with_inner = value.replace(bytes([2, ord("t"), 2, 0, 0, 0, 0, 0]), bytes([2, ord("t"), 2, 0, 0, 0, 0, 1, 9, 1, 7]))
    assert len(with_inner) == len(value) + 3
    assert other_tags(with_inner) == tags


def test_a_cut_count_of_tags_is_left_to_the_schema() -> None:
    key, value = encoded(values.TransactionLog("tx", 1000, 0, 60_000, 0, None, 5, 6))
    assert decode_transaction_log(key, value[:-1] + b"\x80") is None


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_reads_nothing_that_the_schema_refuses(key: bytes, value: bytes) -> None:
    key, value = b"\x00\x00" + key, b"\x00\x01" + value
    try:
        fast = decode_transaction_log(key, value)
    except (IndexError, error, UnicodeDecodeError):
        fast = None
    assert fast is None or fast == decode_record(TRANSACTION_LOG, key, value)


@given(LOGS, st.data())
def test_damaged_records_are_left_to_the_schema(record: values.TransactionLog, data: st.DataObject) -> None:
    key, value = encoded(record)
    at = data.draw(st.integers(2, len(value) - 1))
    value = data.draw(
        st.sampled_from([value[:at], value[:at] + bytes([value[at] ^ 0x41]) + value[at + 1 :], value + b"\0"])
    )
    try:
        fast = decode_transaction_log(key, value)
    except (IndexError, error, UnicodeDecodeError):
        return
    assert fast is None or fast == decode_record(TRANSACTION_LOG, key, value)


def test_the_caches_are_bounded() -> None:
    for name in ("_cached_key", "_cached_topic", "_only_partition"):
        assert getattr(transaction_logs, name).cache_info().maxsize <= 16_384
