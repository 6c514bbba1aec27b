"""Groups, transactions, topics and records over HTTP: what they show, and waits for named states."""

import asyncio
from typing import Any

from kohort.records.consumer_protocol import write_assignment
from kohort.records.values import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch
from tests.control.controlled import Stage, play
from tests.server.clients import Client, commit, with_coordinators


async def begun(stage: Stage, partitions: int = 2) -> Client:
    client = await stage.connect()
    await stage.control.take("POST", "/topics", {"name": "t", "partitions": partitions})
    await with_coordinators(client)
    return client


async def joined(client: Client) -> tuple[str, int]:
    """A member of the classic group `g`, up to its JoinGroup."""
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")
    asked = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = await client.ask(ApiKey.JOIN_GROUP, 3, asked)
    return answer.member_id, answer.generation_id


async def synced(client: Client, member: str, generation: int, *partitions: int) -> None:
    assigned = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=partitions)
    content = write_assignment(ConsumerProtocolAssignment(assigned_partitions=(assigned,), user_data=None))
    asked = m.SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        assignments=[m.SyncGroupRequestAssignment(member_id=member, assignment=content)],
    )
    assert (await client.ask(ApiKey.SYNC_GROUP, 3, asked)).error_code == 0


def test_a_wait_for_a_classic_group_ends_when_it_is_stable() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        absent = await stage.control.take("GET", "/groups/g")
        assert (absent["state"], absent["members"]) == ("absent", [])
        stable = asyncio.ensure_future(stage.control.take("GET", "/groups/g?wait=stable&members=1&topic=t&timeout=10"))
        member, generation = await joined(client)
        rebalancing = await stage.control.take("GET", "/groups/g?wait=completing_rebalance")
        assert (rebalancing["kind"], rebalancing["members"][0]["assignment"]) == ("classic", [])
        assert not stable.done()
        await synced(client, member, generation, 0, 1)
        (found,) = (await stable)["members"]
        assert (found["member_id"], found["assignment"]) == (member, [{"topic": "t", "partitions": [0, 1]}])
        listed = await stage.control.take("GET", "/groups")
        assert listed["groups"] == [{"group": "g", "kind": "classic", "state": "stable"}]
        await stage.control.take("GET", f"/groups/g?member={member}&topic=t&partition=1")
        late = await stage.control.ask("GET", "/groups/g?members=2&timeout=0.01")
        assert (late.status, late.body["state"]["state"]) == (409, "stable")
        assert late.body["detail"].startswith("the group 'g' is stable with 1 members after 0.01 s")

    play(story)


def test_an_assignment_that_lacks_a_partition_does_not_cover_the_topic() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await synced(client, *await joined(client), 0)
        assert (await stage.control.ask("GET", "/groups/g?wait=stable&topic=t&timeout=0")).status == 409
        assert (await stage.control.ask("GET", "/groups/g?topic=t&partition=1&timeout=0")).status == 409
        await stage.control.take("GET", "/groups/g?wait=stable&topic=t&partition=0")

    play(story)


def test_a_consumer_group_is_stable_when_its_members_have_their_target() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        beat = m.ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="m-1",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        assert answer.error_code == 0
        view = await stage.control.take("GET", "/groups/new?wait=stable&members=1&topic=t")
        assert (view["kind"], view["members"][0]["epoch"], view["epoch"]) == (
            "consumer",
            answer.member_epoch,
            view["epoch"],
        )
        assert view["members"][0]["assignment"] == [{"topic": "t", "partitions": [0, 1]}]

    play(story)


def test_offsets_and_lag() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        written = await stage.control.take(
            "POST", "/topics/t/records", {"records": [{"value": str(each)} for each in range(5)]}
        )
        assert written["records"] == [{"partition": 0, "offset": each} for each in range(5)]
        reached = asyncio.ensure_future(stage.control.take("GET", "/groups/g?topic=t&partition=0&offset=3"))
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(3))
        offset = {"topic": "t", "partition": 0, "offset": 3, "end_offset": 5, "lag": 2, "metadata": None}
        assert (await reached)["offsets"] == [offset]
        assert (await stage.control.ask("GET", "/groups/g?lag=0&timeout=0")).status == 409
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(5))
        assert (await stage.control.take("GET", "/groups/g?lag=0&topic=t&wait=empty"))["offsets"][0]["lag"] == 0

    play(story)


def test_a_transaction_goes_through_its_states() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        assert (await stage.control.take("GET", "/transactions/t"))["state"] == "absent"
        asked = m.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        producer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
        await stage.control.take("GET", "/transactions/t?wait=empty")
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
        view = await stage.control.take("GET", "/transactions/t?wait=ongoing")
        assert view["partitions"] == [{"topic": "t", "partitions": [0]}]
        end = m.EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        await client.ask(ApiKey.END_TXN, 3, end)
        ended = await stage.control.take("GET", "/transactions/t?wait=complete")
        assert ended["state"] == "complete_commit"
        wrong = await stage.control.ask("GET", "/transactions/t?wait=ongoin")
        assert (wrong.status, wrong.body["detail"].split("; ")[:2]) == (
            422,
            ["there is no state 'ongoin'", "did you mean ongoing?"],
        )

    play(story)


def test_topics_and_records_without_a_client() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        waits = asyncio.ensure_future(stage.control.take("GET", "/topics/u?wait=exists"))
        created = await stage.control.take(
            "POST", "/topics", {"name": "u", "partitions": 2, "configs": {"retention.ms": "1000"}, "scope": "one"}
        )
        assert [each["end_offset"] for each in created["partitions"]] == [0, 0]
        assert (await waits)["topic_id"] == created["topic_id"]
        assert (await stage.control.take("GET", "/topics"))["topics"] == [
            "__consumer_offsets",
            "__transaction_state",
            "t",
            "u",
        ]
        again = await stage.control.ask("POST", "/topics", {"name": "u"})
        assert (again.status, again.body["error"]) == (422, "TOPIC_ALREADY_EXISTS")
        records: list[dict[str, Any]] = [
            {"key": "k", "value": "ü", "headers": [{"key": "h", "value": "x"}], "partition": 1, "timestamp_ms": 7},
            {"value_base64": "/w==", "partition": 1},
            {"partition": 1},
        ]
        await stage.control.take("POST", "/topics/u/records", {"records": records})
        read = await stage.control.take("GET", "/topics/u/records?partition=1&wait=3")
        first, second, third = read["records"]
        assert {**records[0], "offset": 0} == first
        assert (second["value_base64"], second["offset"], "value" in third, read["next_offset"]) == (
            "/w==",
            1,
            False,
            3,
        )
        part = await stage.control.take("GET", "/topics/u/records?partition=1&offset=1&limit=1")
        assert ([each["offset"] for each in part["records"]], part["next_offset"]) == ([1], 2)
        for path, body, status in (
            ("/topics/u/records", {"records": [{"partition": 9}]}, 404),
            ("/topics/none/records", {"records": [{}]}, 404),
            ("/topics/u/records", {"records": [{"value": "x", "value_base64": ""}]}, 422),
            ("/topics/u/records", {"records": [{"value_base64": "?"}]}, 422),
        ):
            assert (await stage.control.ask("POST", path, body)).status == status
        assert (await stage.control.ask("GET", "/topics/none")).status == 404
        assert (await stage.control.take("DELETE", "/scopes/one"))["topics"] == ["u"]
        await stage.control.ask("GET", "/topics/u?wait=absent")
        assert (await stage.control.ask("DELETE", "/topics/u")).status == 204

    play(story)


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        client = await stage.connect()
        asked = m.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        producer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
        who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        for sequence, committed in ((0, False), (1, True)):
            add = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            while (
                (await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add))
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            ):
                pass
            data = m.ProduceRequestPartitionProduceData(
                index=0, records=batch(str(sequence).encode(), base_sequence=sequence, transactional=True, **who)
            )
            topic = m.ProduceRequestTopicProduceData(name="t", partition_data=[data])
            request = m.ProduceRequest(transactional_id="t", acks=-1, timeout_ms=5_000, topic_data=[topic])
            answer = await client.ask(ApiKey.PRODUCE, 9, request)
            assert answer.responses[0].partition_responses[0].error_code == 0
            await client.ask(ApiKey.END_TXN, 3, m.EndTxnRequest(transactional_id="t", committed=committed, **who))
            await stage.control.take("GET", "/transactions/t?wait=complete")
        every = await stage.control.take("GET", "/topics/t/records")
        assert [each["value"] for each in every["records"]] == ["0", "1"]
        read = await stage.control.take("GET", "/topics/t/records?isolation=read_committed")
        assert ([each["value"] for each in read["records"]], read["next_offset"]) == (["1"], 4)

    play(story)


def test_records_of_coordinators_are_decoded() -> None:
    async def story(stage: Stage) -> None:
        client = await begun(stage)
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(3))
        read = await stage.control.take("GET", "/topics/__consumer_offsets/records?wait=1")
        decoded = read["records"][0]["decoded"]
        assert (decoded["record_type"], decoded["key"]) == (
            "OffsetCommit",
            {"group": "g", "topic": "t", "partition": 0},
        )
        assert decoded["value"]["offset"] == 3

    play(story, offsets_topic_num_partitions="1")
