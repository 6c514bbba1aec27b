"""The records that this coordinator reads: offsets, also under the key of Kafka 0.8, and classic groups."""

import pytest

from kohort.group.classic.group import ClassicGroup
from kohort.group.records import GroupRecordSerde, utf16_length
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.records.schema import record_types
from kohort.records.values import GroupMetadata, GroupMetadataMember, OffsetCommit, OffsetCommitTombstone
from tests.records.golden import golden_records

SERDE = GroupRecordSerde()
OFFSETS = [record for record in golden_records() if record.topic == "__consumer_offsets"]


def test_an_offset_under_the_key_of_kafka_0_8_is_an_offset() -> None:
    legacy = [record for record in OFFSETS if record.decoded["key_type"] == 0]
    assert legacy
    for record in legacy:
        key, value = record.decoded["key"], record.decoded["value"]
        assert SERDE.decode(record.key_bytes, record.value_bytes) == OffsetCommit(
            key["group"],
            key["topic"],
            key["partition"],
            value["offset"],
            -1,
            value["metadata"],
            value["commitTimestamp"],
        )
        tombstone = OffsetCommitTombstone(key["group"], key["topic"], key["partition"])
        assert SERDE.decode(record.key_bytes, None) == tombstone
        with pytest.raises(CorruptError):
            SERDE.decode(record.key_bytes, bytes.fromhex("0001") + bytes(40))


def test_records_of_other_kinds_of_group_are_unknown() -> None:
    seen = set()
    for record in OFFSETS:
        key_type = record.decoded["key_type"]
        if key_type > 2:
            with pytest.raises(UnknownRecordTypeError) as caught:
                SERDE.decode(record.key_bytes, record.value_bytes)
            assert caught.value.record_type == key_type
            seen.add(key_type)
    assert seen == {key_type for topic, key_type in record_types() if topic == "__consumer_offsets"} - {0, 1, 2} | {99}


def test_without_a_rebalance_timeout_the_session_timeout_applies() -> None:
    """Value version 0 has none, and newer versions may hold -1."""
    member = GroupMetadataMember("m", None, "c", "h", -1, 9_000, b"", b"")
    record = GroupMetadata("g", "consumer", 1, "range", "m", 5, (member,))
    for version in (0, 3):
        key, value = SERDE.encode(record, version)
        decoded = SERDE.decode(key, value)
        assert isinstance(decoded, GroupMetadata)
        assert decoded.members[0].rebalance_timeout_ms == -1
        group = ClassicGroup(decoded.group_id, SnapshotRegistry())
        group.replay(decoded)
        assert group.rebalance_timeout_ms == 9_000


def test_metadata_is_counted_as_java_does() -> None:
    assert [utf16_length(text) for text in ("", "gr\u00fcn", "\U0001f40d!")] == [0, 4, 3]
