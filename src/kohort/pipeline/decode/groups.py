"""
GroupMetadata records (key type 2), one at a time: a classic group as it stood after a rebalance.

Value, after its version:

| field                                                   | versions | note                        |
|---------------------------------------------------------|----------|-----------------------------|
| protocol type, generation, protocol?, leader?           | 0+       | ? may be null               |
| current state timestamp                                 | 2+       | -1 is none                  |
| members: id, instance id?, client id, client host       | 0+       | instance id 3+              |
| ... rebalance timeout, session timeout                  | 0+       | rebalance timeout 1+        |
| ... subscription, assignment                            | 0+       | bytes of the embedded protocol |

Version 4 is flexible: compact strings, arrays and bytes, tagged fields behind the members and the whole. Kafka 4.2.1 writes 3.

Source: Apache Kafka 4.2.1, GroupMetadataKey.json, GroupMetadataValue.json; KIP-345, KIP-211.
"""

from typing import Any

from kohort.pipeline.decode.batches import Corruption
from kohort.pipeline.decode.cursor import Cursor, MalformedError
from kohort.pipeline.decode.records import Records

KEY_TYPE = 2
VERSION_MAX = 4
_FLEXIBLE = 4
_CONSUMER = "consumer"
_MEMBER_BYTES_MIN = 6

MALFORMED = "malformed GroupMetadata record"
UNKNOWN_VERSION = "GroupMetadata value of an unknown version"


def decode(records: Records) -> tuple[list[dict[str, Any]], list[Corruption]]:
    """
    GroupMetadata records as rows of the schema: their own columns, and `row`, the index into `records`.

    Args:
        records: with keys of type 2 only.
    """
    data = records.window.data
    rows: list[dict[str, Any]] = []
    damage: list[Corruption] = []
    for row in range(len(records)):
        key_at, key_bytes = int(records.key_at[row]), int(records.key_bytes[row])
        value_at, value_bytes = int(records.value_at[row]), int(records.value_bytes[row])
        key = data[key_at : key_at + key_bytes].tobytes()
        value = None if value_bytes < 0 else data[value_at : value_at + value_bytes].tobytes()
        try:
            rows.append({"row": row, **decode_record(key, value)})
        except MalformedError as exc:
            damage.append(records.damage_of(row, str(exc) or MALFORMED))
    return rows, damage


def decode_record(key: bytes, value: bytes | None) -> dict[str, Any]:
    """One record as a row of the schema."""
    group = Cursor(key[2:]).string()
    if value is None:
        return {"group": group, "tombstone": True}
    version = Cursor(value).integer(">h")
    if not 0 <= version <= VERSION_MAX:
        raise MalformedError(UNKNOWN_VERSION)
    cursor = Cursor(value[2:], flexible=version >= _FLEXIBLE)
    return {"group": group, "tombstone": False, "value_version": version, **_value(cursor, version)}


def _value(cursor: Cursor, version: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "protocol_type": cursor.string(),
        "generation": cursor.integer(">i"),
        "protocol": cursor.nullable_string(),
        "leader": cursor.nullable_string(),
        "state_timestamp_ms": cursor.integer(">q") if version >= 2 else None,
    }
    members = cursor.length(">i")
    # The claimed count is checked before anything is made of it.
    if not 0 <= members * _MEMBER_BYTES_MIN <= cursor.left_bytes:
        raise MalformedError
    row["members"] = [_member(cursor, version, row["protocol_type"]) for _ in range(members)]
    cursor.tags()
    return row


def _member(cursor: Cursor, version: int, protocol_type: str) -> dict[str, Any]:
    member: dict[str, Any] = {
        "member_id": cursor.string(),
        "instance_id": cursor.nullable_string() if version >= 3 else None,
        "client_id": cursor.string(),
        "client_host": cursor.string(),
        "rebalance_timeout_ms": cursor.integer(">i") if version >= 1 else None,
        "session_timeout_ms": cursor.integer(">i"),
        "subscription": cursor.binary(),
        "assignment": cursor.binary(),
    }
    cursor.tags()
    member["assigned"] = assigned(member["assignment"]) if protocol_type == _CONSUMER else None
    return member


def assigned(assignment: bytes) -> list[dict[str, Any]] | None:
    """
    The partitions in an assignment of the consumer protocol; None where it does not parse. Nothing at all is no partition.

    Source: ConsumerProtocolAssignment.json (all versions begin alike).
    """
    if not assignment:
        return []
    cursor = Cursor(assignment)
    found: list[dict[str, Any]] = []
    try:
        cursor.integer(">h")
        for _ in range(cursor.integer(">i")):
            topic = cursor.string()
            found += [{"topic": topic, "partition": cursor.integer(">i")} for _ in range(cursor.integer(">i"))]
    except MalformedError:
        return None
    return found
