"""Keys and values of coordinator records: as Apache Kafka 4.2.1 wrote and read them, generated ones, and damaged bytes."""

import random
import struct
import tracemalloc
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.records import values
from kohort.records.codecs import UnknownVersionError
from kohort.records.json_form import json_key, json_value
from kohort.records.schema import RecordType, record_types
from kohort.records.serde import CoordinatorRecordSerde
from kohort.wire.primitives import write_uvarint
from kohort_lab.history.values import record_from_json
from tests.records.golden import GoldenRecord, golden_records
from tests.records.strategies import records_of, tombstones_of

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
SERDES = {topic: CoordinatorRecordSerde(topic) for topic in (OFFSETS, TRANSACTIONS, SHARES)}
KNOWN = [record for record in golden_records() if record.is_known]
TYPES = sorted(record_types())


def test_the_recording_has_every_type_and_version_that_kafka_reads() -> None:
    seen = {(r.topic, r.decoded["key_type"], r.decoded.get("value_version")) for r in KNOWN if r.value is not None}
    every = {
        (topic, key_type, version)
        for (topic, key_type), found in record_types().items()
        for version in range(found.versions[0], found.versions[1] + 1)
    }
    assert seen == every
    assert len(KNOWN) > 1300


def test_decodes_to_what_kafka_decoded() -> None:
    for record in KNOWN:
        serde = SERDES[record.topic]
        found = serde.decode(record.key_bytes, record.value_bytes)
        record_type = serde.type_of(record.key_bytes)
        assert json_key(record_type, found) == record.decoded["key"], record
        if record.value is None:
            assert type(found).__name__ == record_type.tombstone_name
        else:
            assert json_value(record_type, found, record.decoded["value_version"]) == record.decoded["value"], record


def test_the_json_form_is_read_again() -> None:
    for record in KNOWN:
        serde = SERDES[record.topic]
        found = record_from_json(serde.type_of(record.key_bytes), record.decoded["key"], record.decoded["value"])
        assert found == serde.decode(record.key_bytes, record.value_bytes), record


def test_encodes_to_what_kafka_wrote() -> None:
    for record in KNOWN:
        serde = SERDES[record.topic]
        found = serde.decode(record.key_bytes, record.value_bytes)
        version = record.decoded.get("value_version")
        assert serde.encode(found, version) == (record.key_bytes, record.value_bytes), record


def test_values_are_written_in_the_version_that_kafka_writes() -> None:
    """The others are of older releases; they were put into a log by hand."""
    other: Counter[tuple[int, int]] = Counter()
    for record in KNOWN:
        if record.value is None:
            continue
        serde, version = SERDES[record.topic], record.decoded["value_version"]
        _, written = serde.encode(serde.decode(record.key_bytes, record.value_bytes))
        assert written is not None
        if int.from_bytes(written[:2]) != version:
            other[record.decoded["key_type"], version] += 1
    assert set(other) == {(1, 0), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 4), (0, 0)}
    assert other.total() < 30


def test_unknown_types_are_named() -> None:
    unknown = [record for record in golden_records() if not record.is_known]
    assert unknown
    for record in unknown:
        with pytest.raises(UnknownRecordTypeError) as caught:
            SERDES[record.topic].decode(record.key_bytes, record.value_bytes)
        assert caught.value.record_type == record.decoded["key_type"] == 99


def test_a_serde_of_some_types_does_not_know_the_others() -> None:
    serde = CoordinatorRecordSerde(OFFSETS, (1, 2))
    key, value = SERDES[OFFSETS].encode(values.ConsumerGroupMetadata("group", 3))
    with pytest.raises(UnknownRecordTypeError):
        serde.decode(key, value)
    assert serde.decode(*serde.encode(values.GroupMetadataTombstone("group"))) == values.GroupMetadataTombstone("group")


@given(st.data())
def test_round_trip_of_any_record(data: st.DataObject) -> None:
    topic, key_type = data.draw(st.sampled_from(TYPES))
    found = record_types()[topic, key_type]
    version = data.draw(st.integers(*found.versions))
    record = data.draw(records_of(found, version) | tombstones_of(found))
    key, value = SERDES[topic].encode(record, version)
    assert SERDES[topic].decode(key, value) == record
    # Bytes of a later release behind the last field are ignored.
    assert SERDES[topic].decode(key + b"more", value and value + b"more") == record


@pytest.mark.parametrize("found", record_types().values(), ids=lambda found: found.name)
def test_versions_above_the_known_ones_are_refused(found: RecordType) -> None:
    key = next(r.key_bytes for r in KNOWN if (r.topic, r.decoded["key_type"]) == (found.topic, found.key_type))
    for version in (found.versions[1] + 1, -1, 0x7FFF):
        with pytest.raises(UnknownVersionError) as caught:
            SERDES[found.topic].decode(key, struct.pack(">h", version) + bytes(64))
        assert caught.value.version == version


def test_an_unknown_tagged_field_is_skipped() -> None:
    key, value = SERDES[OFFSETS].encode(values.ConsumerGroupMetadata("group", 7))
    assert value is not None
    later = value[:-1] + bytes.fromhex("02 00 08 0000000000000102 09 03 010203")
    assert SERDES[OFFSETS].decode(key, later) == values.ConsumerGroupMetadata("group", 7, metadata_hash=258)


def test_a_section_has_as_many_tagged_fields_as_in_kafka() -> None:
    key, value = SERDES[OFFSETS].encode(values.ConsumerGroupMetadata("group", 7))
    assert value is not None
    for count in (10_000, 10_001):
        tags = bytearray()
        write_uvarint(tags, count)
        later = value[:-1] + tags + b"\x09\x00" * count
        if count == 10_000:
            assert SERDES[OFFSETS].decode(key, later) == values.ConsumerGroupMetadata("group", 7)
        else:
            with pytest.raises(CorruptError, match="10001 tagged fields"):
                SERDES[OFFSETS].decode(key, later)


def test_an_array_has_as_many_elements_as_in_kafka() -> None:
    partitions = values.ConsumerGroupTargetAssignmentMemberTopicPartition(UUID(int=1), tuple(range(1_000_000)))
    record = values.ConsumerGroupTargetAssignmentMember("group", "member", (partitions,))
    key, value = SERDES[OFFSETS].encode(record)
    assert value is not None
    decoded = SERDES[OFFSETS].decode(key, value)
    assert isinstance(decoded, values.ConsumerGroupTargetAssignmentMember)
    assert len(decoded.topic_partitions[0].partitions) == 1_000_000
    more = values.ConsumerGroupTargetAssignmentMemberTopicPartition(UUID(int=1), (0,) * 1_000_001)
    key, value = SERDES[OFFSETS].encode(values.ConsumerGroupTargetAssignmentMember("group", "member", (more,)))
    with pytest.raises(CorruptError, match="partitions has 1000001 elements"):
        SERDES[OFFSETS].decode(key, value)


def test_invalid_utf8_is_replaced_as_kafka_does() -> None:
    key = bytes.fromhex("0003 0003 67 ff 68")
    assert SERDES[OFFSETS].decode(key, None) == values.ConsumerGroupMetadataTombstone("g\ufffdh")


# fmt: off
DAMAGED = [
    (OFFSETS, "", None),
    (OFFSETS, "00", None),
    (OFFSETS, "0001 ffff 0001 61 00000000", None),                    # a null group
    (OFFSETS, "0001 0001 67 0001 74 000000", None),                   # a partition cut short
    (OFFSETS, "0002 0005 67", None),
    (OFFSETS, "0001 0001 67 0001 74 00000000", ""),
    (OFFSETS, "0001 0001 67 0001 74 00000000", "0004 0000000000000001 00000000 00 0000000000000000 00"),  # null metadata
    (OFFSETS, "0001 0001 67 0001 74 00000000", "0003 0000000000000001 00000000 0010 61"),
    (OFFSETS, "0002 0001 67", "0003 0000 00000000 ffff ffff 0000000000000000 7fffffff"),                  # 2^31 - 1 members
    (OFFSETS, "0002 0001 67", "0004 01 00000000 00 00 0000000000000000 ffffffff0f"),
    (OFFSETS, "0003 0001 67", "0000 00000007 01 00 08 00"),           # a tagged field cut short
    (OFFSETS, "0003 0001 67", "0000 00000007 01 00 09 000000000000000000"),   # a tagged field of the wrong size
    (OFFSETS, "0003 0001 67", "0000 00000007 01 05 ff0f"),
    (TRANSACTIONS, "0000 0001 74", "0001 0000000000000001 0000 00000001 01 ffffffff0f"),
    (SHARES, "0000 0001 67" + "00" * 20, "0000" + "00" * 36 + "ffffffff0f"),
]
# fmt: on


@pytest.mark.parametrize(("topic", "key", "value"), DAMAGED)
def test_damaged_bytes_are_refused(topic: str, key: str, value: str | None) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            SERDES[topic].decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_record_that_ends_early_is_refused() -> None:
    """At every byte; a cut after the last field that a version needs cannot be, since flexible ones end in a count."""
    chosen: dict[tuple[str, str, str], GoldenRecord] = {
        (record.topic, record.key[:4], record.value[:4]): record for record in KNOWN if record.value is not None
    }
    for record in chosen.values():
        value = record.value_bytes
        assert value is not None
        for size in range(len(value)):
            with pytest.raises(CorruptError):
                SERDES[record.topic].decode(record.key_bytes, value[:size])


@given(st.sampled_from(TYPES), st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_any_bytes_are_a_record_or_refused(place: tuple[str, int], key: bytes, value: bytes | None) -> None:
    topic, key_type = place
    versioned = None if value is None else b"\x00\x00" + value
    with suppress(CorruptError):
        SERDES[topic].decode(struct.pack(">h", key_type) + key, versioned)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_are_refused_or_are_records_that_can_be_written(seed: int) -> None:
    """Half of the damage is in numbers and text, which nobody can see; a record that is read can be written and read again."""
    rng = random.Random(seed)
    read = 0
    for record in rng.sample(KNOWN, 100):
        value = bytearray(record.value_bytes or b"\x00\x00")
        for _ in range(rng.randint(1, 3)):
            value[rng.randrange(len(value))] = rng.randrange(256)
        serde = SERDES[record.topic]
        try:
            found: Any = serde.decode(record.key_bytes, bytes(value))
        except CorruptError:
            continue
        read += 1
        version = int.from_bytes(value[:2])
        assert serde.decode(*serde.encode(found, version)) == found
    assert read >= 25
