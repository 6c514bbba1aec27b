"""Snapshots: a broker in memory goes on with what it had, and clients notice."""

from typing import Any

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.control.controlled import Stage, play
from tests.control.test_clock import add_partition, initial
from tests.control.test_events import consumer, happens, produced
from tests.control.test_faults import committed, fetched
from tests.control.test_states import begun, joined, synced
from tests.server.clients import Client


async def restored(stage: Stage, snapshot: str) -> None:
    await stage.control.take("POST", f"/snapshots/{snapshot}/restore")


async def snapshot_of(stage: Stage, **body: Any) -> str:
    return str((await stage.control.take("POST", "/snapshots", body))["id"])


def test_topics_records_and_offsets_come_back() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await produced(client)
        await committed(client, 1)
        snapshot = await snapshot_of(stage)
        await produced(client)
        await committed(client, 2)
        await stage.control.take("POST", "/topics", {"name": "later"})
        for _ in range(2):
            await restored(stage, snapshot)
            assert await client.is_closed()
            client = await stage.connect()
            assert await fetched(client) == 1
            names = (await stage.control.take("GET", "/topics"))["topics"]
            assert names == ["__consumer_offsets", "__transaction_state", "t"]
            records = await stage.control.take("GET", "/topics/t/records")
            assert [each["offset"] for each in records["records"]] == [0]
            assert await produced(client) == 0
            await committed(client, 3)

    play(story)


def test_leader_epochs_and_producer_ids_do_not_come_again() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        snapshot = await snapshot_of(stage)
        epochs, producers = [], []
        for _ in range(3):
            epochs.append((await stage.control.take("GET", "/topics/t"))["partitions"][0]["leader_epoch"])
            answer = await client.ask(
                ApiKey.INIT_PRODUCER_ID,
                4,
                m.InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
                ),
            )
            producers.append(answer.producer_id)
            await restored(stage, snapshot)
            client = await stage.connect()
        assert epochs[0] < epochs[1] < epochs[2]
        assert len(set(producers)) == 3

    play(story)


def test_groups_and_transactions_come_back() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        member = await joined(client)
        await synced(client, *member, 0, 1)
        await add_partition(client, await client.ask(ApiKey.INIT_PRODUCER_ID, 4, initial()))
        snapshot = await snapshot_of(stage)
        await happens(stage, "remove_member", group="g", member="test")
        await happens(stage, "fence_producer", transactional_id="t")
        await restored(stage, snapshot)
        view = await stage.control.take("GET", "/groups/g?wait=stable&members=1&topic=t")
        assert view["members"][0]["member_id"] == member[0]
        await stage.control.take("GET", "/transactions/t?wait=ongoing")

    play(story)


def test_faults_and_holds_stay() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        snapshot = await snapshot_of(stage)
        fault = await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR")
        await stage.control.take("POST", "/holds", {"api": "Produce"})
        client.send(ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, timeout_ms=1, topic_data=[]))
        await restored(stage, snapshot)
        assert [each["waiting"] for each in (await stage.control.take("GET", "/holds"))["holds"]] == [0]
        assert await committed(await stage.connect(), 1) == ErrorCode.NOT_COORDINATOR
        assert await stage.control.hits(fault) == 1

    play(story)


def test_virtual_time_goes_on() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        snapshot = await snapshot_of(stage)
        await stage.control.take("POST", "/clock/advance", {"seconds": 1_000, "pause": 0})
        before = await stage.control.take("GET", "/clock")
        await restored(stage, snapshot)
        assert await stage.control.take("GET", "/clock") == before
        client = await stage.connect()
        answer = await consumer(client)
        assert answer.error_code == 0
        await stage.control.take("POST", "/clock/advance", {"seconds": 46, "pause": 0})
        assert (await stage.control.take("GET", "/groups/g"))["members"] == []

    play(story, virtual_time=True)


def test_a_reset_leaves_nothing() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR", always=True)
        await stage.control.take("POST", "/reset")
        assert (await stage.control.take("GET", "/topics"))["topics"] == []
        client = await begun(stage)
        assert await committed(client, 1) == 0

    play(story)


def test_two_brokers_keep_their_addresses() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        before = await stage.control.take("GET", "/")
        await restored(stage, await snapshot_of(stage))
        assert await stage.control.take("GET", "/") == before

    play(story, brokers=2)


def test_wrong_uses() -> None:
    async def story(stage: Stage) -> None:
        assert (await stage.control.ask("POST", "/snapshots/snapshot-1-x/restore")).status == 404
        snapshot = await snapshot_of(stage, scope="one")
        assert (await stage.control.take("GET", "/snapshots"))["snapshots"][0]["id"] == snapshot
        await stage.control.take("DELETE", "/scopes/one")
        assert (await stage.control.take("GET", "/snapshots"))["snapshots"] == []
        assert (await stage.control.ask("DELETE", f"/snapshots/{snapshot}")).status == 204

    play(story)


def test_the_sequences_of_a_producer_are_those_of_the_snapshot() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        asked = m.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
        )
        producer = (await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)).producer_id

        async def written(client: Client, sequence: int) -> int:
            records = batch(b"x", producer_id=producer, producer_epoch=0, base_sequence=sequence)
            data = m.ProduceRequestPartitionProduceData(index=0, records=records)
            topic = m.ProduceRequestTopicProduceData(name="t", partition_data=[data])
            answer = await client.ask(
                ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
            )
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == 0
            return int(partition.base_offset)

        assert await written(client, 0) == 0
        snapshot = await snapshot_of(stage)
        assert [await written(client, each) for each in (1, 2)] == [1, 2]
        for _ in range(2):
            await restored(stage, snapshot)
            client = await stage.connect()
            assert [await written(client, each) for each in (1, 1)] == [1, 1]
            (partition, _) = (await stage.control.take("GET", "/topics/t"))["partitions"]
            assert partition["end_offset"] == 2

    play(story)
