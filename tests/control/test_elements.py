"""Faults on an element of a request: a partition of ten, a topic of two. The rest of the request is served."""

import asyncio
from typing import Any

import msgspec

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.control.controlled import Stage, play
from tests.server.clients import Client, with_topic

REFUSED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def with_partitions(stage: Stage, *names: str) -> Client:
    client = await stage.connect()
    await with_topic(client)
    topics = [m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=10, replication_factor=1) for name in names]
    await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=topics, timeout_ms=5_000))
    return client


def topic_id(stage: Stage, name: str) -> Any:
    topic = stage.node.broker.catalog.topic(name)
    assert topic is not None
    return topic.topic_id


def produce(*topics: Any, acks: int = -1, **naming: Any) -> m.ProduceRequest:
    data = [
        m.ProduceRequestTopicProduceData(
            **name,
            partition_data=[
                m.ProduceRequestPartitionProduceData(index=index, records=batch(b"x")) for index in range(10)
            ],
        )
        for name in topics
    ]
    return m.ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=data, **naming)


def test_one_partition_of_ten_is_not_written() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a", "b")
        fault = await stage.control.fault(api="Produce", topic="a", partition=3, error="NOT_LEADER_OR_FOLLOWER")
        answer = await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}, {"name": "b"}))
        found = {
            (topic.name, each.index): (each.error_code, each.base_offset)
            for topic in answer.responses
            for each in topic.partition_responses
        }
        assert len(found) == 20
        assert found.pop(("a", 3)) == (REFUSED, -1)
        assert set(found.values()) == {(0, 0)}
        assert await stage.control.hits(fault) == 1
        again = await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        offsets = {each.index: each.base_offset for each in again.responses[0].partition_responses}
        assert offsets == {index: 0 if index == 3 else 1 for index in range(10)}

    play(story)


def test_a_name_matches_a_request_that_has_the_id_of_the_topic() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a", "b")
        await stage.control.fault(api="Produce", topic="a", error="NOT_LEADER_OR_FOLLOWER")
        ids = [{"topic_id": topic_id(stage, name)} for name in "ab"]
        answer = await client.ask(ApiKey.PRODUCE, 13, produce(*ids))
        codes = {topic.topic_id: {each.error_code for each in topic.partition_responses} for topic in answer.responses}
        assert codes == {ids[0]["topic_id"]: {REFUSED}, ids[1]["topic_id"]: {0}}

    play(story)


def test_an_error_after_the_effect_leaves_what_was_written() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await stage.control.fault(api="Produce", topic="a", partition=3, error="REQUEST_TIMED_OUT", after=True)
        answer = await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
        assert codes == {index: ErrorCode.REQUEST_TIMED_OUT if index == 3 else 0 for index in range(10)}
        again = await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        assert {each.base_offset for each in again.responses[0].partition_responses} == {1}

    play(story)


def test_a_producer_that_waits_for_no_answer_is_disconnected_by_an_error() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await stage.control.fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER")
        client.send(ApiKey.PRODUCE, 9, produce({"name": "a"}, acks=0))
        assert await client.is_closed()

    play(story)


def fetch(topics: list[Any], session_id: int = 0, session_epoch: int = -1) -> m.FetchRequest:
    return m.FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
    )


def fetched_topic(name: str, *partitions: int) -> Any:
    return m.FetchRequestFetchTopic(
        topic=name,
        partitions=[
            m.FetchRequestFetchPartition(
                partition=each, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20
            )
            for each in partitions
        ],
    )


def test_an_error_answers_a_fetch_that_would_wait() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await stage.control.fault(api="Fetch", topic="a", partition=3, error="OFFSET_OUT_OF_RANGE")
        answer = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 2, 3)]))
        codes = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
        assert codes == {2: 0, 3: ErrorCode.OFFSET_OUT_OF_RANGE}

    play(story)


def test_a_partition_of_a_session_is_hit_although_the_request_does_not_name_it() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        first = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 2, 3)], 0, 0))
        assert first.session_id
        await stage.control.fault(api="Fetch", topic="a", partition=3, error="NOT_LEADER_OR_FOLLOWER")
        answer = await client.ask(ApiKey.FETCH, 12, fetch([], first.session_id, 1))
        codes = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
        assert codes == {2: 0, 3: REFUSED}
        healed = await client.ask(ApiKey.FETCH, 12, fetch([], first.session_id, 2))
        assert {each.partition_index: each.error_code for each in healed.responses[0].partitions} == {2: 0, 3: 0}

    play(story)


def test_a_partition_that_a_session_forgets_is_not_hit() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        first = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 2, 3)], 0, 0))
        fault = await stage.control.fault(api="Fetch", topic="a", partition=3, error="NOT_LEADER_OR_FOLLOWER")
        forgetting = fetch([], first.session_id, 1)
        forgotten = [m.FetchRequestForgottenTopic(topic="a", partitions=[3])]
        answer = await client.ask(
            ApiKey.FETCH, 12, msgspec.structs.replace(forgetting, forgotten_topics_data=forgotten)
        )
        assert {each.partition_index: each.error_code for each in answer.responses[0].partitions} == {2: 0}
        assert await stage.control.hits(fault) == 0

    play(story)


def test_a_fetch_that_waits_is_answered_when_a_fault_comes() -> None:
    """Its client asks again, and meets the fault."""

    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        client.send(ApiKey.FETCH, 12, fetch([fetched_topic("a", 3)]))
        while not stage.node.broker.fetches.delayed:
            await asyncio.sleep(0)
        await stage.control.fault(api="Fetch", topic="a", error="NOT_LEADER_OR_FOLLOWER")
        _, answer = await client.receive(ApiKey.FETCH, 12)
        assert answer.responses[0].partitions[0].error_code == 0
        again = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 3)]))
        assert again.responses[0].partitions[0].error_code == REFUSED

    play(story)


def test_corrupt_records_have_a_wrong_checksum() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await client.ask(ApiKey.PRODUCE, 9, produce({"name": "a"}))
        await stage.control.fault(api="Fetch", topic="a", corrupt=True)
        wrong = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 0)]))
        right = await client.ask(ApiKey.FETCH, 12, fetch([fetched_topic("a", 0)]))
        kept, changed = (bytes(each.responses[0].partitions[0].records) for each in (right, wrong))
        assert len(kept) == len(changed)
        assert [at for at in range(len(kept)) if kept[at] != changed[at]] == [len(kept) - 1]

    play(story)


def test_a_topic_of_a_metadata_answer_has_the_error() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a", "b")
        await stage.control.fault(api="Metadata", topic="a", error="LEADER_NOT_AVAILABLE")
        topics = [m.MetadataRequestTopic(name=name) for name in "ab"]
        answer = await client.ask(ApiKey.METADATA, 9, m.MetadataRequest(topics=topics))
        codes = {topic.name: {each.error_code for each in topic.partitions} for topic in answer.topics}
        assert codes == {"a": {ErrorCode.LEADER_NOT_AVAILABLE}, "b": {0}}
        await stage.control.fault(api="Metadata", topic="a", error="UNKNOWN_TOPIC_OR_PARTITION", place="request")
        whole = await client.ask(ApiKey.METADATA, 9, m.MetadataRequest(topics=None))
        assert {topic.name: topic.error_code for topic in whole.topics if topic.name in ("a", "b")} == {
            "a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "b": 0,
        }

    play(story)


def test_the_group_of_a_lookup_counts_as_a_group() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage)
        await stage.control.fault(api="FindCoordinator", group="other", error="COORDINATOR_NOT_AVAILABLE")
        for version, keys in ((4, {"coordinator_keys": ["g", "other"]}), (3, {"key": "g"})):
            answer = await client.ask(ApiKey.FIND_COORDINATOR, version, m.FindCoordinatorRequest(**keys))
            if version == 4:
                codes = {each.key: each.error_code for each in answer.coordinators}
                assert codes == {"g": 0, "other": ErrorCode.COORDINATOR_NOT_AVAILABLE}
            else:
                assert answer.error_code == 0
        await stage.control.fault(api="FindCoordinator", transactional_id="g", error="COORDINATOR_NOT_AVAILABLE")
        asked = m.FindCoordinatorRequest(key="g", key_type=1)
        assert (await client.ask(ApiKey.FIND_COORDINATOR, 3, asked)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(story)


def test_a_producer_is_found_by_the_id_in_its_batches() -> None:
    async def story(stage: Stage) -> None:
        client = await with_partitions(stage, "a")
        await stage.control.fault(api="Produce", producer_id=7, error="NOT_LEADER_OR_FOLLOWER", always=True)
        codes = []
        for producer_id in (7, 8):
            records = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            data = m.ProduceRequestPartitionProduceData(index=0, records=records)
            topic = m.ProduceRequestTopicProduceData(name="a", partition_data=[data])
            request = m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
            answer = await client.ask(ApiKey.PRODUCE, 9, request)
            codes.append(answer.responses[0].partition_responses[0].error_code)
        assert codes == [REFUSED, 0]

    play(story)
