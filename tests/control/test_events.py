"""Events on demand, as raw clients see them."""

from typing import Any

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.control.controlled import Stage, play
from tests.control.test_faults import committed
from tests.control.test_states import begun, joined, synced
from tests.server.clients import Client


async def happens(stage: Stage, event: str, **body: Any) -> Any:
    return await stage.control.take("POST", f"/events/{event}", body)


async def heartbeat(client: Client, member: str, generation: int) -> int:
    beat = m.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    return int((await client.ask(ApiKey.HEARTBEAT, 3, beat)).error_code)


async def produced(client: Client, partition: int = 0) -> int:
    data = m.ProduceRequestPartitionProduceData(index=partition, records=batch(b"x"))
    topic = m.ProduceRequestTopicProduceData(name="t", partition_data=[data])
    request = m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    answer = await client.ask(ApiKey.PRODUCE, 9, request)
    return int(answer.responses[0].partition_responses[0].error_code)


async def consumer(client: Client, epoch: int = 0) -> Any:
    beat = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m-1",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)


def test_a_coordinator_is_away_until_it_is_loaded() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await synced(client, *(member := await joined(client)), 0)
        unloaded = await happens(stage, "unload_coordinator", group="g")
        assert unloaded["topic"] == "__consumer_offsets"
        assert await heartbeat(client, *member) == ErrorCode.NOT_COORDINATOR
        assert (await stage.control.ask("GET", "/groups/g?wait=stable&timeout=0")).status == 409
        await happens(stage, "load_coordinator", group="g")
        assert await heartbeat(client, *member) == 0
        await happens(stage, "move_coordinator", group="g")
        await happens(stage, "move_coordinator", transactional_id="t")
        assert await heartbeat(client, *member) == 0
        assert (await stage.control.ask("POST", "/events/move_coordinator", {})).status == 422

    play(story)


def test_a_member_of_a_classic_group_expires_or_is_removed() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        for event in ("expire_member", "remove_member"):
            member, generation = await joined(client)
            await synced(client, member, generation, 0)
            assert (await happens(stage, event, group="g", member="test"))["member_id"] == member
            await stage.control.take("GET", "/groups/g?wait=empty")
            assert await heartbeat(client, member, generation) == ErrorCode.UNKNOWN_MEMBER_ID
        unknown = await stage.control.ask("POST", "/events/expire_member", {"group": "g", "member": "x"})
        assert (unknown.status, unknown.body["detail"]) == (
            404,
            "there is no member 'x' in the group 'g', which is empty",
        )

    play(story)


def test_a_member_of_a_consumer_group_expires_or_is_removed() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        for event in ("expire_member", "remove_member"):
            answer = await consumer(client)
            await happens(stage, event, group="g", member="m-1")
            await stage.control.take("GET", "/groups/g?members=0")
            assert (await consumer(client, answer.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(story)


def test_a_rebalance_is_forced() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await synced(client, *(member := await joined(client)), 0)
        await happens(stage, "force_rebalance", group="g")
        assert await heartbeat(client, *member) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await stage.control.ask("POST", "/events/force_rebalance", {"group": "none"})).status == 404

    play(story)


def test_the_epoch_of_a_consumer_group_rises() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        first = await consumer(client)
        await happens(stage, "force_rebalance", group="g")
        assert (await stage.control.take("GET", "/groups/g"))["epoch"] == first.member_epoch + 1

    play(story)


def test_a_producer_is_fenced() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        asked = m.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        producer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
        fenced = await happens(stage, "fence_producer", transactional_id="t")
        assert (fenced["producer_id"], fenced["producer_epoch"]) == (producer.producer_id, producer.producer_epoch + 1)
        end = m.EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        assert (await client.ask(ApiKey.END_TXN, 3, end)).error_code == ErrorCode.PRODUCER_FENCED

    play(story)


def test_a_transaction_hangs() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        assert await produced(client) == 0
        hanging = await happens(stage, "hang_transaction", topic="t")
        assert hanging["offset"] == 1
        assert await produced(client) == 0
        wanted = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
        for isolation, offset in ((0, 3), (1, 1)):
            request = m.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[m.ListOffsetsTopic(name="t", partitions=[wanted])],
            )
            answer = await client.ask(ApiKey.LIST_OFFSETS, 6, request)
            assert answer.topics[0].partitions[0].offset == offset

    play(story)


def test_leader_epochs_and_leaders() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        before = (await stage.control.take("GET", "/topics/t"))["partitions"][0]["leader_epoch"]
        assert (await happens(stage, "raise_leader_epoch", topic="t"))["leader_epoch"] == before + 1
        assert (await stage.control.take("GET", "/topics/t"))["partitions"][0]["leader_epoch"] == before + 1
        await happens(stage, "remove_leader", topic="t")
        assert await produced(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        topics = [m.MetadataRequestTopic(name="t")]
        answer = await client.ask(ApiKey.METADATA, 9, m.MetadataRequest(topics=topics))
        codes = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
        assert codes == {0: ErrorCode.LEADER_NOT_AVAILABLE, 1: 0}
        await happens(stage, "change_leader", topic="t", broker=1)
        assert await produced(client) == 0
        alone = await stage.control.ask("POST", "/events/change_leader", {"topic": "t"})
        assert (alone.status, alone.body["type"]) == (409, "urn:kohort:problem:no-broker")
        for event in ("raise_leader_epoch", "change_leader", "take_offline", "hang_transaction"):
            answer = await stage.control.ask("POST", f"/events/{event}", {"topic": "none"})
            assert answer.status == 404

    play(story)


def test_a_log_fails_and_comes_back() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        assert await produced(client) == 0
        await happens(stage, "take_offline", topic="t")
        assert await produced(client) == ErrorCode.KAFKA_STORAGE_ERROR
        await happens(stage, "bring_online", topic="t")
        assert await produced(client) == 0

    play(story)


def test_a_full_disk_takes_coordinators_along() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        assert await committed(client, 1) == 0
        assert (await happens(stage, "fill_disk"))["partitions"] > 1
        assert await produced(client) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await committed(client, 2) == ErrorCode.NOT_COORDINATOR
        await happens(stage, "empty_disk")
        await stage.control.take("GET", "/groups/g?topic=t&offset=1")
        assert await committed(client, 3) == 0
        assert await produced(client) == 0

    play(story)


def test_brokers_stop_start_and_restart() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await happens(stage, "change_leader", topic="t", broker=1)
        assert (await happens(stage, "change_leader", topic="t"))["broker"] == 2
        assert await produced(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await happens(stage, "move_coordinator", group="g", broker=2))["broker"] == 2
        assert await committed(client, 1) == ErrorCode.NOT_COORDINATOR
        await happens(stage, "kill_broker", broker=2)
        overview = await stage.control.take("GET", "/")
        assert [each["is_running"] for each in overview["brokers"]] == [True, False]
        wrong = await stage.control.ask("POST", "/events/stop_broker", {"broker": 2})
        assert (wrong.status, wrong.body["detail"]) == (422, "broker 2 is stopped already")
        await happens(stage, "start_broker", broker=2)
        await happens(stage, "restart_broker", broker=1)
        assert await client.is_closed()
        again = await stage.connect()
        await again.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())

    play(story, brokers=2)


def test_the_only_broker_restarts() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await produced(client)
        await happens(stage, "restart_broker", broker=1)
        assert await client.is_closed()
        assert await produced(await stage.connect()) == 0

    play(story)
