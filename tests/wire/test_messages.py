"""The message classes: generated files are up to date, and fields have Kafka's defaults."""

import ast
import runpy
from pathlib import Path

import msgspec
import pytest

from kohort.testing.kafka import UnavailableKafkaError
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import message, message_names

ROOT = Path(__file__).parent.parent.parent
STUBS = ROOT / "src/kohort/wire/messages.pyi"


def test_the_stubs_are_up_to_date() -> None:
    """To refresh them: .venv/bin/python tools/message_stubs.py"""
    assert STUBS.read_bytes() == runpy.run_path(str(ROOT / "tools/message_stubs.py"))["generate"]()


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.timeout(600)
def test_the_schemas_are_those_of_kafkas_jars() -> None:
    """To refresh them: .venv/bin/python tools/kafka_schemas.py"""
    try:
        generated = runpy.run_path(str(ROOT / "tools/kafka_schemas.py"))["generate"]()
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    for path, content in generated.items():
        assert path.read_bytes() == content, path


def stub_fields() -> dict[str, list[str]]:
    classes = [node for node in ast.parse(STUBS.read_text()).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: [
            statement.target.id
            for statement in node.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        ]
        for node in classes
    }


def test_type_checkers_see_the_fields_that_there_are() -> None:
    seen = stub_fields()
    built = {name: made for known in message_names() for name, made in message_classes(known).items()}
    assert {name: list(made.__struct_fields__) for name, made in built.items()} == seen
    for name, made in built.items():
        assert getattr(messages, name) is made


def test_every_api_has_a_request_and_a_response() -> None:
    for api in ApiKey:
        for kind in ("Request", "Response"):
            schema = message(f"{api.api_name}{kind}")
            assert schema.api_key == api
            assert schema.versions == (api.oldest, api.newest)
            for version in range(api.oldest, api.newest + 1):
                assert schema.is_flexible(version) == api.is_flexible(version)


def test_every_message_can_be_made_of_nothing() -> None:
    for known in message_names():
        for made in message_classes(known).values():
            assert made() == made()


DEFAULTS = [
    (messages.HeartbeatResponse(), "error_code", 0),
    (messages.HeartbeatRequest(), "group_id", ""),
    (messages.HeartbeatRequest(), "group_instance_id", None),
    (messages.OffsetCommitRequest(), "retention_time_ms", -1),
    (messages.OffsetCommitRequestTopic(), "topic_id", None),
    (messages.OffsetCommitRequestTopic(), "name", ""),
    (messages.OffsetCommitRequest(), "topics", ()),
    (messages.ProduceResponsePartitionProduceResponse(), "log_append_time_ms", -1),
    (messages.ProduceRequestPartitionProduceData(), "records", None),
    (messages.JoinGroupResponseMember(), "metadata", b""),
    (messages.ConsumerGroupHeartbeatRequest(), "topic_partitions", None),
    (messages.ConsumerGroupHeartbeatRequest(), "rebalance_timeout_ms", -1),
    (messages.ConsumerGroupHeartbeatResponse(), "assignment", None),
    (messages.FetchResponsePartitionData(), "aborted_transactions", ()),
    (messages.FetchResponsePartitionData(), "current_leader", messages.FetchResponseLeaderIdAndEpoch(leader_id=-1)),
    (messages.ApiVersionsResponse(), "finalized_features_epoch", -1),
]


@pytest.mark.parametrize(("message", "field", "default"), DEFAULTS)
def test_a_field_has_the_default_of_kafkas_schema(message: msgspec.Struct, field: str, default: object) -> None:
    assert getattr(message, field) == default


def test_a_name_that_is_no_message_is_no_attribute() -> None:
    assert not hasattr(messages, "HeartbeatAnswer")
    assert not hasattr(messages, "__wrapped__")


def test_shapes_are_frozen_and_take_keywords_only() -> None:
    with pytest.raises(TypeError):
        messages.HeartbeatResponse(1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        messages.HeartbeatResponse().error_code = 1  # type: ignore[misc]


def test_field_names_are_the_objects_that_keyword_arguments_are() -> None:
    names = dict.fromkeys(("partition_index", "committed_offset", "metadata"))
    found = [name for name in messages.OffsetFetchResponsePartitions.__struct_fields__ if name in names]
    assert {id(name) for name in found} == {id(name) for name in names}


def test_an_array_is_any_sequence() -> None:
    """A list without elements is as much the default of a tagged field as the tuple."""
    encode = response_encoder(ApiKey.API_VERSIONS, 4)
    assert encode(1, messages.ApiVersionsResponse(supported_features=[])) == encode(1, messages.ApiVersionsResponse())
    for topics in (["a"], ("a",)):
        groups = messages.DeleteGroupsRequest(groups_names=topics)
        assert request_encoder(ApiKey.DELETE_GROUPS, 2)(1, "c", groups).endswith(b"\x02\x02a\x00")


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_record_batches_are_any_buffer(make: type) -> None:
    data = messages.FetchResponsePartitionData(records=make(b"batch"))
    topic = messages.FetchableTopicResponse(partitions=[data])
    frame = response_encoder(ApiKey.FETCH, 11)(1, messages.FetchResponse(responses=[topic]))
    assert frame.endswith(b"\x00\x00\x00\x05batch")
    assert type(frame) is bytes


LOWERED = {  # a value that newer versions alone can express, and what older ones write
    "fields that a version lacks are left out": (
        response_encoder(ApiKey.HEARTBEAT, 0)(1, messages.HeartbeatResponse(throttle_time_ms=7, error_code=5)),
        "00000006 00000001 0005",
    ),
    "null where a version has none is empty": (
        response_encoder(ApiKey.JOIN_GROUP, 0)(1, messages.JoinGroupResponse(protocol_name=None, leader="l")),
        "00000015 00000001 0000 ffffffff 0000 00016c 0000 00000000",
    ),
}


@pytest.mark.parametrize("what", LOWERED)
def test_newer_shapes_in_older_versions(what: str) -> None:
    frame, expected = LOWERED[what]
    assert frame.hex() == expected.replace(" ", "")
