"""Rows of coordinator records that the recorded logs do not have, and of any bytes."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.records.json_form import json_record
from kohort.records.schema import RecordType, record_types
from tests.pipeline.logbytes import batch, segment, string

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUP_KEY = struct.pack(">h", 3) + string("g")
MEMBER_KEY = struct.pack(">h", 5) + string("g") + string("m")
TX_KEY = struct.pack(">h", 0) + string("tx-1")


def type_of(topic: str, key_type: int) -> RecordType:
    return record_types()[topic, key_type]


def rows_of(raw: bytes, topic: str = OFFSETS) -> list[dict[str, Any]]:
    return [row for one in Decoder().decode(raw, segment(topic=topic)) for row in one.to_pylist()]


# fmt: off
EPOCHS = [
    # Version 0, epoch 7, then tagged fields.
    ("0000 00000007 00",                          {"epoch": 7}),
    ("0000 00000007 01 00 08 0000000000000102",   {"epoch": 7, "metadataHash": 258}),
    # Field 1 comes with a later release.
    ("0000 00000007 01 01 08 0000000000000001",   {"epoch": 7}),
]
# fmt: on


@pytest.mark.parametrize(("value", "expected"), EPOCHS)
def test_tagged_fields_are_there_when_written(value: str, expected: dict[str, int]) -> None:
    decoded = json_record(type_of(OFFSETS, 3), GROUP_KEY, bytes.fromhex(value))
    assert decoded == {"key": {"groupId": "g"}, "value": expected, "value_version": 0, "tombstone": False}


def test_a_classic_member_of_a_consumer_group() -> None:
    """The classic member metadata is a nullable struct in a tagged field; one byte states that it is not null."""
    tag = "01 00001770 02 06 72616e6765 03 0102 00 00"
    value = bytes.fromhex("0000 00 00 01 01 01 01 ffffffff 00 01 00 11" + tag)
    decoded = json_record(type_of(OFFSETS, 5), MEMBER_KEY, value)
    assert decoded["value"]["classicMemberMetadata"] == {
        "sessionTimeoutMs": 6000,
        "supportedProtocols": [{"name": "range", "metadata": "AQI="}],
    }


# fmt: off
TRANSACTION_VALUES = [
    ("0000 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff",
     ("Empty", [], -1, 0)),
    (("0000 00000000000003e8 0000 0000ea60 01 00000001 0003666f6f 00000002 00000000 00000002 0000018bcfe56800"
     "0000018bcfe56418"),
     ("Ongoing", [("foo", 0), ("foo", 2)], 1_699_999_999_000, 0)),
    (("0001 00000000000003e8 0001 0000ea60 02 02 04666f6f 03 00000000 00000002 00 0000018bcfe56800 0000018bcfe56418"
     "01 02 02 0002"),
     ("PrepareCommit", [("foo", 0), ("foo", 2)], 1_699_999_999_000, 2)),
]
# fmt: on


@pytest.mark.parametrize(("value", "expected"), TRANSACTION_VALUES)
def test_transactions_in_columns(value: str, expected: tuple[Any, ...]) -> None:
    (row,) = rows_of(batch(0, [(TX_KEY, bytes.fromhex(value))]), TRANSACTIONS)
    transaction = row["transaction"]
    places = [(one["topic"], one["partition"]) for one in transaction["partitions"]]
    got = (transaction["state"], places, transaction["start_ms"], transaction["client_transaction_version"])
    assert (row["kind"], row["transactional_id"], got) == ("transaction", "tx-1", expected)


# fmt: off
PROBLEMS = {
    "":                                 "malformed ConsumerGroupMetadata record",
    "0001 00000007 00":                 "ConsumerGroupMetadata value of an unknown version",
    "0000 0000":                        "malformed ConsumerGroupMetadata record",
    "0000 00000007 01 00 08 00":        "malformed ConsumerGroupMetadata record",
}
# fmt: on


@pytest.mark.parametrize("value", PROBLEMS)
def test_what_cannot_be_read_is_reported(value: str) -> None:
    (row,) = rows_of(batch(4, [(GROUP_KEY, bytes.fromhex(value))]))
    assert (row["kind"], row["log_offset"], row["problem"]) == ("damage", 4, PROBLEMS[value])


@settings(deadline=None)
@given(st.sampled_from(sorted(record_types())), st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_no_record_is_lost(place: tuple[str, int], values: list[bytes]) -> None:
    key = struct.pack(">h", place[1]) + string("g") + string("m")
    rows = rows_of(batch(0, [(key, value) for value in values]), place[0])
    assert sorted(row["log_offset"] for row in rows) == list(range(len(values)))
    assert {row["kind"] for row in rows} <= {schemas.COORDINATOR, schemas.TRANSACTION, schemas.DAMAGE}
