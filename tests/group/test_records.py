"""The bytes of the records: as Apache Kafka 4.2.1 wrote and read them, and whatever else may stand there."""

import base64
import tracemalloc
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.records import (
    GroupMetadata,
    GroupMetadataMember,
    GroupRecord,
    GroupRecordSerde,
    GroupTombstone,
    OffsetCommit,
    OffsetTombstone,
)
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from tests.group.golden import GoldenRecord, golden_records

SERDE = GroupRecordSerde()
KNOWN = [record for record in golden_records() if record.decoded is not None]
OTHERS = [record for record in golden_records() if record.decoded is None and not record.control]


def expected(record: GoldenRecord) -> GroupRecord:
    """What Kafka read, as a record of ours."""
    decoded = record.decoded
    assert decoded is not None
    key, value = decoded["key"], decoded.get("value")
    if decoded["key_type"] == 2:
        return GroupTombstone(key["group"]) if value is None else expected_group(key["group"], value)
    if value is None:
        return OffsetTombstone(key["group"], key["topic"], key["partition"])
    topic_id = value.get("topicId")
    return OffsetCommit(
        key["group"],
        key["topic"],
        key["partition"],
        value["offset"],
        value.get("leaderEpoch", -1),
        value["metadata"],
        value["commitTimestamp"],
        value.get("expireTimestamp", -1),
        None if topic_id is None else UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")),
    )


def expected_group(group_id: str, value: dict[str, Any]) -> GroupMetadata:
    members = tuple(
        GroupMetadataMember(
            member["memberId"],
            member.get("groupInstanceId"),
            member["clientId"],
            member["clientHost"],
            member.get("rebalanceTimeout", member["sessionTimeout"]),
            member["sessionTimeout"],
            base64.b64decode(member["subscription"]),
            base64.b64decode(member["assignment"]),
        )
        for member in value["members"]
    )
    timestamp_ms = value.get("currentStateTimestamp", -1)
    return GroupMetadata(
        group_id, value["protocolType"], value["generation"], value["protocol"], value["leader"], timestamp_ms, members
    )


def test_every_version_is_in_the_logs() -> None:
    seen = {(r.decoded["key_type"], r.decoded.get("value_version")) for r in KNOWN if r.decoded}
    assert seen >= {(1, version) for version in (None, 0, 1, 2, 3, 4)}
    assert seen >= {(2, version) for version in (None, 0, 1, 2, 3, 4)}
    assert (0, 0) in seen


def test_decodes_to_what_kafka_decoded() -> None:
    for record in KNOWN:
        assert SERDE.decode(record.key_bytes, record.value_bytes) == expected(record), record


def test_encodes_to_what_kafka_wrote() -> None:
    written = 0
    for record in KNOWN:
        assert record.decoded is not None
        if (record.decoded["key_type"], record.decoded.get("value_version")) not in {
            (1, 4), (1, 1), (2, 3), (1, None), (2, None),
        }:  # fmt: skip
            continue
        decoded = SERDE.decode(record.key_bytes, record.value_bytes)
        assert SERDE.encode(decoded) == (record.key_bytes, record.value_bytes), record
        written += 1
    assert written > 200


def test_other_types_are_unknown() -> None:
    assert {record.key_type for record in OTHERS} >= {*range(3, 9), *range(10, 18), 19, 23, 99}
    for record in OTHERS:
        with pytest.raises(UnknownRecordTypeError) as caught:
            SERDE.decode(record.key_bytes, record.value_bytes)
        assert caught.value.record_type == record.key_type


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        ("0001", None),
        ("0001 ffff 0001 61 00000000", None),  # a null group
        ("0001 0001 67 0001 74 000000", None),  # a partition cut short
        ("0002 0005 67", None),
        ("0001 0001 67 0001 74 00000000", ""),
        ("0001 0001 67 0001 74 00000000", "0005"),  # a version of the future
        ("0001 0001 67 0001 74 00000000", "ffff"),
        ("0001 0001 67 0001 74 00000000", "0004 0000000000000001 00000000 00 0000000000000000 00"),  # null metadata
        ("0001 0001 67 0001 74 00000000", "0003 0000000000000001 00000000 0010 61"),
        ("0002 0001 67", "0003 0000 00000000 ffff ffff 0000000000000000 7fffffff"),  # members without end
        ("0002 0001 67", "0004 01 00000000 00 00 0000000000000000 ffffffff0f"),
        ("0002 0001 67", "0005"),
    ],
)
def test_corrupt_bytes_are_refused(key: str, value: str | None) -> None:
    with pytest.raises(CorruptError):
        SERDE.decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_rebalance_timeout_of_minus_one_is_the_session_timeout() -> None:
    member = GroupMetadataMember("m", None, "c", "h", -1, 9_000, b"", b"")
    key, value = SERDE.encode(GroupMetadata("g", "consumer", 1, "range", "m", 5, (member,)))
    decoded = SERDE.decode(key, value)
    assert isinstance(decoded, GroupMetadata)
    assert decoded.members[0].rebalance_timeout_ms == 9_000


def test_an_unknown_tagged_field_is_skipped_and_a_zero_topic_id_is_none() -> None:
    key = bytes.fromhex("0001 0001 67 0001 74 00000000")
    head = "0004 0000000000000001 ffffffff 01 0000000000000007"
    plain = SERDE.decode(key, bytes.fromhex(head + "00"))
    assert SERDE.decode(key, bytes.fromhex(head + "01 05 02 abcd")) == plain
    assert SERDE.decode(key, bytes.fromhex(head + "01 00 10" + "00" * 16)) == plain


names = st.text(max_size=20)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
commits = st.builds(
    OffsetCommit,
    names,
    names,
    int32s,
    int64s,
    st.integers(-1, 1 << 30),
    st.text(max_size=200),
    int64s,
    st.just(-1),
    st.none() | st.uuids().filter(lambda uuid: uuid.int != 0),
)
expiring = st.builds(OffsetCommit, names, names, int32s, int64s, st.just(-1), names, int64s, st.integers(0, 1 << 60))
members = st.builds(
    GroupMetadataMember,
    names, st.none() | names, names, names, st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.binary(), st.binary(),
)  # fmt: skip
groups = st.builds(
    GroupMetadata,
    names,
    names,
    int32s,
    st.none() | names,
    st.none() | names,
    int64s,
    st.lists(members, max_size=3).map(tuple),
)
tombstones = st.builds(OffsetTombstone, names, names, int32s) | st.builds(GroupTombstone, names)


@given(commits | expiring | groups | tombstones)
def test_round_trip(record: GroupRecord) -> None:
    assert SERDE.decode(*SERDE.encode(record)) == record


@given(st.binary(max_size=80), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(key: bytes, value: bytes | None) -> None:
    with suppress(CorruptError, UnknownRecordTypeError):
        SERDE.decode(key, value)


@given(st.sampled_from(KNOWN), st.data())
def test_damaged_records_are_a_record_or_refused(record: GoldenRecord, data: st.DataObject) -> None:
    value = bytearray(record.value_bytes or b"")
    for _ in range(data.draw(st.integers(1, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)))
    with suppress(CorruptError):
        SERDE.decode(record.key_bytes, bytes(value[:cut]))


def test_what_clients_call_their_groups_does_not_pile_up() -> None:
    """Keys of usual length are kept for the next commit; a group id may have 32 kB, and each partition a key."""
    tracemalloc.start()
    try:
        for partition in range(300):
            key, _ = SERDE.encode(OffsetCommit("g" * 30_000, "orders", partition, 1, -1, "", 0))
            assert len(key) > 30_000
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
