"""Verification, share states, ends of partitions and producer ids between two nodes."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kohort.broker.transactions.producer_ids import BLOCK_SIZE
from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import SHARE_GROUP_STATE, TRANSACTION_STATE, TopicPartition
from kohort.server.peers import gathering as module
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.server.coordinators.test_transactions import new_producer
from tests.server.peers.fake_node import Asked, FakeNode
from tests.server.peers.two_nodes import Cluster, create, play

Answer = Any


def answer_of(ask: Callable[[Callable[[Answer], None]], None]) -> "asyncio.Future[Answer]":
    found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    ask(found.set_result)
    return found


def code(error: CoordinatorError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


async def with_fake(cluster: Cluster, *topics: str) -> FakeNode:
    node = FakeNode()
    cluster.world.endpoints[3] = await node.start()
    cluster.world.leaders |= dict.fromkeys(topics, 3)
    return node


# -- verification ------------------------------------------------------------------------------------------------


async def with_transaction(cluster: Cluster) -> tuple[int, int]:
    """Node 1 has the coordinator and the topic; a producer begins with partition 0."""
    client = await cluster.connect(1)
    await create(client, "t")
    producer_id, epoch = await new_producer(client, "x")
    topic = m.AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[topic],
    )
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    cluster.world.leaders[TRANSACTION_STATE] = 1
    return producer_id, epoch


def test_a_transaction_is_verified_at_its_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        producer_id, epoch = await with_transaction(cluster)

        def verify(index: int, producer: Producer) -> "asyncio.Future[Answer]":
            return answer_of(
                lambda done: cluster[2].broker.verification.verify(TopicPartition("t", index), producer, done)
            )

        known = Producer("x", producer_id, epoch)
        asked = [
            verify(0, known),
            verify(0, known),  # the same twice in one turn
            verify(0, Producer("x", producer_id, epoch + 1)),
            verify(0, Producer("x", producer_id + 1, epoch)),
            verify(0, Producer("y", producer_id, epoch)),
            verify(1, known),  # no such partition, as the coordinator sees it
        ]
        assert [code(await each) for each in asked] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ]
        client = await cluster.connect(1)
        await create(client, "u")
        other = TopicPartition("u", 0)
        coordinator = cluster[2].broker.verification
        assert code(await answer_of(lambda done: coordinator.verify(other, known, done))) == (
            ErrorCode.TRANSACTION_ABORTABLE
        )
        adds = Producer("x", producer_id, epoch, adds_partition=True)
        for producer in (adds, known):
            assert await answer_of(lambda done, each=producer: coordinator.verify(other, each, done)) is None  # type: ignore[misc]

    play(story)


def test_a_produce_to_a_leader_asks_the_coordinator_on_another_node() -> None:
    """The way of a client: its transaction is known at node 1, and its data goes to node 2."""

    async def story(cluster: Cluster) -> None:
        producer_id, epoch = await with_transaction(cluster)
        cluster.world.controller = 2
        client = await cluster.connect(2)
        await create(client, "t")
        records = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        request = produce_request("t", {0: records}, transactional_id="x")
        answer = await client.ask(ApiKey.PRODUCE, 9, request)
        assert answer.responses[0].partition_responses[0].error_code == 0
        stranger = batch(b"v", producer_id=producer_id + 5, producer_epoch=0, base_sequence=0, transactional=True)
        refused = await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: stranger}, transactional_id="x"))
        assert refused.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    play(story)


def test_a_lost_verification_is_a_network_error_and_a_refused_one_ends_the_transaction() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster, TRANSACTION_STATE)
        producer = Producer("x", 1, 0)

        def verify() -> "asyncio.Future[Answer]":
            place = TopicPartition("t", 0)
            return answer_of(lambda done: cluster[1].broker.verification.verify(place, producer, done))

        lost = verify()
        (await node.asked.get()).cut()
        assert code(await lost) is ErrorCode.NETWORK_EXCEPTION
        refused = verify()
        asked = await node.asked.get()
        assert (asked.api_key, asked.version) == (ApiKey.ADD_PARTITIONS_TO_TXN, 5)
        assert asked.request.transactions[0].verify_only
        asked.answer(m.AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        assert code(await refused) is ErrorCode.INVALID_TXN_STATE
        node.close()
        assert code(await verify()) is ErrorCode.NETWORK_EXCEPTION

    play(story)


# -- share states ------------------------------------------------------------------------------------------------


def test_share_states_are_kept_at_their_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        topic_id = (await create(client, "t")).topics[0].topic_id
        keys = [SharePartitionKey(group, topic_id, 0) for group in ("g", "h")]
        find = m.FindCoordinatorRequest(
            key_type=2, coordinator_keys=[f"{key.group_id}:AAAAAAAAAAAAAAAAAAAAAQ:0" for key in keys]
        )
        while any(each.error_code for each in (await client.ask(ApiKey.FIND_COORDINATOR, 6, find)).coordinators):
            pass
        cluster.world.leaders[SHARE_GROUP_STATE] = 1
        persister = cluster[2].peering.persister

        async def settled(ask: Callable[[Callable[[Answer], None]], None]) -> Answer:
            """The answer once the coordinator has loaded."""
            while isinstance(answer := await answer_of(ask), CoordinatorError) and answer.code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ):
                pass
            return answer

        first, second = keys
        for key in keys:
            assert await settled(lambda done, each=key: persister.initialize(each, 1, 5, done)) is None  # type: ignore[misc]
        read = await settled(lambda done: persister.read(first, 3, done))
        assert read == SharePartitionState(1, 3, 5, -1, [])
        changed = SharePartitionState(1, 3, 6, 1, [StateBatch(6, 8, 2, 1), StateBatch(9, 9, 0, 2)])
        writes = [answer_of(lambda done: persister.write(first, changed, done)) for _ in range(2)]
        assert [await each for each in writes] == [None, None]
        old = await settled(lambda done: persister.write(first, changed._replace(leader_epoch=2), done))
        assert code(old) is ErrorCode.FENCED_LEADER_EPOCH
        assert old.message
        assert await settled(lambda done: persister.read(first, 3, done)) == SharePartitionState(
            1, 3, 6, -1, [StateBatch(6, 8, 2, 1), StateBatch(9, 9, 0, 2)]
        )
        summary = await settled(lambda done: persister.summary(first, done))
        assert summary == SharePartitionState(1, 3, 6, 1)
        assert await settled(lambda done: persister.delete(first, done)) is None
        assert code(await settled(lambda done: persister.read(first, 3, done))) is ErrorCode.INVALID_REQUEST
        assert (await settled(lambda done: persister.summary(second, done))).state_epoch == 1

    play(story)


def test_share_states_of_a_turn_are_one_request_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEER_ELEMENTS_MAX", 4)

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster, SHARE_GROUP_STATE)
        persister = cluster[1].peering.persister
        state = SharePartitionState(0, 0, 0, 0, [StateBatch(0, 0, 0, 1)])
        topic = UUID(int=7)
        answers = [
            answer_of(lambda done, g=group, i=index: persister.write(SharePartitionKey(g, topic, i), state, done))  # type: ignore[misc]
            for group, index in (("g", 0), ("g", 1), ("g", 2), ("h", 0))
        ]
        seen = []
        for _ in range(3):
            asked: Asked = await node.asked.get()
            partitions = [each.partition for each in asked.request.topics[0].partitions]
            seen.append((asked.request.group_id, partitions))
            asked.cut()
        assert sorted(seen) == [("g", [0, 1]), ("g", [2]), ("h", [0])]
        assert {code(await each) for each in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        node.close()

    play(story)


# -- ends of partitions ------------------------------------------------------------------------------------------


def test_the_end_of_a_partition_is_that_at_its_leader() -> None:
    async def story(cluster: Cluster) -> None:
        for node_id in (1, 2):
            cluster.world.controller = node_id
            client = await cluster.connect(node_id)
            await create(client, f"t{node_id}")
            cluster.world.leaders[f"t{node_id}"] = node_id
            await client.ask(ApiKey.PRODUCE, 9, produce_request(f"t{node_id}", {0: batch(*[b"v"] * node_id)}))
        offsets = cluster[1].broker.latest_offsets
        places = [TopicPartition(*each) for each in (("t1", 0), ("t2", 0), ("t2", 0), ("t2", 1), ("t3", 0))]
        found = [await answer_of(lambda done, at=place: offsets.latest_offset(at, done)) for place in places]  # type: ignore[misc]
        assert found[:3] == [1, 2, 2]
        assert [each.code for each in found[3:]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        together = [answer_of(lambda done, at=place: offsets.latest_offset(at, done)) for place in places[:3]]  # type: ignore[misc]
        assert [await each for each in together] == [1, 2, 2]
        del cluster.world.endpoints[2]
        lost = await answer_of(lambda done: offsets.latest_offset(places[1], done))
        assert lost.code is ErrorCode.NETWORK_EXCEPTION

    play(story)


# -- records of the node itself ----------------------------------------------------------------------------------


def test_dead_letters_are_produced_where_the_leader_is() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        await create(client, "letters")
        request = produce_request("letters", {0: batch(b"v")})
        for node_id in (1, 2):
            answer = await answer_of(partial(cluster[node_id].broker.produce_at, 1, request))
            assert answer.responses[0].partition_responses[0].error_code == 0
        partition = cluster[1].broker.partitions.find("letters", 0)
        assert partition is not None
        assert partition.log.end_offset == 2
        node = await with_fake(cluster)
        lost = answer_of(partial(cluster[2].broker.produce_at, 3, request))
        (await node.asked.get()).cut()
        (topic,) = (await lost).responses
        assert (topic.name, topic.partition_responses[0].error_code) == ("letters", ErrorCode.REQUEST_TIMED_OUT)
        node.close()
        unsent = await answer_of(partial(cluster[2].broker.produce_at, 3, request))
        assert unsent.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story)


# -- producer ids ------------------------------------------------------------------------------------------------


def test_no_two_nodes_have_a_producer_id_in_common() -> None:
    async def story(cluster: Cluster) -> None:
        taken: list[int] = []
        for node_id in (1, 2, 1):
            ids = cluster[node_id].broker.producer_ids
            assert await answer_of(ids.when_available) is ErrorCode.NONE
            while (producer_id := ids.take()) is not None:
                taken.append(producer_id)
        assert len(taken) == len(set(taken)) >= 3 * BLOCK_SIZE
        assert cluster[1].broker.catalog.next_producer_id >= len(taken)
        assert cluster[2].broker.catalog.next_producer_id == 0

    play(story)


def test_a_block_is_asked_of_the_next_controller_and_none_without_an_answer() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        cluster.world.controller = 3
        ids = cluster[2].broker.producer_ids
        waiting = answer_of(ids.when_available)
        asked = await node.asked.get()
        assert (asked.api_key, asked.request.broker_id) == (ApiKey.ALLOCATE_PRODUCER_IDS, 2)
        cluster.world.controller = 1
        asked.answer(m.AllocateProducerIdsResponse(error_code=int(ErrorCode.NOT_CONTROLLER)))
        assert await waiting is ErrorCode.NONE
        assert cluster[1].broker.catalog.next_producer_id == BLOCK_SIZE
        for _ in range(BLOCK_SIZE):
            ids.take()
        cluster.world.controller = 3
        while ids.take() is not None:  # a block that was reserved in time
            pass
        lost = answer_of(ids.when_available)
        (await node.asked.get()).cut()
        assert await lost is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        short = answer_of(ids.when_available)
        (await node.asked.get()).answer(m.AllocateProducerIdsResponse(producer_id_start=9_000, producer_id_len=1))
        assert await short is ErrorCode.UNKNOWN_SERVER_ERROR
        node.close()

    play(story)


def test_only_the_controller_gives_blocks() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        answer = await client.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, m.AllocateProducerIdsRequest(broker_id=1))
        assert (answer.error_code, answer.producer_id_len) == (ErrorCode.NOT_CONTROLLER, 0)
        assert cluster[2].broker.catalog.next_producer_id == 0

    play(story)
