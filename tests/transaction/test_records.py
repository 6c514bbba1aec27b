"""The records of `__transaction_state`: golden bytes, damage, and what a rotation adds."""

from collections import Counter

import pytest

from kohort.model.errors import CoordinatorError, CorruptError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.records.values import TransactionLogTombstone
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from kohort.transaction.transaction import Transaction
from tests.records.golden import golden_records, records_of_4_4
from tests.transaction.bench import transaction

KEY = bytes.fromhex("0000 0004 74782d31")
NOW_MS, BEGUN_MS = 1_700_000_000_000, 1_699_999_999_000
FOO = frozenset({TopicPartition("foo", 2), TopicPartition("foo", 0)})

# The values that Apache Kafka writes, 4.2.1 unless the name says otherwise:
# value, version (the finalised level that writes it), transactional id.
GOLDEN = {
    "empty, version 0": (
        "0000 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff",
        0,
        transaction(transactional_id="tx-1", state=EMPTY, update_timestamp_ms=NOW_MS),
    ),
    "ongoing, version 0": (
        "0000 00000000000003e8 0000 0000ea60 01 00000001 0003666f6f 000000020000000000000002 0000018bcfe568000000018bcfe56418",
        0,
        transaction(
            transactional_id="tx-1",
            state=ONGOING,
            partitions=FOO,
            start_timestamp_ms=BEGUN_MS,
            update_timestamp_ms=NOW_MS,
        ),
    ),
    "prepared by a client of version 2, version 1": (
        "0001 00000000000003e8 0001 0000ea60 02 02 04666f6f 03 0000000000000002 00 0000018bcfe568000000018bcfe56418 0102020002",
        2,
        transaction(
            transactional_id="tx-1",
            producer_epoch=1,
            state=PREPARE_COMMIT,
            partitions=FOO,
            start_timestamp_ms=BEGUN_MS,
            update_timestamp_ms=NOW_MS,
            client_version=2,
        ),
    ),
    "prepared at the last epoch, 4.4.0": (
        (
            "0001 00000000000003e8 7fff 0000ea60 03 02 04666f6f 03 0000000000000002 00 0000018bcfe568000000018bcfe56418"
            "03 0008 00000000000003e8 0108 00000000000003e9 02020002"
        ),
        2,
        transaction(
            transactional_id="tx-1",
            producer_epoch=32767,
            state=PREPARE_ABORT,
            partitions=FOO,
            start_timestamp_ms=BEGUN_MS,
            update_timestamp_ms=NOW_MS,
            client_version=2,
            previous_producer_id=1000,
            next_producer_id=1001,
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name: str) -> None:
    value, level, expected = GOLDEN[name]
    serde = TransactionRecordSerde(lambda: level)
    assert serde.encode(expected) == (KEY, bytes.fromhex(value))
    assert serde.decode(KEY, bytes.fromhex(value)) == expected


def test_level_1_writes_version_1() -> None:
    _, value = TransactionRecordSerde(lambda: 1).encode(transaction())
    assert value is not None
    assert value[:2] == b"\x00\x01"


def test_an_expired_id_is_a_tombstone() -> None:
    serde = TransactionRecordSerde()
    tombstone = TransactionLogTombstone("tx-1")
    assert serde.encode(tombstone) == (KEY, None)
    assert serde.decode(KEY, None) == tombstone


def test_version_0_has_no_place_for_a_client_of_version_2() -> None:
    with pytest.raises(CoordinatorError) as raised:
        TransactionRecordSerde(lambda: 0).encode(transaction(client_version=2))
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0000 00000000000003e8 0000 0000ea60 08 00000000 0000018bcfe56800 0000018bcfe56418", "status 8"),
        ("0000 00000000000003e8 0000 0000ea60 01 ffffffff 0000018bcfe56800 0000018bcfe56418", "null"),
        ("0002 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff", "version"),
        ("0000 00000000000003e8 0000", "TransactionLog"),
    ],
)
def test_damaged_values(value: str, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason):
        TransactionRecordSerde().decode(KEY, bytes.fromhex(value))


def test_partitions_of_an_empty_id_are_ignored() -> None:
    value = "0000 00000000000003e8 0000 0000ea60 00 00000000 0000018bcfe56800 ffffffffffffffff"
    decoded = TransactionRecordSerde().decode(KEY, bytes.fromhex(value))
    assert isinstance(decoded, Transaction)
    assert (decoded.state, decoded.partitions) == (EMPTY, frozenset())


def test_the_producer_ids_of_a_rotation_are_kept() -> None:
    """Kafka 4.2.1 reads both tagged fields and never writes them."""
    serde = TransactionRecordSerde()
    prepared = transaction(state=PREPARE_COMMIT, producer_epoch=32767, next_producer_id=1001, previous_producer_id=1000)
    completed = transaction(state=COMPLETE_COMMIT, producer_id=1001, previous_producer_id=1000)
    for each in (prepared, completed):
        decoded = serde.decode(*serde.encode(each))
        assert isinstance(decoded, Transaction)
        assert (decoded.next_producer_id, decoded.previous_producer_id) == (
            each.next_producer_id,
            each.previous_producer_id,
        )
    usual = transaction(previous_producer_id=1000, last_producer_epoch=3)
    decoded = serde.decode(*serde.encode(usual))
    assert isinstance(decoded, Transaction)
    assert (decoded.previous_producer_id, decoded.last_producer_epoch) == (1000, -1), "the last epoch is not written"


def test_tags_of_a_later_release_are_written_again() -> None:
    """Kafka drops them with the next record of the transactional id."""
    later = bytes.fromhex("07 03 616263")
    value = bytes.fromhex(
        "0001 00000000000003e8 0001 0000ea60 01 02 04666f6f 02 00000002 00 0000018bcfe56800 0000018bcfe56418 02 02020002"
    )
    serde = TransactionRecordSerde()
    ongoing = serde.decode(KEY, value + later)
    assert isinstance(ongoing, Transaction)
    assert serde.encode(ongoing) == (KEY, value + later)
    prepared = ongoing.prepared(committed=True, client_version=2, now_ms=NOW_MS)
    completed = prepared.completed(NOW_MS)
    begun = completed.with_partitions(FOO, 2, NOW_MS)
    for each in (prepared, completed, begun, completed.bumped(-1, 5, NOW_MS), completed.rotated(5, -1, 5, NOW_MS)):
        encoded = serde.encode(each)[1]
        assert encoded is not None
        assert encoded.endswith(later)
        assert serde.decode(KEY, encoded).other_tags == (later,)  # type: ignore[union-attr]


def test_the_producer_ids_are_those_that_kafka_4_4_wrote() -> None:
    serde, rotations = TransactionRecordSerde(), Counter[str]()
    for record in records_of_4_4():
        if record.topic != "__transaction_state" or record.value is None:
            continue
        decoded, told = serde.decode(record.key_bytes, record.value_bytes), record.decoded["value"]
        assert isinstance(decoded, Transaction)
        found = (decoded.producer_id, decoded.previous_producer_id, decoded.next_producer_id)
        assert found == (told["producerId"], told["previousProducerId"], told.get("nextProducerId", -1))
        rotations["begun"] += decoded.next_producer_id != -1
        rotations["ended"] += decoded.previous_producer_id != decoded.producer_id
    assert rotations == {"begun": 5, "ended": 6}, "one of a producer id whose epochs InitProducerId had used up"


def test_records_of_a_broker_are_written_as_they_were() -> None:
    """Those of 4.4.0, at the last epoch too. Kafka orders partitions by hash, so a record of several may differ in order."""
    serde = TransactionRecordSerde()
    seen = [
        record
        for record in golden_records()
        if record.topic == "__transaction_state" and record.value and "previousProducerId" in record.decoded["value"]
    ]
    equal = 0
    for record in seen:
        found = serde.decode(record.key_bytes, record.value_bytes)
        again = serde.encode(found)
        assert serde.decode(*again) == found
        assert again[1] is not None
        assert len(again[1]) == len(record.value_bytes or b"")
        equal += again == (record.key_bytes, record.value_bytes)
    assert equal > len(seen) // 2 > 0
    assert any("nextProducerId" in record.decoded["value"] for record in seen)
