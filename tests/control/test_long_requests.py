"""Faults and holds on requests that are read, handled and answered in steps."""

import asyncio
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.server.clients import Client, with_topic

COUNT = 3_000
REFUSED = int(ErrorCode.NOT_COORDINATOR)


def commit() -> m.OffsetCommitRequest:
    partitions = [
        m.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(COUNT)
    ]
    topic = m.OffsetCommitRequestTopic(name="t", partitions=partitions)
    return m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def codes(answer: Any) -> dict[int, int]:
    (topic,) = answer.topics
    return {each.partition_index: each.error_code for each in topic.partitions}


async def begun(stage: Stage) -> Client:
    client = await stage.connect()
    await with_topic(client)
    await stage.control.take("POST", "/topics", {"name": "u"})
    await stage.control.take("PUT", "/journal", {"is_on": True})
    return client


@pytest.mark.parametrize("is_after", [False, True])
def test_an_error_on_one_of_many(is_after: bool) -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await stage.control.fault(
            api="OffsetCommit", topic="t", partition=0, error="NOT_COORDINATOR", after=is_after, always=True
        )
        found = codes(await client.ask(ApiKey.OFFSET_COMMIT, 9, commit()))
        assert len(found) == COUNT
        assert found.pop(0) == REFUSED
        assert set(found.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        view = await stage.control.take("GET", "/groups/g")
        assert len(view["offsets"]) == int(is_after)
        (entry,) = (await stage.control.take("GET", "/requests?api=OffsetCommit&wait=1"))["requests"]
        assert entry["request"]["topics"][0]["partitions"][-1]["more"] > 0
        assert "NOT_COORDINATOR" in entry["errors"]

    play(story)


@pytest.mark.parametrize("at", ["request", "reply"])
def test_a_hold(at: str) -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = (await stage.control.take("POST", "/holds", {"api": "OffsetCommit", "at": at}))["id"]
        client.send(ApiKey.OFFSET_COMMIT, 9, commit())
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        await stage.control.take("POST", f"/holds/{hold}/release")
        _, answer = await client.receive(ApiKey.OFFSET_COMMIT, 9)
        assert codes(answer)[0] == 0
        assert len(codes(answer)) == COUNT

    play(story)


def test_an_error_on_all_and_a_delay() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR", delay=0.01)
        found = codes(await client.ask(ApiKey.OFFSET_COMMIT, 9, commit()))
        assert (len(found), set(found.values())) == (COUNT, {REFUSED})

    play(story)


def test_a_client_that_goes_while_its_request_is_held() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = (await stage.control.take("POST", "/holds", {"api": "OffsetCommit"}))["id"]
        client.send(ApiKey.OFFSET_COMMIT, 9, commit())
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        client.writer.close()
        while stage.node._connections.open:
            await asyncio.sleep(0)
        await stage.control.take("POST", f"/holds/{hold}/release")
        await stage.control.take("GET", "/groups/g?topic=t&offset=1")

    play(story)
