"""Every version of every message against the bytes that Apache Kafka's own classes write (record_messages.py)."""

import base64
import gzip
import json
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from kohort.model.ids import uuid_from_text
from kohort.records.json_form import json_name
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import gradual_response_encoder, request_encoder, response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_response_header
from kohort.wire.message_classes import message_classes
from kohort.wire.readers import gradual_request_reader, request_reader, response_reader
from kohort.wire.schema import Field, Message, message, message_names
from tests.wire.record_messages import RECORDED

CLIENT = "client"


@cache
def recorded() -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for line in gzip.decompress(RECORDED.read_bytes()).splitlines():
        row = json.loads(line)
        found[row["message"]].append(row)
    return dict(found)


def from_json(schema: Message, struct: str, values: dict[str, Any]) -> Any:
    """An instance of a message class, from Kafka's JSON form. Every name must be one of the struct."""
    fields = {json_name(field): field for field in schema.structs[struct]}
    made = {fields[name].name: field_from_json(schema, fields[name], value) for name, value in values.items()}
    return message_classes(schema.name)[struct](**made)


def field_from_json(schema: Message, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.array:
        return tuple(element_from_json(schema, field, element) for element in value)
    return element_from_json(schema, field, value)


def element_from_json(schema: Message, field: Field, value: Any) -> Any:
    if field.type in schema.structs:
        return from_json(schema, field.type, value)
    if field.type == "uuid":
        uuid = uuid_from_text(value)
        return uuid if uuid.int else None
    return base64.b64decode(value) if field.type in ("bytes", "records") else value


def check_request(api: ApiKey, version: int, request: Any, body: bytes) -> None:
    frame = request_encoder(api, version)(7, CLIENT, request)
    assert frame[14 + len(CLIENT) + api.is_flexible(version) :] == body
    assert request_reader(api, version)(body, 0) == request
    assert drain(gradual_request_reader(api, version)(body, 0, len(body))) == request


def check_response(api: ApiKey, version: int, response: Any, body: bytes) -> None:
    frame = response_encoder(api, version)(7, response)
    _, offset = read_response_header(frame[4:], api, version)
    assert frame[4 + offset :] == body
    assert drain(gradual_response_encoder(api, version)(7, response)) == frame
    assert response_reader(api, version)(body, 0) == response


@pytest.mark.parametrize("name", message_names())
def test_a_message_is_written_and_read_as_by_kafka(name: str) -> None:
    schema = message(name)
    check = check_request if name.endswith("Request") else check_response
    rows = recorded()[name]
    for row in rows:
        made = from_json(schema, name, row["json"] or {})
        check(ApiKey(schema.api_key), row["version"], made, bytes.fromhex(row["hex"]))
    assert {row["version"] for row in rows} == set(range(schema.versions[0], schema.versions[1] + 1))
    assert sum(row["json"] is None for row in rows) == len({row["version"] for row in rows})


def test_every_recorded_message_has_a_schema() -> None:
    assert set(recorded()) == set(message_names())
