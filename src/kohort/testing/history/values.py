"""
Keys and values of coordinators' records as bytes, each with the facts it was made of.

Records of the newer kinds follow the table of their fields that the decoder reads by; that table is proved by recorded
logs.

Source: Apache Kafka 4.2.1, OffsetCommitKey/Value, GroupMetadataKey/Value, and the definitions named in that table.
"""

import base64
import json
from functools import cache
from importlib.resources import files
from struct import pack
from typing import Any

from kohort.testing.history.logs import Record
from kohort.wire.primitives import write_compact_string, write_string, write_uvarint

_TABLE = files("kohort.pipeline.decode") / "coordinator_records.json"
_INTEGERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}


def offset_commit(
    group: str,
    topic: str,
    partition: int,
    offset: int | None,
    *,
    at_ms: int,
    metadata: str = "",
    topic_id: str | None = None,
) -> Record:
    """An OffsetCommit of value version 4; version 3 where the topic's id is not told; without an offset a tombstone."""
    key = bytearray(b"\x00\x01")
    write_string(key, group)
    write_string(key, topic)
    key += pack(">i", partition)
    says = {"group": group, "topic": topic, "partition": partition, "tombstone": offset is None, "offset": offset}
    if offset is None:
        return Record(bytes(key), None, says | dict.fromkeys(("leader_epoch", "metadata", "commit_timestamp_ms")))
    version = 3 if topic_id is None else 4
    value = bytearray(pack(">hqi", version, offset, 0))
    (write_string if topic_id is None else write_compact_string)(value, metadata)
    value += pack(">q", at_ms)
    if topic_id is not None:
        value += b"\x01\x00\x10" + _uuid(topic_id)
    told = {"leader_epoch": 0, "metadata": metadata, "commit_timestamp_ms": at_ms}
    return Record(bytes(key), bytes(value), says | told)


def group_metadata(
    group: str, generation: int, members: list[dict[str, Any]], *, leader: str | None, state_ms: int
) -> Record:
    """A GroupMetadata of value version 3; members: `names`, `topics`, `owned` (topic and partition pairs)."""
    value = bytearray(b"\x00\x03")
    write_string(value, "consumer")
    value += pack(">i", generation)
    write_string(value, "range" if members else None)
    write_string(value, leader)
    value += pack(">qi", state_ms, len(members))
    for member in members:
        for name in ("member_id", "instance_id", "client_id", "client_host"):
            write_string(value, member["names"][name])
        value += pack(">ii", 300_000, 45_000)
        for part in (_subscription(member["topics"]), _assignment(member["owned"])):
            value += pack(">i", len(part)) + part
    return Record(_group_key(2, group), bytes(value))


def group_tombstone(group: str) -> Record:
    return Record(_group_key(2, group), None)


def _group_key(key_type: int, group: str) -> bytes:
    key = bytearray(pack(">h", key_type))
    write_string(key, group)
    return bytes(key)


def _subscription(topics: list[str]) -> bytes:
    out = bytearray(pack(">hi", 1, len(topics)))
    for topic in topics:
        write_string(out, topic)
    return bytes(out + pack(">ii", -1, 0))


def _assignment(owned: list[tuple[str, int]]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(pack(">hi", 1, len(by_topic)))
    for topic, partitions in by_topic.items():
        write_string(out, topic)
        out += pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return bytes(out + pack(">i", -1))


def record(name: str, key: dict[str, Any], value: dict[str, Any] | None, *, version: int | None = None) -> Record:
    """A record of any type in the table, in the newest version; tagged fields where `value` names them."""
    row = _types()[name]
    key_bytes = pack(">h", row["key_type"]) + _struct(row["key"], key, flexible=False)
    if value is None:
        return Record(key_bytes, None)
    chosen = str(max(map(int, row["values"])) if version is None else version)
    shape = row["values"][chosen]
    return Record(key_bytes, pack(">h", int(chosen)) + _struct(shape, value, flexible="tagged" in shape))


@cache
def _types() -> dict[str, Any]:
    return {row["name"]: row for row in json.loads(_TABLE.read_text(encoding="utf-8"))}


def _struct(shape: dict[str, Any], value: dict[str, Any], *, flexible: bool) -> bytes:
    out = bytearray()
    for name, kind in shape["fields"]:
        out += _value(kind, value[name], flexible=flexible)
    if flexible:
        tagged = [
            (int(tag), _tagged(kind, value[name])) for tag, (name, kind) in shape["tagged"].items() if name in value
        ]
        write_uvarint(out, len(tagged))
        for tag, body in sorted(tagged):
            write_uvarint(out, tag)
            write_uvarint(out, len(body))
            out += body
    return bytes(out)


def _tagged(kind: Any, value: Any) -> bytes:
    if isinstance(kind, str) or "array" in kind:
        return _value(kind, value, flexible=True)
    return b"\x00" if value is None else b"\x01" + _struct(kind, value, flexible=True)


def _value(kind: Any, value: Any, *, flexible: bool) -> bytes:
    out = bytearray()
    if isinstance(kind, str):
        if kind in _INTEGERS:
            return pack(_INTEGERS[kind], value)
        if kind == "uuid":
            return _uuid(value)
        (write_compact_string if flexible else write_string)(out, value)
        return bytes(out)
    if "array" not in kind:
        return b"\xff" if value is None else b"\x01" + _struct(kind, value, flexible=flexible)
    if flexible:
        write_uvarint(out, len(value) + 1)
    else:
        out += pack(">i", len(value))
    for one in value:
        if isinstance(kind["array"], str):
            out += _value(kind["array"], one, flexible=flexible)
        else:
            out += _struct(kind["array"], one, flexible=flexible)
    return bytes(out)


def _uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")
