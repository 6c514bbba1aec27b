"""Reading and writing long messages in steps. tests/wire/test_codec.py compares the results with those of the quick codecs."""

from collections.abc import Generator
from struct import pack
from typing import Any

import pytest

from kohort.model.errors import WireError
from kohort.model.limits import SECTION_TAGS_MAX
from kohort.wire import encoders
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import gradual_response_encoder, request_encoder, response_encoder
from kohort.wire.generated import gradual
from kohort.wire.generated.guards import LongMessage
from kohort.wire.headers import read_request_header
from kohort.wire.primitives import write_uvarint
from kohort.wire.readers import gradual_request_reader, request_reader

ELEMENTS = 20_000


def steps_of(work: Generator[None, None, Any]) -> tuple[int, Any]:
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
        steps += 1


# fmt: off
LONG = {
    "strings": (ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=["g"] * ELEMENTS), 1),
    "strings of two bytes' length": (ApiKey.DESCRIBE_GROUPS, 0, m.DescribeGroupsRequest(groups=["g"] * ELEMENTS), 1),
    "numbers": (ApiKey.OFFSET_FETCH, 6, m.OffsetFetchRequest(group_id="g", topics=[
        m.OffsetFetchRequestTopic(name="t", partition_indexes=range(ELEMENTS))]), 8),
    "numbers in many arrays": (ApiKey.OFFSET_FETCH, 6, m.OffsetFetchRequest(group_id="g", topics=[
        m.OffsetFetchRequestTopic(name="t", partition_indexes=[0]) for _ in range(ELEMENTS)]), 1),
    "structs": (ApiKey.METADATA, 9, m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")] * ELEMENTS), 1),
}
# fmt: on


@pytest.mark.parametrize("what", LONG)
def test_a_long_request_is_read_in_steps(what: str) -> None:
    key, version, request, elements_a_step = LONG[what]
    whole = request_encoder(key, version)(1, "test", request)
    frame = whole[4:]
    body = read_request_header(frame)[4]
    steps, found = steps_of(gradual_request_reader(key, version)(frame, body, 10 * ELEMENTS))
    assert request_encoder(key, version)(1, "test", found) == whole
    with pytest.raises(LongMessage):
        request_reader(key, version)(frame, body)
    assert steps >= ELEMENTS // (elements_a_step * gradual.STEP_ELEMENTS)
    with pytest.raises(WireError, match=f"{key.api_name}Request has more than {ELEMENTS - 1} elements"):
        steps_of(gradual_request_reader(key, version)(frame, body, ELEMENTS - 1))


def test_unknown_tagged_fields_are_skipped_in_steps_and_count() -> None:
    body = bytearray(b"\x02g" + bytes(4) + b"\x02m\x00")
    write_uvarint(body, SECTION_TAGS_MAX)
    body += b"\x7f\x01x" * SECTION_TAGS_MAX
    steps, request = steps_of(gradual_request_reader(ApiKey.HEARTBEAT, 4)(bytes(body), 0, SECTION_TAGS_MAX))
    assert steps >= SECTION_TAGS_MAX // gradual.STEP_ELEMENTS
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "m", None)
    with pytest.raises(LongMessage):
        request_reader(ApiKey.HEARTBEAT, 4)(bytes(body), 0)
    with pytest.raises(WireError, match="more than 9 elements"):
        steps_of(gradual_request_reader(ApiKey.HEARTBEAT, 4)(bytes(body), 0, 9))
    with pytest.raises(WireError):
        steps_of(gradual_request_reader(ApiKey.HEARTBEAT, 4)(bytes(body[:-2]), 0, ELEMENTS))


def test_a_section_of_a_request_has_as_many_tagged_fields_as_in_kafka() -> None:
    body = bytearray(b"\x02g" + bytes(4) + b"\x02m\x00")
    write_uvarint(body, SECTION_TAGS_MAX + 1)
    body += b"\x7f\x00" * (SECTION_TAGS_MAX + 1)
    with pytest.raises(WireError, match="HeartbeatRequest has 10001 tagged fields; at most 10000 are accepted"):
        steps_of(gradual_request_reader(ApiKey.HEARTBEAT, 4)(bytes(body), 0, ELEMENTS))


@pytest.mark.parametrize("body", [pack(">i", -2), pack(">ih", 1, -2)], ids=["an array", "a string"])
def test_a_length_below_that_of_null_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="has a length of -2"):
        steps_of(gradual_request_reader(ApiKey.DESCRIBE_GROUPS, 0)(body, 0, ELEMENTS))


def test_a_long_response_is_written_in_steps() -> None:
    partition = m.OffsetFetchResponsePartition(partition_index=1, committed_offset=2, metadata="x", error_code=0)
    topic = m.OffsetFetchResponseTopic(name="t", partitions=[partition] * ELEMENTS)
    response = m.OffsetFetchResponse(topics=[topic])
    for version in (1, 7):
        steps, frame = steps_of(gradual_response_encoder(ApiKey.OFFSET_FETCH, version)(1, response))
        assert frame == response_encoder(ApiKey.OFFSET_FETCH, version)(1, response)
        assert steps >= ELEMENTS // encoders.STEP_ELEMENTS


def test_a_response_of_numbers_is_written_in_steps() -> None:
    partition = m.MetadataResponsePartition(replica_nodes=list(range(ELEMENTS)))
    response = m.MetadataResponse(topics=[m.MetadataResponseTopic(name="t", partitions=[partition])])
    steps, frame = steps_of(gradual_response_encoder(ApiKey.METADATA, 9)(1, response))
    assert frame == response_encoder(ApiKey.METADATA, 9)(1, response)
    assert steps >= ELEMENTS // encoders.STEP_ELEMENTS
