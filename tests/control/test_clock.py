"""Virtual time: what runs out runs out at the word of the test."""

from typing import Any

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.control.test_events import consumer, heartbeat
from tests.control.test_states import begun, joined, synced
from tests.server.clients import Client


async def advanced(stage: Stage, seconds: float, **more: Any) -> Any:
    return await stage.control.take("POST", "/clock/advance", {"seconds": seconds, "pause": 0, **more})


def test_a_session_of_a_classic_group_runs_out() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        member = await joined(client)
        await synced(client, *member, 0)
        listed = await stage.control.take("GET", "/clock/timers")
        assert {"seconds": 10.0, "owner": f"session g {member[0]}"} in listed["timers"]
        await advanced(stage, 9)
        assert await heartbeat(client, *member) == 0
        await advanced(stage, 9)
        assert (await stage.control.take("GET", "/groups/g"))["state"] == "stable"
        ran = await advanced(stage, 2)
        assert f"session g {member[0]}" in [each["owner"] for each in ran["ran"]]
        assert (await stage.control.take("GET", "/groups/g"))["state"] == "empty"

    play(story, virtual_time=True)


def test_a_member_that_sends_heartbeats_between_the_steps_stays() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        member = await joined(client)
        await synced(client, *member, 0)
        for _ in range(9):
            await advanced(stage, 5)
            assert await heartbeat(client, *member) == 0

    play(story, virtual_time=True)


def test_session_transaction_and_retention_together() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await stage.control.take(
            "POST", "/topics", {"name": "old", "partitions": 1, "configs": {"segment.bytes": "1048576"}}
        )
        big = {"records": [{"value": "x" * 100_000} for _ in range(8)]}
        await stage.control.take("POST", "/topics/old/records", big)
        await stage.control.take("POST", "/topics/old/records", big)
        assert (await consumer(client)).error_code == 0
        producer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, initial())
        await add_partition(client, producer)
        await advanced(stage, 44)
        assert len((await stage.control.take("GET", "/groups/g"))["members"]) == 1
        await advanced(stage, 2)
        assert (await stage.control.take("GET", "/groups/g"))["members"] == []
        assert (await stage.control.take("GET", "/transactions/t"))["state"] == "ongoing"
        await advanced(stage, 30)
        await stage.control.take("GET", "/transactions/t?wait=complete_abort")
        await advanced(stage, 8 * 86_400)
        (partition,) = (await stage.control.take("GET", "/topics/old"))["partitions"]
        assert partition["start_offset"] > 0

    play(story, virtual_time=True)


def initial() -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )


async def add_partition(client: Client, producer: Any) -> None:
    add = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


def test_idle_connections_are_closed() -> None:
    async def story(stage: Stage) -> None:
        idle = await stage.connect()
        await idle.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        await advanced(stage, 5 * 60)
        await advanced(stage, 6 * 60)
        assert await idle.is_closed()

    play(story, virtual_time=True)


def test_the_next_timer_runs() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await synced(client, *await joined(client), 0)
        before = await stage.control.take("GET", "/clock")
        first = (await stage.control.take("GET", "/clock/timers"))["timers"][0]
        ran = await stage.control.take("POST", "/clock/run-next")
        assert ran["ran"][0] == first
        assert ran["now_ms"] - before["now_ms"] == round(first["seconds"] * 1_000)

    play(story, virtual_time=True)


def test_a_fetch_waits_on_the_real_clock() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        partition = m.FetchRequestFetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1_000
        )
        request = m.FetchRequest(
            replica_id=-1,
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=1_000,
            session_id=0,
            session_epoch=-1,
            topics=[m.FetchRequestFetchTopic(topic="t", partitions=[partition])],
        )
        assert (await client.ask(ApiKey.FETCH, 12, request)).error_code == ErrorCode.NONE

    play(story, virtual_time=True)


def test_wrong_uses() -> None:
    async def story(stage: Stage) -> None:
        for body in (
            {"seconds": 0},
            {"seconds": -1},
            {"seconds": 1e12},
            {"seconds": 1, "step": 0},
            {"seconds": 1, "pause": 9},
        ):
            assert (await stage.control.ask("POST", "/clock/advance", body)).status == 422
        many = {"seconds": 1_000_000, "step": 0.001}
        assert (await stage.control.ask("POST", "/clock/advance", many)).status == 422

    play(story, virtual_time=True)


def test_a_real_clock_cannot_be_advanced() -> None:
    async def story(stage: Stage) -> None:
        assert (await stage.control.take("GET", "/clock"))["is_virtual"] is False
        for method, path, body in (
            ("POST", "/clock/advance", {"seconds": 1}),
            ("POST", "/clock/run-next", None),
            ("GET", "/clock/timers", None),
        ):
            answer = await stage.control.ask(method, path, body)
            assert (answer.status, answer.body["type"]) == (409, "urn:kohort:problem:no-virtual-time")

    play(story)
