"""Holds at points inside the broker, as raw clients see them."""

import asyncio
from typing import Any

import pytest

from kohort.control.requests.holds import POINTS
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.control.controlled import Stage, play
from tests.control.test_events import consumer, heartbeat, produced
from tests.control.test_faults import committed
from tests.control.test_holds import held
from tests.control.test_states import begun, joined, synced
from tests.server.clients import Client, with_share_coordinator


async def waits(stage: Stage, hold: str, count: int = 1) -> Any:
    return await stage.control.take("GET", f"/holds/{hold}?wait={count}&timeout=5")


async def release(stage: Stage, hold: str, **body: int) -> Any:
    return await stage.control.take("POST", f"/holds/{hold}/release", body)


async def values(stage: Stage, partition: int = 0) -> list[str]:
    found = await stage.control.take("GET", f"/topics/t/records?partition={partition}")
    return [each["value"] for each in found["records"]]


def fetch(max_wait_ms: int = 10_000, *partitions: int) -> m.FetchRequest:
    wanted = [
        m.FetchRequestFetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in partitions or (0,)
    ]
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[m.FetchRequestFetchTopic(topic="t", partitions=wanted)],
    )


def records(answer: Any) -> dict[int, int]:
    """The number of bytes of each partition."""
    (topic,) = answer.responses
    return {each.partition_index: len(each.records or b"") for each in topic.partitions}


def produce(*partitions: int, acks: int = -1, timeout_ms: int = 5_000) -> m.ProduceRequest:
    data = [m.ProduceRequestPartitionProduceData(index=each, records=batch(b"x")) for each in partitions]
    topic = m.ProduceRequestTopicProduceData(name="t", partition_data=data)
    return m.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


# -- append ------------------------------------------------------------------------------------------------------


def test_a_batch_waits_before_its_append_and_the_partitions_after_it_too() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage, 3), await stage.connect()
        hold = await held(stage, point="append", topic="t", partition=1)
        client.send(ApiKey.PRODUCE, 9, produce(0, 1, 2))
        assert (await waits(stage, hold))["held"][0]["text"] == "append t-1"
        assert [len(await values(stage, each)) for each in range(3)] == [1, 0, 0]
        assert await produced(other, 2) == 0
        await release(stage, hold)
        _, answer = await client.receive(ApiKey.PRODUCE, 9)
        offsets = {each.index: each.base_offset for each in answer.responses[0].partition_responses}
        assert offsets == {0: 0, 1: 0, 2: 1}
        assert stage.node.broker.apis[stage.node.broker.cluster.node_id].produce.hold is None

    play(story)


def test_a_batch_is_judged_by_what_is_there_when_it_is_released() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, point="append")
        client.send(ApiKey.PRODUCE, 9, produce(0))
        await waits(stage, hold)
        topic = m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
        await (await stage.connect()).ask(ApiKey.DELETE_TOPICS, 5, topic)
        await release(stage, hold)
        _, answer = await client.receive(ApiKey.PRODUCE, 9)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


def test_a_batch_is_written_although_its_client_has_gone() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, point="append")
        client.send(ApiKey.PRODUCE, 9, produce(0))
        await waits(stage, hold)
        client.writer.close()
        while stage.node._connections.open:
            await asyncio.sleep(0)
        await release(stage, hold)
        await stage.control.take("GET", "/topics/t/records?wait=1&timeout=5")

    play(story)


# -- flush -------------------------------------------------------------------------------------------------------


def test_what_is_not_flushed_is_not_read_and_not_acknowledged() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, point="flush", topic="t", partition=0)
        produces = asyncio.ensure_future(produced(client))
        assert (await waits(stage, hold))["held"][0]["text"] == "flush t-0"
        assert await produced(other, 1) == 0
        assert records(await other.ask(ApiKey.FETCH, 11, fetch(0))) == {0: 0}
        assert not produces.done()
        await release(stage, hold)
        assert await produces == 0
        assert len(await values(stage)) == 1

    play(story)


def test_a_topic_that_is_made_after_the_hold_is_held_too() -> None:
    async def story(stage: Stage) -> None:
        hold = await held(stage, point="flush", topic="t")
        client = await begun(stage)
        produces = asyncio.ensure_future(produced(client))
        await waits(stage, hold)
        await release(stage, hold)
        assert await produces == 0

    play(story)


def test_a_commit_waits_for_the_log_of_its_coordinator() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await committed(client, 1)
        hold = await held(stage, point="flush", topic="__consumer_offsets")
        commits = asyncio.ensure_future(committed(client, 5))
        await waits(stage, hold)
        assert (await stage.control.take("GET", "/groups/g"))["offsets"][0]["offset"] == 1
        await release(stage, hold, count=1)
        assert await commits == 0
        again = asyncio.ensure_future(committed(client, 6))
        assert (await waits(stage, hold))["hits"] == 2
        await release(stage, hold)
        assert await again == 0

    play(story)


def test_a_later_flush_that_is_not_held_takes_the_earlier_one_along() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, point="flush", topic="t", times=1)
        produces = asyncio.ensure_future(produced(client))
        await waits(stage, hold)
        assert await produced(other) == 0
        assert await produces == 0
        await release(stage, hold)
        assert len(await values(stage)) == 2

    play(story)


# -- fetch.completion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_a_fetch_that_has_waited_reads_when_it_is_released(partitions: tuple[int, ...]) -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, point="fetch.completion", topic="t", partition=0)
        client.send(ApiKey.FETCH, 11, fetch(10_000, *partitions))
        while not stage.node.broker.fetches.delayed:
            await asyncio.sleep(0)
        assert await produced(other) == 0
        assert (await waits(stage, hold))["held"][0]["text"] == "fetch.completion t-0"
        one = records(await other.ask(ApiKey.FETCH, 11, fetch(0)))[0]
        assert await produced(other) == 0
        await release(stage, hold)
        _, answer = await client.receive(ApiKey.FETCH, 11)
        assert records(answer) == dict.fromkeys(partitions, 0) | {0: 2 * one}

    play(story)


def test_a_fetch_whose_time_is_over_and_one_of_a_client_that_goes() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, point="fetch.completion", partition=0)
        other.send(ApiKey.FETCH, 11, fetch(1))
        await waits(stage, hold, 1)
        other.writer.close()
        client.send(ApiKey.FETCH, 11, fetch(1))
        await waits(stage, hold, 2)
        assert records(await (await stage.connect()).ask(ApiKey.FETCH, 11, fetch(1, 1))) == {1: 0}
        await release(stage, hold)
        _, answer = await client.receive(ApiKey.FETCH, 11)
        assert records(answer) == {0: 0}

    play(story)


# -- rebalance.completion ----------------------------------------------------------------------------------------


def test_a_classic_group_prepares_its_rebalance_until_it_is_released() -> None:
    async def story(stage: Stage) -> None:
        client, second = await begun(stage), await stage.connect()
        hold = await held(stage, point="rebalance.completion", group="g")
        joins = asyncio.ensure_future(joined(client))
        view = await waits(stage, hold)
        assert view["held"][0]["text"] == "rebalance.completion g"
        assert (await stage.control.take("GET", "/groups/g"))["state"] == "preparing_rebalance"
        late = asyncio.ensure_future(joined(second))
        await stage.control.take("GET", "/groups/g?wait=preparing_rebalance&members=2&timeout=5")
        assert not joins.done()
        assert (await release(stage, hold, count=1))["hits"] == 1
        (member, generation), (other, same) = await joins, await late
        assert (generation, same) == (1, 1)
        await synced(client, member, generation, 0, 1)
        # The next rebalance is held, too.
        third = asyncio.ensure_future(joined(await stage.connect()))
        while await heartbeat(client, member, generation) != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        for each in (member, other):
            leave = m.LeaveGroupRequest(group_id="g", member_id=each)
            await client.ask(ApiKey.LEAVE_GROUP, 2, leave)
        assert (await waits(stage, hold))["hits"] == 2
        await stage.control.take("DELETE", f"/holds/{hold}")
        assert (await third)[1] == 2
        assert stage.node.broker.hold_rebalance is None

    play(story)


def test_another_group_is_not_held() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await held(stage, point="rebalance.completion", group="other")
        assert (await joined(client))[1] == 1

    play(story)


def test_a_rebalance_goes_on_when_the_lease_ends() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, point="rebalance.completion", lease=0.05)
        assert (await joined(client))[1] == 1
        view = await stage.control.take("GET", f"/holds/{hold}")
        assert (view["is_ended"], view["hits"]) == (True, 1)

    play(story)


def test_the_members_of_a_consumer_group_keep_what_they_have() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, point="rebalance.completion", group="g")
        first = await consumer(client)
        assert (first.error_code, first.member_epoch, first.assignment.topic_partitions) == (0, 1, ())
        assert (await waits(stage, hold))["waiting"] == 1
        again = await consumer(client, first.member_epoch)
        assert (again.error_code, again.member_epoch) == (0, first.member_epoch)
        assert (await release(stage, hold, count=1))["hits"] == 1
        served = await consumer(client, first.member_epoch)
        (topic,) = served.assignment.topic_partitions
        assert (served.error_code, list(topic.partitions)) == (0, [0, 1])
        await release(stage, hold)

    play(story)


def test_a_share_group_is_held_likewise() -> None:
    async def beat(client: Client, epoch: int) -> Any:
        request = m.ShareGroupHeartbeatRequest(
            group_id="g", member_id="m-1", member_epoch=epoch, subscribed_topic_names=["t"]
        )
        return await client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)

    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await with_share_coordinator(client)
        hold = await held(stage, point="rebalance.completion", group="g")
        first = await beat(client, 0)
        assert (first.error_code, (await waits(stage, hold))["waiting"]) == (0, 1)
        assert not first.assignment.topic_partitions
        await release(stage, hold)
        while not (found := (await beat(client, 0)).assignment) or not found.topic_partitions:
            pass
        assert sorted(found.topic_partitions[0].partitions) == [0, 1]

    play(story)


# -- all ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", sorted(POINTS))
def test_filters_that_a_point_cannot_carry_are_refused(point: str) -> None:
    async def story(stage: Stage) -> None:
        wrong: dict[str, Any] = {"api": "Produce", "client_id": "c", "member": "m", "topic_id": "A" * 22}
        wrong |= {"group": "g"} if "group" not in POINTS[point] else {"topic": "t", "partition": 0}
        for name, value in wrong.items():
            answer = await stage.control.ask("POST", "/holds", {"point": point, name: value})
            assert answer.status == 422
            assert answer.body["detail"].endswith(f"it has no {name}")
        assert (await stage.control.ask("POST", "/holds", {"point": point, "at": "reply"})).status == 422
        assert not stage.kit.all_holds

    play(story)


def test_a_misspelled_point_is_told_with_the_nearest_one() -> None:
    async def story(stage: Stage) -> None:
        answer = await stage.control.ask("POST", "/holds", {"point": "fetch.complete"})
        assert answer.body["detail"].startswith("there is no point 'fetch.complete'; did you mean fetch.completion?")

    play(story)


def test_points_end_with_the_scope() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, point="flush", scope="test-1")
        produces = asyncio.ensure_future(produced(client))
        await waits(stage, hold)
        await stage.control.take("DELETE", "/scopes/test-1")
        assert await produces == 0

    play(story)
