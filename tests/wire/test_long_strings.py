"""
A string has at most 32 767 bytes, a compact one too. Apache Kafka's generated readers refuse a longer one, which closes the
connection.

Source: MessageDataGenerator.generateVariableLengthReader: "string field ... had invalid length".
"""

import struct

import pytest

from kohort.model.errors import WireError
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import gradual_response_encoder, request_encoder, response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import gradual_request_reader, request_reader, response_reader
from tests.server.requests.worst_requests import Longest, one_byte_longer, strings

CASES = [
    (api, version)
    for api in ApiKey
    for version in range(max(api.oldest, api.flexible_from), api.newest_stable + 1)
    if strings(api, version)
]


@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda value: getattr(value, "api_name", f"v{value}"))
def test_a_longer_string_is_refused_by_both_readers(api: ApiKey, version: int) -> None:
    encode, read, read_gradually = (
        request_encoder(api, version),
        request_reader(api, version),
        gradual_request_reader(api, version),
    )
    for path in strings(api, version):
        sent = encode(1, "c", Longest(api, path).message(version))
        frame, too_long = sent[4:], one_byte_longer(sent)[4:]
        body = read_request_header(frame)[4]
        assert read(frame, body) == drain(read_gradually(frame, body, 100)), path
        with pytest.raises(WireError, match=rf"\.{path[-1]} has a length of 32768"):
            read(too_long, body)
        with pytest.raises(WireError, match=rf"\.{path[-1]} has a length of 32768"):
            drain(read_gradually(too_long, body, 100))


def test_bytes_and_records_may_be_longer() -> None:
    long = bytes(STRING_BYTES_MAX + 1)
    member = m.SyncGroupRequestAssignment(member_id="m", assignment=long)
    sync = m.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[member])
    partition = m.ProduceRequestPartitionProduceData(index=0, records=long)
    topic = m.ProduceRequestTopicProduceData(name="t", partition_data=[partition])
    produce = m.ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    for api, version, request in (ApiKey.SYNC_GROUP, 5, sync), (ApiKey.PRODUCE, 12, produce):
        frame = request_encoder(api, version)(1, "c", request)[4:]
        body = read_request_header(frame)[4]
        assert request_reader(api, version)(frame, body) == request
        assert drain(gradual_request_reader(api, version)(frame, body, 100)) == request


@pytest.mark.parametrize("version", [4, 5])
def test_a_longer_string_of_a_response_is_cut_to_whole_characters(version: int) -> None:
    group = m.DescribeGroupsResponseDescribedGroup(group_id="a" + "é" * 20_000, protocol_type="p" * STRING_BYTES_MAX)
    response = m.DescribeGroupsResponse(groups=[group])
    frame = response_encoder(ApiKey.DESCRIBE_GROUPS, version)(1, response)
    assert drain(gradual_response_encoder(ApiKey.DESCRIBE_GROUPS, version)(1, response)) == frame
    body = read_response_header(frame[4:], ApiKey.DESCRIBE_GROUPS, version)[1]
    (read,) = response_reader(ApiKey.DESCRIBE_GROUPS, version)(frame[4:], body).groups
    assert read.group_id == "a" + "é" * 16_383
    assert read.protocol_type == group.protocol_type


def test_a_longer_string_of_a_request_is_a_defect_of_the_caller() -> None:
    for version in 4, 5:
        with pytest.raises(struct.error):
            request_encoder(ApiKey.DESCRIBE_GROUPS, version)(1, "", m.DescribeGroupsRequest(groups=["é" * 16_384]))
