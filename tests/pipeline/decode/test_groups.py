"""GroupMetadata records that the recorded logs do not have; those of every version are in `test_recorded_logs`."""

import struct
from typing import Any

import pytest

from kohort.pipeline.decode.coordinator_records import group_columns
from kohort.pipeline.decode.log import Decoder
from tests.pipeline.logbytes import batch, segment, string

MALFORMED = "malformed GroupMetadata record"
UNKNOWN_VERSION = "GroupMetadata value of an unknown version"
KEY = struct.pack(">h", 2) + string("group")


def value(*, members: int = 0, body: bytes = b"", version: int = 3) -> bytes:
    head = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 5) + string("range") + string("leader")
    return head + struct.pack(">qi", 1234, members) + body


def problem(raw: bytes | None, key: bytes = KEY) -> Any:
    rows = [row for one in Decoder().decode(batch(0, [(key, raw)]), segment()) for row in one.to_pylist()]
    (row,) = rows
    return row["problem"]


# fmt: off
MALFORMED_VALUES = {
    "an empty value":            (b"",                                      MALFORMED),
    "a version to come":         (struct.pack(">h", 5) + bytes(40),         UNKNOWN_VERSION),
    "a negative version":        (struct.pack(">h", -1),                    UNKNOWN_VERSION),
    "a null protocol type":      (struct.pack(">hh", 3, -1) + bytes(40),    MALFORMED),
    "members that are not there": (value(members=1),                        MALFORMED),
    "more members than bytes":   (value(members=2**31 - 1, body=bytes(60)), MALFORMED),
    "a negative member count":   (value(members=-1),                        MALFORMED),
    "a string too long":         (struct.pack(">hh", 3, 999) + b"x",        MALFORMED),
}
# fmt: on


@pytest.mark.parametrize("name", MALFORMED_VALUES)
def test_malformed_values_are_reported(name: str) -> None:
    raw, expected = MALFORMED_VALUES[name]
    assert problem(raw) == expected


def test_a_key_without_a_group_is_reported() -> None:
    assert problem(value(), key=struct.pack(">h", 2)) == MALFORMED


def test_tagged_fields_of_the_flexible_version_are_skipped() -> None:
    member = b"\x02m" + b"\x00" + b"\x02c" + b"\x02h" + struct.pack(">ii", 1, 2) + b"\x01\x01" + b"\x01\x07\x01x"
    raw = struct.pack(">h", 4) + b"\x01" + struct.pack(">i", 1) + b"\x00\x00" + struct.pack(">q", -1)
    row = group_columns(KEY, raw + b"\x02" + member + b"\x01\x09\x02ab")
    assert row["members"][0]["member_id"] == "m"
    assert (row["protocol_type"], row["protocol"], row["state_timestamp_ms"]) == ("", None, -1)
