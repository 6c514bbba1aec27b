"""Long requests in parts: the joined responses are those of the whole request, in whatever order the parts are answered."""

from collections.abc import Callable, Generator
from random import Random
from typing import Any

import pytest

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.apis.request_rules import PART_ELEMENTS
from kohort.broker.ports import NoResponse
from kohort.machine.gradual import LOOK_STEP, distinct
from kohort.server.requests.splitting import in_parts
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header
from kohort.wire.readers import gradual_request_reader
from tests.broker.harness import Asker

SIZES = (3, 0, PART_ELEMENTS, 1, 2 * PART_ELEMENTS + 7, 5, PART_ELEMENTS - 9)
"""Of topics: within a part, as large as one, and over several."""


def list_offsets(request: Any) -> Any:
    return m.ListOffsetsResponse(
        topics=[
            m.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    m.ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=each.timestamp)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetched_topics(topics: Any) -> list[m.OffsetFetchResponseTopics]:
    return [
        m.OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[m.OffsetFetchResponsePartitions(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in topics or ()
    ]


def offset_fetch(request: Any) -> Any:
    groups = [
        m.OffsetFetchResponseGroup(group_id=group.group_id, topics=fetched_topics(group.topics))
        for group in request.groups
    ]
    return m.OffsetFetchResponse(groups=groups)


def offset_fetch_of_one(request: Any) -> Any:
    topics = [
        m.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[m.OffsetFetchResponsePartition(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in request.topics
    ]
    return m.OffsetFetchResponse(topics=topics)


def produce(request: Any) -> Any:
    return m.ProduceResponse(
        responses=[
            m.ProduceResponseTopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    m.ProduceResponsePartitionProduceResponse(index=data.index, base_offset=len(data.records))
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def find_coordinator(request: Any) -> Any:
    return m.FindCoordinatorResponse(
        coordinators=[m.FindCoordinatorResponseCoordinator(key=key) for key in request.coordinator_keys]
    )


def fetch_topics(prefix: str = "") -> list[m.OffsetFetchRequestTopics]:
    return [
        m.OffsetFetchRequestTopics(name=f"{prefix}t{number}", partition_indexes=range(size))
        for number, size in enumerate(SIZES)
    ]


# fmt: off
LONG: dict[str, tuple[ApiKey, int, Any, Callable[[Any], Any]]] = {
    "ListOffsets": (ApiKey.LIST_OFFSETS, 7, m.ListOffsetsRequest(replica_id=-1, topics=[
        m.ListOffsetsTopic(name=f"t{number}", partitions=[
            m.ListOffsetsPartition(partition_index=index, timestamp=index) for index in range(size)
        ]) for number, size in enumerate(SIZES)]), list_offsets),
    "OffsetFetch of groups": (ApiKey.OFFSET_FETCH, 8, m.OffsetFetchRequest(groups=[
        m.OffsetFetchRequestGroup(group_id="a", topics=fetch_topics()),
        *(m.OffsetFetchRequestGroup(group_id=f"all{number}", topics=None) for number in range(2 * PART_ELEMENTS + 1)),
        m.OffsetFetchRequestGroup(group_id="b", topics=fetch_topics("x")),
        m.OffsetFetchRequestGroup(group_id="c", topics=fetch_topics()),
        m.OffsetFetchRequestGroup(group_id="d", topics=()),
    ]), offset_fetch),
    "OffsetFetch of one group": (ApiKey.OFFSET_FETCH, 6, m.OffsetFetchRequest(group_id="a", topics=[
        m.OffsetFetchRequestTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in fetch_topics()
    ]), offset_fetch_of_one),
    "Produce": (ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, topic_data=[
        m.ProduceRequestTopicProduceData(name=f"t{number}", partition_data=[
            m.ProduceRequestPartitionProduceData(index=index, records=bytes(index % 7)) for index in range(size)
        ]) for number, size in enumerate(SIZES) if size]), produce),
    "FindCoordinator": (ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(
        coordinator_keys=[f"g{number}" for number in range(3 * PART_ELEMENTS + 1)]), find_coordinator),
}
# fmt: on


def decoded(key: ApiKey, version: int, request: Any) -> Any:
    frame = request_encoder(key, version)(1, "", request)[4:]
    return drain(gradual_request_reader(key, version)(frame, read_request_header(frame)[4], 1 << 20))


@pytest.mark.parametrize("what", LONG)
@pytest.mark.parametrize("share_of_later", [0.0, 0.5, 1.0])
def test_the_parts_together_are_answered_as_the_whole(what: str, share_of_later: float, rng: Random) -> None:
    key, version, sent, answer = LONG[what]
    request = decoded(key, version, sent)
    sizes: list[int] = []
    later: list[Callable[[], None]] = []

    def handler(part: Any, context: Any, reply: Callable[[Any], None]) -> Any:
        assert context.api_version == version
        response = answer(part)
        sizes.append(len(response_encoder(key, version)(1, response)))
        if rng.random() < share_of_later:
            later.append(lambda: reply(response))
            return None
        return response

    answers: list[Any] = []
    steps = in_parts(key, version, handler)(request, Asker(version), answers.append)
    assert isinstance(steps, Generator)
    response = drain(steps)
    if response is not None:
        answers.append(response)
    rng.shuffle(later)
    for reply in later:
        reply()
    encode = response_encoder(key, version)
    assert [encode(1, each) for each in answers] == [encode(1, answer(request))]
    assert len(sizes) > 3
    assert max(sizes) < 40 * PART_ELEMENTS


def test_a_partition_that_is_produced_to_repeatedly_is_produced_to_once() -> None:
    """The last entry counts, also if the entries would be in different parts."""
    data = [
        m.ProduceRequestPartitionProduceData(index=index % 600, records=bytes([index // 600])) for index in range(1_800)
    ]
    request = m.ProduceRequest(acks=1, topic_data=[m.ProduceRequestTopicProduceData(name="t", partition_data=data)])
    seen: list[tuple[int, bytes]] = []

    def handler(part: Any, _context: Any, _reply: Any) -> Any:
        seen.extend((each.index, each.records) for topic in part.topic_data for each in topic.partition_data)
        return produce(part)

    response = drain(in_parts(ApiKey.PRODUCE, 9, handler)(decoded(ApiKey.PRODUCE, 9, request), Asker(9), print))
    assert seen == [(index, b"\x02") for index in range(600)]
    assert [each.index for each in response.responses[0].partition_responses] == list(range(600))


@pytest.mark.parametrize("silent", NoResponse)
def test_a_part_without_response_is_that_of_the_whole(silent: NoResponse) -> None:
    request = decoded(ApiKey.PRODUCE, 9, LONG["Produce"][2])
    assert drain(in_parts(ApiKey.PRODUCE, 9, lambda *_: silent)(request, Asker(9), print)) is silent


def test_a_handler_that_works_in_steps_is_not_split() -> None:
    assert in_parts(ApiKey.METADATA, 9, print) is print
    assert in_parts(ApiKey.HEARTBEAT, 4, print) is print
    assert not [key for key, row in API_TABLE.items() if row.is_gradual and row.splits]


def test_repeated_elements_are_left_out_in_steps() -> None:
    steps = distinct([number % 1_500 for number in range(4 * LOOK_STEP)])
    for _ in range(4):
        next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == tuple(range(1_500))
