"""
Encoding of requests from the fields of a step.

A value that begins with `$` is a kept value of the scenario; a value that begins with `@` is a name of the scenario's own. A
table with a single key that begins with `$` is computed:

| written                                  | value                                                        |
|------------------------------------------|--------------------------------------------------------------|
| `{ "$hex" = "00ff" }`                    | bytes                                                        |
| `{ "$repeat" = ["x", 5000] }`            | a repeated text                                              |
| `{ "$now" = -1000 }`                     | the current time in ms, plus a number                        |
| `{ "$plus" = ["$epoch", 1] }`            | the sum of two numbers                                       |
| `{ "$none" = true }`                     | null                                                         |
| `{ "$subscription" = { topics = [] } }`  | consumer protocol subscription; `version` 1 by default       |
| `{ "$assignment" = { orders = [0] } }`   | consumer protocol assignment: partitions by topic            |
| `{ "$batch" = { records = ["a"] } }`     | a record batch, see `batch`                                  |
| `{ "$transaction" = { ... } }`           | a record of `__transaction_state`, in the records of a batch |
| `{ "$partition" = ["@id", 4] }`          | the partition of a group or transactional id, out of four    |
| `{ "$join" = [ ... ] }`                  | the concatenation of several of these                        |
"""

import time
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any
from uuid import UUID

from kohort.model.ids import coordinator_partition
from kohort.records import values
from kohort.records.consumer_protocol import write_assignment, write_subscription
from kohort.records.serde import encode_record
from kohort.records.value_classes import value_class
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, write_crc
from kohort.wire.compression import Codec
from kohort.wire.encoders import request_encoder
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import FIXED_FORMATS, Field, Message, message
from kohort_lab.conformance.scenarios.script import ScriptError, Step

Lookup = Callable[[str], Any]
"""Returns the value of `$name` or `@name` on this side. Raises KeyError for an unknown name."""

_HEADER = Struct(">hhi")
_INT16 = Struct(">h")
_SIZE = Struct(">i")


def request_frame(step: Step, version: int, correlation_id: int, lookup: Lookup) -> bytes:
    """
    The frame of a step's request.

    Raises:
        ScriptError: the request has no such field, or the field cannot hold the value.
    """
    if step.frame is not None:
        return bytes.fromhex(step.frame)
    api = step.api
    assert api is not None
    if step.body is not None or not api.oldest <= version <= api.newest:
        frame = _raw_frame(api, version, correlation_id, step)
    else:
        frame = _encoded(step, api, version, correlation_id, lookup)
    if step.cut_bytes or step.add_bytes:
        content = frame[4 : len(frame) - step.cut_bytes] + bytes.fromhex(step.add_bytes)
        frame = _SIZE.pack(len(content)) + content
    return frame


def _encoded(step: Step, api: ApiKey, version: int, correlation_id: int, lookup: Lookup) -> bytes:
    schema = message(f"{api.api_name}Request")
    request = _struct(schema, schema.name, step.fields, lookup)
    try:
        return request_encoder(api, version)(correlation_id, step.client_id, request)
    except Exception as exc:
        raise ScriptError(f"step {step.label}: {api.api_name} v{version} cannot be written: {exc!r}") from exc


def _raw_frame(api: ApiKey, version: int, correlation_id: int, step: Step) -> bytes:
    """A frame with any body and a header in the form of the version, whether Kafka has that version or not."""
    client_id = (step.client_id or "").encode()
    content = _HEADER.pack(api, version, correlation_id) + _INT16.pack(len(client_id)) + client_id
    if api.is_flexible(version):
        content += b"\0"
    content += bytes.fromhex(step.body or "")
    return _SIZE.pack(len(content)) + content


def _struct(schema: Message, name: str, content: Mapping[str, Any], lookup: Lookup) -> Any:
    known = {field.name: field for field in schema.structs[name]}
    unknown = content.keys() - known.keys()
    if unknown:
        raise ScriptError(f"{name} has no field {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    values = {key: _field(schema, known[key], resolve(value, lookup), lookup) for key, value in content.items()}
    return message_classes(schema.name)[name](**values)


def _field(schema: Message, field: Field, value: Any, lookup: Lookup) -> Any:
    if value is None:
        return None
    if field.array:
        if value == "":
            return ()  # kept from an answer without the field
        if not isinstance(value, (list, tuple)):
            raise ScriptError(f"{field.name} is a list, not {value!r}")
        return tuple(_element(schema, field, resolve(each, lookup), lookup) for each in value)
    return _element(schema, field, value, lookup)


def _element(schema: Message, field: Field, value: Any, lookup: Lookup) -> Any:
    if field.type in schema.structs:
        if value is not None and not isinstance(value, Mapping):
            value = _same_fields(schema, field.type, value)
        return None if value is None else _struct(schema, field.type, value, lookup)
    if field.type in ("bytes", "records"):
        return value.encode() if isinstance(value, str) else value
    if field.type == "uuid":
        return UUID(value) if isinstance(value, str) and value else value or None
    if field.type in FIXED_FORMATS and value == "":
        return 0 if field.array else field.default  # kept from an answer without the field
    if field.type in FIXED_FORMATS and not isinstance(value, (int, float)):
        raise ScriptError(f"{field.name} is a number, not {value!r}")
    return value


def _same_fields(schema: Message, name: str, kept: object) -> dict[str, Any]:
    """The fields of a structure of a kept answer that a structure of the request has as well."""
    return {field.name: getattr(kept, field.name) for field in schema.structs[name] if hasattr(kept, field.name)}


def resolve(value: Any, lookup: Lookup) -> Any:
    """The value of a name or of a computed table. The elements of lists and other tables are resolved later."""
    if isinstance(value, str) and value[:1] in ("$", "@"):
        try:
            found = lookup(value)
        except KeyError:
            raise ScriptError(f"{value} is not known here") from None
        return resolve(found, lookup) if isinstance(found, dict) else found
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        ((name, argument),) = value.items()
        maker = _MAKERS.get(name)
        if maker is None:
            raise ScriptError(f"there is no {name}")
        return maker(argument, lookup)
    return value


def _subscription(argument: Mapping[str, Any], lookup: Lookup) -> bytes:
    owned = _partitions(argument.get("owned", {}), lookup, "ConsumerProtocolSubscriptionTopicPartition")
    subscription = values.ConsumerProtocolSubscription(
        topics=tuple(resolve(topic, lookup) for topic in argument["topics"]),
        user_data=None,
        owned_partitions=owned,
        generation_id=resolve(argument.get("generation", -1), lookup),
        rack_id=argument.get("rack"),
    )
    return write_subscription(subscription, resolve(argument.get("version", 1), lookup))


def _assignment(argument: Mapping[str, Any], lookup: Lookup) -> bytes:
    assigned = _partitions(argument, lookup, "ConsumerProtocolAssignmentTopicPartition")
    return write_assignment(values.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None), version=1)


def _partitions(by_topic: Mapping[str, list[int]], lookup: Lookup, struct: str) -> tuple[Any, ...]:
    return tuple(
        value_class(struct)(topic=resolve(topic, lookup), partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )


def batch(argument: Mapping[str, Any], lookup: Lookup) -> bytes:
    """
    A record batch.

    `records` are texts, values without a key, or tables of `key`, `value`, `headers` and `time`; beside them `time`,
    `producer_id`, `producer_epoch`, `sequence`, `codec` by name, `base_offset`, `control`, `transactional`. Invalid batches
    are made by overwriting bytes, each given by position and hex: `set` does so before the checksum is computed, `damage`
    afterwards.
    """
    codec = Codec[argument.get("codec", "none").upper()]
    content = bytearray(
        build_batch(
            [_record(each, lookup) for each in resolve(argument["records"], lookup)],
            timestamp_ms=resolve(argument.get("time", 1_700_000_000_000), lookup),
            producer_id=_number(argument, "producer_id", lookup),
            producer_epoch=_number(argument, "producer_epoch", lookup),
            base_sequence=_number(argument, "sequence", lookup),
            transactional=argument.get("transactional", False),
            control=argument.get("control", False),
            compression=codec,
            base_offset=argument.get("base_offset", 0),
        )
    )
    for at, written in argument.get("set", ()):
        content[at : at + len(written) // 2] = bytes.fromhex(written)
    if argument.get("set"):
        write_crc(content)
    for at, written in argument.get("damage", ()):
        content[at : at + len(written) // 2] = bytes.fromhex(written)
    return bytes(content)


def _number(argument: Mapping[str, Any], key: str, lookup: Lookup) -> int:
    """-1 by default, and for a value kept from an answer without the field."""
    found = resolve(argument.get(key, -1), lookup)
    return -1 if found == "" else found


def _record(content: Any, lookup: Lookup) -> BatchRecord:
    content = resolve(content, lookup)
    if isinstance(content, str):
        return BatchRecord(None, content.encode())
    key, value = resolve(content.get("key"), lookup), resolve(content.get("value"), lookup)
    return BatchRecord(
        key.encode() if isinstance(key, str) else key,
        value.encode() if isinstance(value, str) else value,
        tuple((name, text.encode()) for name, text in content.get("headers", {}).items()),
        resolve(content.get("time"), lookup),
    )


def _transaction(argument: Mapping[str, Any], lookup: Lookup) -> dict[str, bytes | None]:
    """A record of an Empty transactional id, as a coordinator with transaction version 2 writes it."""
    record = values.TransactionLog(
        transactional_id=resolve(argument["transactional_id"], lookup),
        producer_id=_number(argument, "producer_id", lookup),
        producer_epoch=_number(argument, "producer_epoch", lookup),
        transaction_timeout_ms=argument.get("transaction_timeout_ms", 60_000),
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=time.time_ns() // 1_000_000,
        transaction_start_timestamp_ms=-1,
        client_transaction_version=2,
    )
    key, value = encode_record(record)
    return {"key": key, "value": value}


_MAKERS: dict[str, Callable[[Any, Lookup], Any]] = {
    "$hex": lambda argument, _: bytes.fromhex(argument),
    "$repeat": lambda argument, _: argument[0] * argument[1],
    "$now": lambda argument, _: time.time_ns() // 1_000_000 + argument,
    "$plus": lambda argument, lookup: (resolve(argument[0], lookup) or 0) + argument[1],
    "$none": lambda _argument, _: None,
    "$subscription": _subscription,
    "$assignment": _assignment,
    "$batch": batch,
    "$transaction": _transaction,
    "$partition": lambda argument, lookup: coordinator_partition(resolve(argument[0], lookup), argument[1]),
    "$join": lambda argument, lookup: b"".join(resolve(each, lookup) for each in argument),
}
