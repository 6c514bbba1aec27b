"""What recorded stories of share groups show of requests and answers: batches as lists of records, and what is left out."""

from __future__ import annotations

import re
from typing import Any

from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records

PRODUCER = re.compile(r"\$pid:([a-zA-Z0-9._-]+)")
"""The id of a producer that an answer gave out."""


def batch(fields: dict[str, Any]) -> bytes:
    values = fields["values"]
    keys = fields.get("keys") or [None] * len(values)
    headers = fields.get("headers") or [None] * len(values)
    records = [
        BatchRecord(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            [(name, None if one is None else one.encode()) for name, one in headers[number] or ()],
            fields.get("timestamp", 1_700_000_000_000 + number),
        )
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return build_batch(
        records,
        timestamp_ms=fields.get("timestamp", 1_700_000_000_000),
        producer_id=fields.get("producerId", -1),
        producer_epoch=fields.get("producerEpoch", -1),
        base_sequence=fields.get("baseSequence", -1),
        transactional=fields.get("transactional", False),
    )


def decoded(value: Any) -> Any:
    """Records of a ShareFetch in the form of the recordings."""
    if isinstance(value, dict):
        return {
            name: _records(bytes.fromhex(one)) if name == "records" and isinstance(one, str) else decoded(one)
            for name, one in value.items()
        }
    return [decoded(one) for one in value] if isinstance(value, list) else value


def _records(data: bytes) -> list[Any]:
    found = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        is_control = bool(header.attributes & 0x20)
        records = [
            {"offset": each.offset}
            | (
                {}
                if is_control
                else {
                    "key": each.key and each.key.decode(),
                    "value": None if each.value is None else each.value.decode(),
                    "headers": [[name, None if value is None else value.decode()] for name, value in each.headers],
                }
            )
            for each in read_records(batch)
        ]
        found.append({"baseOffset": header.base_offset, "lastOffset": header.next_offset - 1, "records": records})
    return found


_TAGGED_DEFAULTS = {
    "nodeEndpoints": [],
    "currentLeader": {"leaderId": -1, "leaderEpoch": -1},
    "divergingEpoch": {"epoch": -1, "endOffset": -1},
    "snapshotId": {"endOffset": -1, "epoch": -1},
}
"""Tagged fields that the recordings show with their defaults, too."""

_KEPT = {"baseOffset", "lastOffset", "records"}


def by_index(value: Any) -> Any:
    """Batches without what is not compared, partitions by index, topics by id."""
    if isinstance(value, dict):
        if value.keys() >= _KEPT:
            records = [
                {name: one[name] for name in ("offset", "key", "value", "headers") if one.get(name, ()) not in ((), [])}
                for one in value["records"]
            ]
            is_control = value.get("attributes", 0) & 0x20 or any("key" not in one for one in records)
            records = [{"offset": one["offset"]} for one in records] if is_control else records
            return {"baseOffset": value["baseOffset"], "lastOffset": value["lastOffset"], "records": records}
        return {name: by_index(one) for name, one in value.items() if one != _TAGGED_DEFAULTS.get(name, by_index)}
    if not isinstance(value, list):
        return value
    found = [by_index(one) for one in value]
    for name in ("partitionIndex", "partition", "topicId", "topicName"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: one[name])
            break
    return found


def flat(value: Any) -> Any:
    """Records without their batches."""
    if isinstance(value, dict):
        return {
            name: [each for batch in one for each in batch["records"]] if name == "records" and one else flat(one)
            for name, one in by_index(value).items()
        }
    return [flat(one) for one in value] if isinstance(value, list) else value


def producers_of(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], str]]:
    """The places of producer ids that an answer gives out."""
    if isinstance(value, dict):
        return [each for name, one in value.items() if name != "records" for each in producers_of(one, (*place, name))]
    if isinstance(value, list):
        return [each for number, one in enumerate(value) for each in producers_of(one, (*place, number))]
    found = PRODUCER.fullmatch(value) if isinstance(value, str) else None
    return [] if found is None else [(place, found[1])]


def at(value: Any, place: tuple[Any, ...]) -> Any:
    for one in place:
        value = value[one]
    return value


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    at(value, place[:-1])[place[-1]] = new


def with_counts(value: Any) -> Any:
    """Lists of partitions as their lengths."""
    if isinstance(value, dict):
        return {name: len(one) if name == "partitions" else with_counts(one) for name, one in value.items()}
    return [with_counts(one) for one in value] if isinstance(value, list) else value


def in_order(value: Any) -> Any:
    """Lists of members and groups in the order of the recordings."""
    if isinstance(value, dict):
        return {name: in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    found = [in_order(one) for one in value]
    for name in ("memberId", "groupId"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: str(one[name]))
            break
    return found
