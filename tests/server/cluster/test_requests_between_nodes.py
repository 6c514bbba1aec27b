"""What nodes on one store ask of each other: transactions over several nodes, changes of configurations, named topics."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.ids import TRANSACTION_STATE
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.server.cluster.nodes import Nodes, play, until
from tests.storage.database import Database

PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    made.make_store()
    yield made
    made.close()


async def coordinator_of(nodes: Nodes, transactional_id: str) -> int:
    """The node of a transaction's coordinator; the internal topic is made by the controller."""
    request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    while True:
        found = (await nodes.ask(1, ApiKey.FIND_COORDINATOR, 4, request)).coordinators[0]
        if not found.error_code:
            return int(found.node_id)
        await asyncio.sleep(0.01)


async def repeated(nodes: Nodes, node_id: int, api: ApiKey, version: int, request: Any, code: Any) -> Any:
    """An answer once its error is none that passes."""
    while code(answer := await nodes.ask(node_id, api, version, request)) in PASSING:
        await asyncio.sleep(0.01)
    return answer


async def last_stable(nodes: Nodes, topic: str, index: int, leader: int) -> int:
    partition = m.ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = m.ListOffsetsRequest(isolation_level=1, topics=[m.ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = await nodes.ask(leader, ApiKey.LIST_OFFSETS, 7, request)
    return int(answer.topics[0].partitions[0].offset)


def test_a_transaction_spans_the_nodes(database: Database) -> None:
    """Its id is of a block of the controller, its partitions are added by their leaders, its markers are written by them."""

    async def story(nodes: Nodes) -> None:
        for node_id in (1, 2):
            await nodes.start(node_id)
        assert await nodes.create_topic(1, "t", 2) == 0
        leaders = nodes.leaders(1, "t")
        assert sorted(leaders) == [1, 2]
        names = {await coordinator_of(nodes, name): name for name in ("a", "b", "c", "d", "e", "f")}
        assert sorted(names) == [1, 2]
        ids = set()
        for coordinator, name in names.items():
            begin = m.InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
            producer = await repeated(
                nodes, coordinator, ApiKey.INIT_PRODUCER_ID, 5, begin, lambda answer: answer.error_code
            )
            assert producer.error_code == 0
            ids.add(producer.producer_id)
            before = [await last_stable(nodes, "t", index, leader) for index, leader in enumerate(leaders)]
            for index, leader in enumerate(leaders):
                records = batch(
                    b"v",
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=0,
                    transactional=True,
                )
                request = produce_request("t", {index: records}, transactional_id=name, timeout_ms=10_000)
                answer = await repeated(
                    nodes,
                    leader,
                    ApiKey.PRODUCE,
                    12,
                    request,
                    lambda answer: answer.responses[0].partition_responses[0].error_code,
                )
                assert answer.responses[0].partition_responses[0].error_code == 0
            end = m.EndTxnRequest(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                committed=True,
            )
            ended = await repeated(nodes, coordinator, ApiKey.END_TXN, 5, end, lambda answer: answer.error_code)
            assert ended.error_code == 0
            for index, leader in enumerate(leaders):
                while await last_stable(nodes, "t", index, leader) < before[index] + 2:  # the record and the marker
                    await asyncio.sleep(0.005)
        assert len(ids) == 2
        assert TRANSACTION_STATE in [topic.name for topic in nodes.nodes[2].broker.catalog.topics()]

    play(database, story)


def test_a_node_checks_its_own_configuration_with_its_own_values(database: Database) -> None:
    """As in Kafka: the controller has other ones."""

    def threads(node_id: int, count: int) -> m.AlterConfigsRequest:
        config = m.AlterConfigsRequestAlterableConfig(name="num.io.threads", value=str(count))
        resource = m.AlterConfigsRequestAlterConfigsResource(
            resource_type=4, resource_name=str(node_id), configs=[config]
        )
        return m.AlterConfigsRequest(resources=[resource])

    async def story(nodes: Nodes) -> None:
        await nodes.start(1)
        await nodes.start(2, {"num.io.threads": "12"})
        assert nodes.controller == 1
        for at, node_id, count, message in (
            (2, 2, 20, None),
            (
                2,
                2,
                5,
                "Dynamic thread count update validation failed for num.io.threads=5, value should be at least half",
            ),
            (2, 1, 8, "Unexpected broker id, expected 2, but received 1"),
            (1, 2, 20, "Unexpected broker id, expected 1, but received 2"),
            (1, 1, 20, "value should not be greater than double the current value 8"),
        ):
            answer = (await nodes.ask(at, ApiKey.ALTER_CONFIGS, 1, threads(node_id, count))).responses[0]
            assert answer.error_code == (ErrorCode.INVALID_REQUEST if message else 0)
            assert (message or "") in (answer.error_message or "")
        found = [node.broker.config.get_int("num.io.threads") for node in nodes.nodes.values()]
        assert found == [8, 20]

    play(database, story)


def test_a_node_changes_its_own_configuration_and_names_topics_through_the_controller(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        for node_id in (1, 2):
            await nodes.start(node_id)
        follower = next(node_id for node_id in nodes.nodes if node_id != nodes.controller)
        change = m.IncrementalAlterConfigsRequestAlterableConfig(name="max.connections", config_operation=0, value="77")
        resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=4, resource_name=str(follower), configs=[change]
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])
        answer = await nodes.ask(follower, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert [(one.error_code, one.error_message) for one in answer.responses] == [(0, None)]
        # The node that was asked has it already, and no other node has it.
        found = {node_id: node.broker.config.get_int("max.connections") for node_id, node in nodes.nodes.items()}
        assert found == {nodes.controller: (1 << 31) - 1, follower: 77}
        unknown = m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=4, resource_name="9", configs=[change]
        )
        request = m.IncrementalAlterConfigsRequest(resources=[unknown])
        refused = await nodes.ask(follower, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST
        named = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="named")], allow_auto_topic_creation=True)
        await nodes.ask(follower, ApiKey.METADATA, 12, named)
        for node in nodes.nodes.values():
            await until(lambda node=node: node.broker.catalog.topic("named") is not None)  # type: ignore[misc]

    play(database, story)
