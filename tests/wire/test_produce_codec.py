"""The reader and the encoder of usual messages of Produce against those of all messages."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.compiled import is_compiled
from kohort.model.errors import WireError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import _response_writer, request_encoder, response_encoder
from kohort.wire.generated.guards import LongMessage
from kohort.wire.produce_codec import ProduceEncoder, ProduceReader, has_usual_messages
from kohort.wire.readers import _decoded_classes, _reader, request_reader
from kohort.wire.schema import message

BODY_AT = 16
"""Behind size, API key, version, correlation id, the client id "c" and its length, and an empty section of tagged fields."""
VERSIONS = [version for version in range(3, ApiKey.PRODUCE.newest + 1) if ApiKey.PRODUCE.is_flexible(version)]
ANY = {version: _reader(message("ProduceRequest"), version, 1_000) for version in VERSIONS}


def refuse(_frame: bytes, _offset: int) -> Any:
    raise AssertionError("this request is a usual one")


def usual_reader(version: int, read_any: Callable[[bytes, int], Any] = refuse) -> Callable[[bytes, int], Any]:
    return ProduceReader(version, _decoded_classes("ProduceRequest", version), read_any).read


def body_of(version: int, request: m.ProduceRequest) -> bytes:
    return request_encoder(ApiKey.PRODUCE, version)(1, "c", request)[BODY_AT:]


def topic(name: str, *records: bytes | None, topic_id: int = 7) -> m.ProduceRequestTopicProduceData:
    return m.ProduceRequestTopicProduceData(
        name=name,
        topic_id=UUID(int=topic_id),
        partition_data=[
            m.ProduceRequestPartitionProduceData(index=3 * index, records=each) for index, each in enumerate(records)
        ],
    )


def request(*topics: m.ProduceRequestTopicProduceData, acks: int = -1, of: str | None = None) -> m.ProduceRequest:
    return m.ProduceRequest(transactional_id=of, acks=acks, timeout_ms=30_000, topic_data=list(topics))


def outcome(read: Callable[[bytes, int], Any], frame: bytes) -> object:
    try:
        return read(frame, 0)
    except (WireError, LongMessage) as error:
        return type(error), str(error)


USUAL = {
    "one partition": request(topic("orders", b"r" * 200)),
    "several topics and partitions": request(topic("a", b"", b"x" * 126, b"y" * 127), topic("b" * 126, b"z" * 16_500)),
    "null records": request(topic("orders", None), acks=1),
    "a transaction, no answer": request(topic("orders", b"r"), acks=0, of="payments"),
    "an empty transactional id": request(of=""),
    "no topics": request(),
    "no partitions": request(topic("orders")),
    "records of more than two MiB": request(topic("orders", bytes((2 << 20) + 5))),
    "the longest list": request(topic("orders", *[b"r"] * 126)),
}


@pytest.mark.parametrize("version", range(3, ApiKey.PRODUCE.newest + 1))
def test_the_compiled_build_has_it_for_versions_with_tagged_fields(version: int) -> None:
    assert has_usual_messages(version) == (version >= 9 and is_compiled())
    reader = getattr(request_reader(ApiKey.PRODUCE, version), "__self__", None)
    encoder = getattr(response_encoder(ApiKey.PRODUCE, version), "__self__", None)
    assert {isinstance(reader, ProduceReader), isinstance(encoder, ProduceEncoder)} == {has_usual_messages(version)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", USUAL.values(), ids=list(USUAL))
def test_a_usual_request_is_read_at_once_and_as_by_the_other_reader(version: int, sent: m.ProduceRequest) -> None:
    frame = body_of(version, sent) + b"behind"
    found = usual_reader(version)(frame, 0)
    assert found == ANY[version](frame, 0)
    assert type(found.topic_data) is tuple


UNUSUAL = {
    "a long name": request(topic("b" * 127, b"r"), of="x"),
    "a long transactional id": request(topic("a", b"r"), of="x" * 127),
    "a long list": request(topic("a", *[b"r"] * 127)),
    "many topics": request(*[topic("a", b"r")] * 127),
    "many elements": request(*[topic("a", *[b"r"] * 100)] * 10),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sent", UNUSUAL.values(), ids=list(UNUSUAL))
def test_another_request_is_left_to_the_other_reader(version: int, sent: m.ProduceRequest) -> None:
    frame = body_of(version, sent)
    assert outcome(usual_reader(version, ANY[version]), frame) == outcome(ANY[version], frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_zero_id_is_none(version: int) -> None:
    sent = request(topic("", b"r", topic_id=0))
    assert usual_reader(version)(body_of(version, sent), 0).topic_data[0].topic_id is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_request_has_one_outcome_with_both_readers(version: int) -> None:
    frame = body_of(version, request(topic("ab", b"records", None), topic("c", b"r" * 130), of="x"))
    read = usual_reader(version, ANY[version])
    for at in range(len(frame)):
        assert outcome(read, frame[:at]) == outcome(ANY[version], frame[:at]), at
        for byte in (0, 1, 2, 127, 128, 129, 255):
            damaged = frame[:at] + bytes([byte]) + frame[at + 1 :]
            assert outcome(read, damaged) == outcome(ANY[version], damaged), (at, byte)


@given(st.sampled_from(VERSIONS), st.binary(max_size=60))
def test_any_bytes_have_one_outcome_with_both_readers(version: int, frame: bytes) -> None:
    assert outcome(usual_reader(version, ANY[version]), frame) == outcome(ANY[version], frame)


ENCODE_ANY = {version: _response_writer(ApiKey.PRODUCE, version).compile("correlation_id, x0") for version in VERSIONS}
TOPIC_ID = UUID(int=7)
ANSWER = m.ProduceResponsePartitionProduceResponse
NO_LEADER = ANSWER().current_leader


def refuse_answer(_correlation_id: int, _response: Any) -> bytes:
    raise AssertionError("this answer is a usual one")


def encoder(version: int, encode_any: Callable[[int, Any], bytes] = refuse_answer) -> Callable[[int, Any], bytes]:
    return ProduceEncoder(version, NO_LEADER, encode_any).encode


def answers(
    name: str, *partitions: m.ProduceResponsePartitionProduceResponse, topic_id: UUID | None = TOPIC_ID
) -> m.ProduceResponseTopicProduceResponse:
    return m.ProduceResponseTopicProduceResponse(name=name, topic_id=topic_id, partition_responses=list(partitions))


def response(*topics: m.ProduceResponseTopicProduceResponse, **others: Any) -> m.ProduceResponse:
    return m.ProduceResponse(responses=list(topics), **others)


DONE = ANSWER(index=3, base_offset=1 << 40, log_append_time_ms=-1, log_start_offset=5)
USUAL_ANSWERS = {
    "one partition": response(answers("orders", DONE)),
    "several topics": response(answers("a", DONE, DONE), answers("ü" * 63, DONE, topic_id=None), throttle_time_ms=9),
    "no topics": response(),
    "no partitions": response(answers("orders")),
    "the longest lists": response(*[answers("a", *[DONE] * 126)] * 126),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("answer", USUAL_ANSWERS.values(), ids=list(USUAL_ANSWERS))
def test_a_usual_answer_is_encoded_at_once_and_as_by_the_other_encoder(version: int, answer: m.ProduceResponse) -> None:
    assert encoder(version)(-7, answer) == ENCODE_ANY[version](-7, answer)


LEADER = m.ProduceResponseLeaderIdAndEpoch(leader_id=2, leader_epoch=3)
ENDPOINT = m.ProduceResponseNodeEndpoint(node_id=2, host="b", port=9092)
RECORD_ERROR = m.ProduceResponseBatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
UNUSUAL_ANSWERS = {
    "an error": response(answers("a", DONE, ANSWER(error_code=3))),
    "record errors": response(answers("a", ANSWER(record_errors=[RECORD_ERROR]))),
    "a message": response(answers("a", ANSWER(error_message=""))),
    "a leader": response(answers("a", ANSWER(current_leader=LEADER))),
    "an endpoint": response(answers("a", DONE), node_endpoints=[ENDPOINT]),
    "a long name": response(answers("a" * 127, DONE)),
    "a long list": response(answers("a", *[DONE] * 127)),
    "many topics": response(*[answers("a", DONE)] * 127),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("answer", UNUSUAL_ANSWERS.values(), ids=list(UNUSUAL_ANSWERS))
def test_another_answer_is_left_to_the_other_encoder(version: int, answer: m.ProduceResponse) -> None:
    assert encoder(version, ENCODE_ANY[version])(1, answer) == ENCODE_ANY[version](1, answer)
