"""Holds over HTTP: what waits, what goes on, and leases."""

import asyncio

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.control.test_faults import committed, fetched
from tests.server.clients import Client, commit, with_coordinators, with_topic


async def begun(stage: Stage) -> Client:
    client = await stage.connect()
    await with_topic(client)
    return client


async def held(stage: Stage, **spec: object) -> str:
    return str((await stage.control.take("POST", "/holds", spec))["id"])


def test_a_held_request_has_no_effect_until_it_is_released() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, api="OffsetCommit", group="g")
        commits = asyncio.ensure_future(committed(client, 5))
        view = await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert (view["waiting"], view["held"][0]["api"]) == (1, "OffsetCommit")
        assert await fetched(other) == -1
        await stage.control.take("POST", f"/holds/{hold}/release")
        assert await commits == 0
        assert await fetched(other) == 5
        assert await committed(client, 6) == 0

    play(story)


def test_a_held_reply_belongs_to_a_request_that_has_its_effect() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, api="OffsetCommit", at="reply")
        commits = asyncio.ensure_future(committed(client, 5))
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert await fetched(other) == 5
        assert not commits.done()
        await stage.control.take("DELETE", f"/holds/{hold}")
        assert await commits == 0

    play(story)


def test_the_answer_of_a_fault_is_held_too() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, api="OffsetCommit", at="reply")
        await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR")
        commits = asyncio.ensure_future(committed(client, 5))
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert not commits.done()
        await stage.control.take("DELETE", f"/holds/{hold}")
        assert await commits == ErrorCode.NOT_COORDINATOR

    play(story)


def test_the_first_ones_go_in_the_order_in_which_they_came() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        clients = [await stage.connect() for _ in range(3)]
        hold = await held(stage, api="OffsetCommit")
        for number, client in enumerate(clients, 1):
            client.send(ApiKey.OFFSET_COMMIT, 9, commit(number))
            await stage.control.take("GET", f"/holds/{hold}?wait={number}&timeout=5")
        view = await stage.control.take("POST", f"/holds/{hold}/release", {"count": 2})
        assert (view["waiting"], view["hits"], view["is_ended"]) == (1, 3, False)
        for client in clients[:2]:
            await client.receive(ApiKey.OFFSET_COMMIT, 9)
        assert await fetched(await stage.connect()) == 2
        await stage.control.take("POST", f"/holds/{hold}/release", {})
        await clients[2].receive(ApiKey.OFFSET_COMMIT, 9)

    play(story)


def test_a_hold_ends_with_its_lease() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, api="OffsetCommit", lease=0.02)
        assert await committed(client, 5) == 0
        assert (await stage.control.take("GET", f"/holds/{hold}"))["is_ended"]

    play(story)


def test_a_hold_takes_as_many_as_it_says() -> None:
    async def story(stage: Stage) -> None:
        client, other = await begun(stage), await stage.connect()
        hold = await held(stage, api="OffsetCommit", times=1)
        client.send(ApiKey.OFFSET_COMMIT, 9, commit(5))
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert await committed(other, 6) == 0
        late = await stage.control.ask("GET", f"/holds/{hold}?wait=2&timeout=0.01")
        assert (late.status, late.body["state"]["waiting"]) == (409, 1)

    play(story)


def test_a_scope_ends_with_everything_in_it() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        hold = await held(stage, api="OffsetCommit", scope="test-1")
        fault = await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR", scope="test-1")
        kept = await stage.control.fault(api="OffsetCommit", observe=True, scope="test-2")
        listed = await stage.control.take("GET", "/faults?scope=test-1")
        assert [each["id"] for each in listed["faults"]] == [fault]
        ended = await stage.control.take("DELETE", "/scopes/test-1")
        assert (ended["faults"], ended["holds"]) == ([fault], [hold])
        assert await committed(client, 5) == 0
        assert await stage.control.hits(kept) == 1
        again = await stage.control.take("DELETE", "/scopes/unknown")
        assert (again["faults"], again["holds"]) == ([], [])

    play(story)


def test_a_marker_waits_and_the_transaction_stays_prepared() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await stage.control.take("POST", "/topics", {"name": "t"})
        await with_coordinators(client)
        asked = m.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        producer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
        hold = await held(stage, point="marker.write", topic="t")
        end = m.EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        assert (await client.ask(ApiKey.END_TXN, 3, end)).error_code == 0
        view = await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert view["held"][0]["text"] == "marker.write t-0"
        await stage.control.take("GET", "/transactions/t?wait=prepare_commit")
        await stage.control.take("POST", f"/holds/{hold}/release")
        await stage.control.take("GET", "/transactions/t?wait=complete_commit")
        assert stage.node.broker.local_markers.hold is None

    play(story)


def test_a_coordinator_is_kept_loading() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await with_coordinators(client)
        assert await committed(client, 5) == 0
        hold = await held(stage, point="coordinator.load", topic="__consumer_offsets")
        moved = asyncio.ensure_future(stage.control.take("POST", "/events/move_coordinator", {"group": "g"}))
        await stage.control.take("GET", f"/holds/{hold}?wait=1&timeout=5")
        assert await committed(client, 6) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not moved.done()
        await stage.control.take("POST", f"/holds/{hold}/release")
        await moved
        assert await committed(client, 7) == 0

    play(story)
