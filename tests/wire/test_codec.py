"""
Readers and encoders against kio's own reader and writer, for every version of every message.

Values are made from kio's entities, so the schemas (schemas.json) are tested against an independent reading of Kafka's.
"""

import dataclasses
import datetime as dt
import gzip
import io
import json
import struct
import typing
import uuid
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from kohort.wire.apis import ApiKey
from kohort.wire.encoders import gradual_response_encoder, request_encoder, response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.generated.guards import LongMessage
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.message_classes import message_classes
from kohort.wire.readers import gradual_request_reader, request_reader, response_reader

RECORDED = sorted((Path(__file__).parent.parent / "data/wire").glob("*.jsonl.gz"))

TEXTS = ("", "a", "orders", "grüße-日本", "x" * 126, "y" * 127, "z" * 128, "w" * 20_000)
INTEGERS = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-(1 << 15), -1, 0, 300, (1 << 15) - 1),
    "uint16": (0, 9092, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 0, 70_000, (1 << 31) - 1),
    "int64": (-(1 << 63), -1, 0, 1 << 40, (1 << 63) - 1),
}
UUIDS = (None, uuid.UUID(int=1), uuid.UUID("9e1f0d6c-3a52-4b6e-8f0e-5b1f62a7c3d4"))
MILLISECOND = dt.timedelta(milliseconds=1)
EPOCH = dt.datetime.fromtimestamp(0, tz=dt.UTC)


RENAMED = {
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"): "acceptable_recovery_lag_legacy",
}
"""Fields that Kafka gave another name later, without a change on the wire."""


def without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (UnionType, typing.Union):
        return next(arg for arg in typing.get_args(annotation) if arg is not NoneType), True
    return annotation, False


def primitive(kafka_type: str, random: Random) -> Any:
    if kafka_type in INTEGERS:
        return random.choice(INTEGERS[kafka_type])
    if kafka_type == "error_code":
        return random.choice((KioErrorCode.none, KioErrorCode.unknown_server_error, KioErrorCode.illegal_generation))
    if kafka_type == "timedelta_i32":
        return random.choice((-1, 0, 1, 45_000, (1 << 31) - 1)) * MILLISECOND
    if kafka_type == "timedelta_i64":
        return random.choice((-1, 0, 604_800_000)) * MILLISECOND
    if kafka_type == "datetime_i64":
        return EPOCH + random.choice((0, 1_700_000_000)) * dt.timedelta(seconds=1)
    choices: dict[str, tuple[Any, ...]] = {
        "string": TEXTS,
        "bytes": (b"", b"\0", b"b" * 127, b"c" * 500),
        "records": (b"", b"r" * 300),
        "bool": (False, True),
        "float64": (0.0, -1.5, 1e300),
        "uuid": UUIDS,
    }
    return random.choice(choices[kafka_type])


def random_value(element: Any, kafka_type: Any, random: Random) -> Any:
    return random_entity(element, random) if dataclasses.is_dataclass(element) else primitive(kafka_type, random)


def random_entity(entity: Any, random: Random) -> Any:
    """An instance of one of kio's classes with values from the corners."""
    values = {}
    for field in dataclasses.fields(entity):
        kafka_type = field.metadata.get("kafka_type")
        annotation, is_nullable = without_none(field.type)
        is_array = typing.get_origin(annotation) is tuple
        element, _ = without_none(typing.get_args(annotation)[0] if is_array else annotation)

        if "tag" in field.metadata and random.random() < 0.5 and field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif is_nullable and "tag" not in field.metadata and random.random() < 0.3:
            values[field.name] = None
        elif is_array:
            # More than 126 elements need a second byte for their count; not of structs, which hold arrays again.
            sizes = (0, 1, 2, 130) if kafka_type else (0, 1, 2, 3)
            values[field.name] = tuple(random_value(element, kafka_type, random) for _ in range(random.choice(sizes)))
        else:
            values[field.name] = random_value(element, kafka_type, random)
    return entity(**values)


def plain(value: Any) -> Any:
    """A value of kio's as the message classes have it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dt.timedelta):
        return value // MILLISECOND
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, tuple):
        return tuple(plain(element) for element in value)
    return value


def agree(ours: Any, kios: Any, default: Any) -> None:
    """Check that every field of kio has the same value here, and that absent fields have their default."""
    names = set()
    for field in dataclasses.fields(kios):
        value = getattr(kios, field.name)
        is_time = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
        name = f"{field.name}_ms" if is_time and not field.name.endswith("_ms") else field.name
        name = RENAMED.get((type(kios).__name__, name), name)
        names.add(name)
        found = getattr(ours, name)
        if is_time and value is None:
            assert found == -1
        elif dataclasses.is_dataclass(value):
            agree(found, value, None)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            assert len(found) == len(value)
            for our_element, kio_element in zip(found, value, strict=True):
                agree(our_element, kio_element, None)
        else:
            assert found == plain(value), name
            assert type(found) is type(plain(value)) or isinstance(found, int), name
    for name in getattr(ours, "field_names", ()):
        if name not in names and default is not None:
            assert getattr(ours, name) == getattr(default, name), name


def written_by_kio(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def check_request(api: ApiKey, version: int, random: Random) -> None:
    entity = random_entity(load_request_schema(api, version), random)
    body = written_by_kio(entity)
    gradually = drain(gradual_request_reader(api, version)(b"header" + body + b"trailing", 6, 1 << 20))
    try:
        request = request_reader(api, version)(b"header" + body + b"trailing", 6)
    except LongMessage:  # a message with very many elements is read in steps only
        request = gradually
    agree(request, entity, message_classes(f"{api.api_name}Request")[f"{api.api_name}Request"]())
    frame = request_encoder(api, version)(7, "client", request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    offset = 16 + api.is_flexible(version)
    assert frame[4 + offset :] == body
    if version <= api.newest_stable:
        assert read_request_header(frame[4:]) == (api, version, 7, "client", offset)
    agree(gradually, entity, message_classes(f"{api.api_name}Request")[f"{api.api_name}Request"]())
    assert type(gradually) is type(request)


def check_response(api: ApiKey, version: int, random: Random) -> None:
    entity = random_entity(load_response_schema(api, version), random)
    body = written_by_kio(entity)
    response = response_reader(api, version)(body, 0)
    agree(response, entity, message_classes(f"{api.api_name}Response")[f"{api.api_name}Response"]())
    frame = response_encoder(api, version)(-7, response)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, offset = read_response_header(frame[4:], api, version)
    assert correlation_id == -7
    assert frame[4 + offset :] == body
    assert drain(gradual_response_encoder(api, version)(-7, response)) == frame


CHECKS = (check_request, check_response)
OF_KIO = {
    api: [version for version in range(api.oldest, api.newest + 1) if version in schema_name_map[api_key_map[api]]]
    for api in ApiKey
    if api in api_key_map
}
"""The APIs and versions that kio has; it lags behind the newest release."""


@pytest.mark.parametrize("api", list(OF_KIO), ids=lambda api: api.api_name)
def test_every_version_is_read_and_written_as_kio_does(api: ApiKey, rng: Random) -> None:
    for version in OF_KIO[api]:
        for check in CHECKS:
            for _ in range(4):
                check(api, version, rng)


VERSIONS = [(api, version) for api, versions in OF_KIO.items() for version in versions]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VERSIONS), st.sampled_from(CHECKS), st.randoms(use_true_random=False))
def test_any_message_is_read_and_written_as_kio_does(case: tuple[ApiKey, int], check: Any, random: Random) -> None:
    check(*case, random)


@pytest.mark.parametrize("version", range(12, 18))
@pytest.mark.parametrize(
    ("tagged", "cluster_id"), [(b"\x00", None), (b"\x01\x00\x01\x00", None), (b"\x01\x00\x02\x02x", "x")]
)
def test_a_tagged_string_may_be_null(version: int, tagged: bytes, cluster_id: str | None) -> None:
    """Fetch's cluster id, absent, null or with a value. kio's reader fails at null."""
    replica_id = struct.pack(">i", -1) if version < 15 else b""
    fixed = struct.pack(">iiibii", 500, 1, 1 << 20, 0, 0, -1)
    request = request_reader(ApiKey.FETCH, version)(replica_id + fixed + b"\1\1\1" + tagged, 0)
    assert (request.cluster_id, request.max_wait_ms, request.rack_id) == (cluster_id, 500, "")


def recorded(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path) as lines:
        for line in lines:
            yield json.loads(line)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_what_kafka_and_its_clients_sent_is_read_and_written_again(path: Path) -> None:
    """Frames of Java, librdkafka, kafka-python and aiokafka clients and of Apache Kafka 4.2.1: the same bytes come out."""
    for line in recorded(path):
        frame, key, version = bytes.fromhex(line["hex"]), line["api_key"], line["api_version"]
        if line["dir"] == "request":
            api_key, api_version, correlation_id, client_id, offset = read_request_header(frame)
            assert (api_key, api_version, correlation_id) == (key, version, line["correlation_id"])
            assert client_id == (line["client_id"] or "")
            request = request_reader(key, version)(frame, offset)
            again = request_encoder(key, version)(correlation_id, line["client_id"], request)
        else:
            correlation_id, offset = read_response_header(frame, key, version)
            again = response_encoder(key, version)(correlation_id, response_reader(key, version)(frame, offset))
        assert again[4:] == frame


def test_the_recordings_are_there() -> None:
    assert len(RECORDED) == 27
