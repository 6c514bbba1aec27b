"""Transaction markers to partitions of other nodes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.server.peers import gathering as module
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.peers.fake_node import Asked, FakeNode
from tests.server.peers.two_nodes import Cluster, create, play

COMMIT = EndTransaction(7, 0, 3, True, 2)
ABORT = EndTransaction(8, 1, 3, False, 0)


def write(cluster: Cluster, wanted: Sequence[tuple[EndTransaction, str, int]]) -> "list[asyncio.Future[ErrorCode]]":
    """Have node 1 write markers in one turn."""
    codes = []
    for end, topic, index in wanted:
        code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        cluster[1].broker.markers.write(TopicPartition(topic, index), end, code.set_result)
        codes.append(code)
    return codes


def states(cluster: Cluster, node_id: int, topic: str, index: int) -> dict[int, tuple[int, int]]:
    """By producer of a partition: its epoch, and the epoch of its coordinator."""
    partition = cluster[node_id].broker.partitions.find(topic, index)
    assert partition is not None
    states = partition.log.producers.states
    return {producer_id: (state.producer_epoch, state.coordinator_epoch) for producer_id, state in states.items()}


def test_a_marker_is_written_where_the_leader_is() -> None:
    async def story(cluster: Cluster) -> None:
        for node_id, name in ((1, "here"), (2, "there")):
            cluster.world.controller = node_id
            await create(await cluster.connect(node_id), name)
            cluster.world.leaders[name] = node_id
        codes = write(cluster, [(COMMIT, "here", 0), (COMMIT, "there", 0), (ABORT, "there", 0), (COMMIT, "there", 1)])
        assert [await code for code in codes] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert states(cluster, 1, "here", 0) == {7: (0, 3)}
        assert states(cluster, 2, "there", 0) == {7: (0, 3), 8: (1, 3)}
        fenced = EndTransaction(7, 0, 2, True, 2)
        (code,) = write(cluster, [(fenced, "there", 0)])
        assert await code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    play(story)


def test_a_partition_without_a_leader_is_asked_for_here() -> None:
    async def story(cluster: Cluster) -> None:
        (code,) = write(cluster, [(COMMIT, "nowhere", 0)])
        assert await code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(story)


async def with_fake(cluster: Cluster) -> FakeNode:
    """Let a fake node lead the topics `a` and `b` as node 3."""
    node = FakeNode()
    cluster.world.endpoints[3] = await node.start()
    cluster.world.leaders |= {"a": 3, "b": 3}
    return node


def markers_of(asked: Asked) -> list[tuple[int, bool, list[tuple[str, list[int]]]]]:
    assert asked.api_key is ApiKey.WRITE_TXN_MARKERS
    return [
        (one.producer_id, one.transaction_result, [(topic.name, list(topic.partition_indexes)) for topic in one.topics])
        for one in asked.request.markers
    ]


def answer(asked: Asked, code: int, *, leave_out: Sequence[tuple[str, int]] = ()) -> None:
    asked.answer(
        m.WriteTxnMarkersResponse(
            markers=[
                m.WriteTxnMarkersResponseWritableTxnMarkerResult(
                    producer_id=one.producer_id,
                    topics=[
                        m.WriteTxnMarkersResponseWritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                m.WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                                if (topic.name, index) not in leave_out
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in asked.request.markers
            ]
        )
    )


def test_the_markers_of_a_turn_are_one_request() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        codes = write(cluster, [(COMMIT, "a", 0), (ABORT, "a", 0), (COMMIT, "b", 1), (COMMIT, "a", 2)])
        asked = await node.asked.get()
        assert markers_of(asked) == [(7, True, [("a", [0, 2]), ("b", [1])]), (8, False, [("a", [0])])]
        (first, second) = asked.request.markers
        assert (first.producer_epoch, first.coordinator_epoch, first.transaction_version) == (0, 3, 2)
        assert (second.producer_epoch, second.coordinator_epoch, second.transaction_version) == (1, 3, 0)
        answer(asked, ErrorCode.NOT_ENOUGH_REPLICAS, leave_out=[("b", 1)])
        assert [await code for code in codes] == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ]
        assert node.asked.empty()
        node.close()

    play(story)


def test_two_ends_of_a_producer_in_one_partition_are_two_requests() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        later = EndTransaction(7, 1, 3, False, 2)
        codes = write(cluster, [(COMMIT, "a", 0), (later, "a", 0)])
        for number, code in enumerate((ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)):
            asked = await node.asked.get()
            assert markers_of(asked) == [(7, not number, [("a", [0])])]
            answer(asked, code)
            assert await codes[number] is code
        node.close()

    play(story)


def test_a_request_has_a_bounded_number_of_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PEER_ELEMENTS_MAX", 2)

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        codes = write(cluster, [(COMMIT, "a", index) for index in range(5)])
        for indexes in ([0, 1], [2, 3], [4]):
            asked = await node.asked.get()
            assert markers_of(asked) == [(7, True, [("a", indexes)])]
            answer(asked, 0)
        assert [await code for code in codes] == [0] * 5
        node.close()

    play(story)


def test_a_lost_answer_and_an_unreachable_leader_are_tried_again_by_the_sender() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        (code,) = write(cluster, [(COMMIT, "a", 0)])
        (await node.asked.get()).cut()
        assert await code is ErrorCode.REQUEST_TIMED_OUT
        node.close()
        (code,) = write(cluster, [(COMMIT, "a", 0)])
        assert await code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        del cluster.world.endpoints[3]
        (code,) = write(cluster, [(COMMIT, "a", 0)])
        assert await code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story)


def test_a_leader_that_stops_loses_the_markers_under_way() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        (code,) = write(cluster, [(COMMIT, "a", 0)])
        hanging: Any = await node.asked.get()
        cluster[1].peering.refresh()
        assert not code.done()
        del cluster.world.endpoints[3]
        cluster[1].peering.refresh()
        assert await code is ErrorCode.REQUEST_TIMED_OUT
        assert hanging.api_key is ApiKey.WRITE_TXN_MARKERS
        node.close()

    play(story)
