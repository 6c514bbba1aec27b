"""
Malformed frames: the behaviour of kio's native reader, and the guards between it and the network.

Frames that can end the process are read in a separate process with little memory.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kohort.model.errors import WireError
from kohort.model.limits import ARRAY_ELEMENTS_MAX, SECTION_TAGS_MAX
from kohort.wire import messages, readers
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.generated import decoders, guards
from kohort.wire.headers import read_request_header
from kohort.wire.primitives import write_uvarint
from kohort.wire.readers import request_reader, response_reader

FUZZ_SECONDS = 300.0 if os.environ.get("KOHORT_LONG") else 3.0

OFFSET_COMMIT = messages.OffsetCommitRequest(
    group_id="group",
    member_id="member",
    topics=[
        messages.OffsetCommitRequestTopic(
            name="orders",
            partitions=[
                messages.OffsetCommitRequestPartition(partition_index=1, committed_offset=5, committed_metadata="note")
            ],
        )
    ],
)


def body(api_key: int, version: int, request: object) -> bytes:
    frame = request_encoder(api_key, version)(1, "client", request)[4:]
    return frame[read_request_header(frame)[-1] :]


def test_fuzzing_every_reader_is_answered_with_a_message_or_a_wire_error(seed: int) -> None:
    command = [sys.executable, str(Path(__file__).with_name("fuzz_readers.py")), str(seed), str(FUZZ_SECONDS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=FUZZ_SECONDS + 300, check=False)
    assert run.returncode == 0, f"seed {seed}: exit {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}"
    assert int(run.stdout) > 100


KIO_ALONE = """
import resource
from kio.index import load_request_schema
from kio.serial import entity_reader
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
reader = entity_reader(load_request_schema(8, 9))
try:
    reader(bytes.fromhex("{frame}"), 0)
except Exception:
    pass
"""


def test_kio_alone_dies_of_a_claimed_array_length() -> None:
    """Why there are guards. When this fails, kio has learned to check, and guards may become cheaper."""
    frame = b"\x06group" + bytes(4) + b"\x01" + b"\x00" + b"\xff\xff\xff\xff\x0f"
    run = subprocess.run([sys.executable, "-c", KIO_ALONE.format(frame=frame.hex())], capture_output=True, check=False)
    assert run.returncode < 0
    with pytest.raises(WireError, match="claims"):
        request_reader(ApiKey.OFFSET_COMMIT, 9)(frame, 0)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_count_that_cannot_fit_is_refused(version: int) -> None:
    frame = body(ApiKey.OFFSET_COMMIT, version, OFFSET_COMMIT)
    # The name of the only topic follows the count of topics.
    if version >= 8:
        hostile = frame.replace(b"\x02\x07orders", b"\xff\xff\xff\xff\x0f\x07orders")
    else:
        hostile = frame.replace(b"\x00\x00\x00\x01\x00\x06orders", b"\x7f\xff\xff\xff\x00\x06orders")
    assert hostile != frame
    with pytest.raises(WireError, match="topics claims"):
        request_reader(ApiKey.OFFSET_COMMIT, version)(hostile, 0)


def test_a_count_inside_an_element_is_refused_as_well() -> None:
    frame = body(ApiKey.OFFSET_COMMIT, 9, OFFSET_COMMIT).replace(b"\x07orders\x02", b"\x07orders\xff\xff\xff\xff\x0f")
    with pytest.raises(WireError, match="partitions claims"):
        request_reader(ApiKey.OFFSET_COMMIT, 9)(frame, 0)


def test_a_count_inside_a_tagged_field_is_refused_whatever_size_the_field_states() -> None:
    """kio reads a known tagged field by its content; a guard that skipped it by its size would not see the count."""
    response = messages.ApiVersionsResponse(
        supported_features=[messages.ApiVersionsResponseSupportedFeatureKey(name="f", max_version=1)]
    )
    frame = response_encoder(ApiKey.API_VERSIONS, 4)(1, response)[8:]
    at = frame.index(b"\x02\x02f")
    honest = response_reader(ApiKey.API_VERSIONS, 4)(frame, 0)
    assert honest.supported_features[0].name == "f"
    for stated in (frame[at - 1], 0, 1, 4):
        hostile = frame[: at - 1] + bytes([stated]) + b"\xff\xff\xff\xff\x0f" + frame[at + 1 :]
        with pytest.raises(WireError):
            response_reader(ApiKey.API_VERSIONS, 4)(hostile, 0)
    with pytest.raises(WireError, match="states"):
        response_reader(ApiKey.API_VERSIONS, 4)(frame[: at - 1] + b"\x03" + frame[at:], 0)


def test_any_byte_except_zero_is_true() -> None:
    """As in Kafka."""
    for version, body in ((9, b"\x01\x07\x00\xff\x00"), (8, bytes(4) + b"\x07\x00\xff")):
        request = request_reader(ApiKey.METADATA, version)(body, 0)
        assert request.allow_auto_topic_creation is True
        assert request.include_cluster_authorized_operations is False
        assert request.include_topic_authorized_operations is True


NOT_THE_PROTOCOL = {
    "a negative array length": (ApiKey.OFFSET_COMMIT, 7, b"\x00\x01g" + bytes(4) + b"\x00\x00\xff\xff\xff\xff\xff\xfe"),
    "null in place of an array": (ApiKey.OFFSET_COMMIT, 9, b"\x02g" + bytes(4) + b"\x01\x00\x00\x00"),
    "null in place of a string": (ApiKey.HEARTBEAT, 4, b"\x00" + bytes(4) + b"\x01\x00\x00"),
    "null in place of a string, old": (ApiKey.HEARTBEAT, 3, b"\xff\xff" + bytes(4) + b"\x00\x00\xff\xff"),
    "a string of length -2": (ApiKey.HEARTBEAT, 3, b"\xff\xfe" + bytes(4) + b"\x00\x00\xff\xff"),
    "a string that is not UTF-8": (ApiKey.HEARTBEAT, 4, b"\x02\xff" + bytes(4) + b"\x01\x00\x00"),
    "half a surrogate": (ApiKey.HEARTBEAT, 4, b"\x04\xed\xa0\x80" + bytes(4) + b"\x01\x00\x00"),
    "a varint of six bytes": (ApiKey.HEARTBEAT, 4, b"\x82\x80\x80\x80\x80\x00g" + bytes(4) + b"\x01\x00\x00"),
    "nothing": (ApiKey.HEARTBEAT, 4, b""),
    "no tagged fields where they must be": (ApiKey.HEARTBEAT, 4, b"\x02g" + bytes(4) + b"\x01\x00"),
    "a count without elements": (ApiKey.DELETE_GROUPS, 2, b"\x03\x02g"),
    "nothing where a count must be": (ApiKey.DELETE_GROUPS, 0, b"\x00\x00\x00"),
}


@pytest.mark.parametrize("what", NOT_THE_PROTOCOL)
def test_what_is_not_the_protocol_is_a_wire_error(what: str) -> None:
    api_key, version, frame = NOT_THE_PROTOCOL[what]
    with pytest.raises(WireError):
        request_reader(api_key, version)(frame, 0)


def test_every_prefix_of_a_message_is_refused() -> None:
    for version in range(2, 10):
        frame = body(ApiKey.OFFSET_COMMIT, version, OFFSET_COMMIT)
        for size in range(len(frame)):
            with pytest.raises(WireError):
                request_reader(ApiKey.OFFSET_COMMIT, version)(frame[:size], 0)


def test_bytes_after_a_message_are_accepted() -> None:
    frame = body(ApiKey.OFFSET_COMMIT, 9, OFFSET_COMMIT)
    assert request_reader(ApiKey.OFFSET_COMMIT, 9)(frame + b"more", 0) == request_reader(ApiKey.OFFSET_COMMIT, 9)(
        frame, 0
    )


UNKNOWN_TAGS = b"\x02\x64\x03abc\xa0\x8d\x06\x00"


def test_unknown_tagged_fields_are_skipped_at_every_depth() -> None:
    """Newer clients send them (KIP-482); kio refuses them."""
    frame = body(ApiKey.OFFSET_COMMIT, 9, OFFSET_COMMIT)
    expected = request_reader(ApiKey.OFFSET_COMMIT, 9)(frame, 0)
    assert frame.endswith(b"\x05note\x00\x00\x00")
    stem = frame[:-3]
    for tags in (
        (UNKNOWN_TAGS, b"\x00", b"\x00"),
        (b"\x00", UNKNOWN_TAGS, b"\x00"),
        (b"\x00", b"\x00", UNKNOWN_TAGS),
        (UNKNOWN_TAGS, UNKNOWN_TAGS, UNKNOWN_TAGS),
    ):
        assert request_reader(ApiKey.OFFSET_COMMIT, 9)(b"xx" + stem + b"".join(tags), 2) == expected
    with pytest.raises(WireError):
        request_reader(ApiKey.OFFSET_COMMIT, 9)(stem + b"\x00\x00\x01\x64\x03ab", 0)


def answer_of(count: int, tags: bytes = b"\x00") -> bytes:
    """A response to FindCoordinator 4 with this many coordinators, without its header."""
    body = bytearray(4)
    write_uvarint(body, count + 1)
    coordinator = b"\x01" + bytes(4) + b"\x01" + bytes(6) + b"\x00\x00"
    return bytes(body + coordinator * count + tags)


@pytest.mark.parametrize("tags", [b"\x00", UNKNOWN_TAGS], ids=["at once", "in steps"])
def test_an_array_of_an_answer_has_as_many_elements_as_in_kafka(tags: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrays of requests have stricter limits."""
    assert ARRAY_ELEMENTS_MAX == 1_000_000
    for module in (guards, decoders):
        monkeypatch.setattr(module, "ARRAY_ELEMENTS_MAX", 1_000)
    for function in (readers.response_reader, readers._gradual_reader):
        monkeypatch.setattr(readers, function.__name__, cache(function.__wrapped__))
    read = readers.response_reader(ApiKey.FIND_COORDINATOR, 4)
    assert len(read(answer_of(1_000, tags), 0).coordinators) == 1_000
    with pytest.raises(WireError, match="coordinators has 1001 elements"):
        read(answer_of(1_001, tags), 0)


def test_a_section_of_an_answer_has_as_many_tagged_fields_as_in_kafka() -> None:
    read = response_reader(ApiKey.HEARTBEAT, 4)
    for count in (SECTION_TAGS_MAX, SECTION_TAGS_MAX + 1):
        body = bytearray(6)
        write_uvarint(body, count)
        body += b"\x64\x00" * count
        if count == SECTION_TAGS_MAX:
            assert read(bytes(body), 0).error_code == 0
        else:
            with pytest.raises(WireError, match="HeartbeatResponse has 10001 tagged fields"):
                read(bytes(body), 0)


def test_known_tagged_fields_survive_beside_unknown_ones() -> None:
    request = messages.FetchRequest(cluster_id="cluster", max_wait_ms=500, topics=[messages.FetchRequestFetchTopic()])
    frame = body(ApiKey.FETCH, 17, request)
    assert frame.endswith(b"\x01\x00\x08\x08cluster")
    more = frame.removesuffix(b"\x01\x00\x08\x08cluster") + b"\x03\x00\x08\x08cluster\x64\x01x\x65\x00"
    again = request_reader(ApiKey.FETCH, 17)(more, 0)
    assert again.cluster_id == "cluster"
    assert again == request_reader(ApiKey.FETCH, 17)(frame, 0)
    assert again == request


def test_unknown_tagged_fields_inside_known_ones_are_skipped() -> None:
    endpoint = messages.FetchResponseNodeEndpoint(node_id=1, host="h", port=9092)
    frame = response_encoder(ApiKey.FETCH, 16)(1, messages.FetchResponse(node_endpoints=[endpoint]))[9:]
    inner = b"\x02" + bytes(3) + b"\x01\x02h\x00\x00\x23\x84\x00"
    assert frame.endswith(b"\x01\x00" + bytes([len(inner) + 1]) + inner + b"\x00")
    more = frame[: -len(inner) - 2] + bytes([len(inner) + 4]) + inner + b"\x01\x07\x01z"
    assert response_reader(ApiKey.FETCH, 16)(more, 0).node_endpoints == (endpoint,)


@pytest.mark.parametrize("marker", [b"\x01", b"\x00", b"\x02"])
def test_structs_that_may_be_null_are_passed_on_the_slow_path(marker: bytes) -> None:
    """Only -1 is null (KIP-893); kio, like Kafka, reads a struct after any other byte."""
    partitions = messages.ConsumerGroupHeartbeatResponseTopicPartitions(partitions=[1])
    assignment = messages.ConsumerGroupHeartbeatResponseAssignment(topic_partitions=[partitions])
    response = messages.ConsumerGroupHeartbeatResponse(member_epoch=3, assignment=assignment)
    frame = response_encoder(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)(1, response)[9:]
    stem, inner = frame[:16], frame[17:-1]
    read = response_reader(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    assert frame == stem + b"\x01" + inner + b"\x00"
    assert read(stem + marker + inner + b"\x00", 0) == response
    assert read(stem + marker + inner + UNKNOWN_TAGS, 0) == response
    nothing = messages.ConsumerGroupHeartbeatResponse(member_epoch=3)
    assert read(stem + b"\xff" + b"\x00", 0) == read(stem + b"\xff" + UNKNOWN_TAGS, 0) == nothing


def test_dates_of_minus_one_are_read() -> None:
    """kio expects a date and fails; a coordinator answers -1 for a transaction that has not begun."""
    state = messages.DescribeTransactionsResponseTransactionState(transactional_id="t", transaction_start_time_ms=-1)
    response = messages.DescribeTransactionsResponse(transaction_states=[state])
    frame = response_encoder(ApiKey.DESCRIBE_TRANSACTIONS, 0)(1, response)[9:]
    assert response_reader(ApiKey.DESCRIBE_TRANSACTIONS, 0)(frame, 0) == response


def test_durations_of_any_length_are_read() -> None:
    """Python's own type for durations ends at a billion days."""
    frame = body(ApiKey.OFFSET_COMMIT, 2, messages.OffsetCommitRequest(retention_time_ms=(1 << 63) - 1))
    assert request_reader(ApiKey.OFFSET_COMMIT, 2)(frame, 0).retention_time_ms == (1 << 63) - 1
    request = messages.JoinGroupRequest(session_timeout_ms=-(1 << 31))
    frame = body(ApiKey.JOIN_GROUP, 9, request)
    assert request_reader(ApiKey.JOIN_GROUP, 9)(frame, 0).session_timeout_ms == -(1 << 31)


@pytest.mark.parametrize(("api_key", "version"), [(99, 0), (12, 5), (12, -1), (0, 2), (-1, 0)])
def test_there_is_no_reader_of_what_does_not_exist(api_key: int, version: int) -> None:
    for reader in (request_reader, response_reader):
        with pytest.raises(WireError):
            reader(api_key, version)
    for encoder in (request_encoder, response_encoder):
        with pytest.raises(WireError):
            encoder(api_key, version)
