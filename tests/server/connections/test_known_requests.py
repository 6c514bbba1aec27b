"""A request that a connection sends again byte by byte is answered as the first one, however it arrives."""

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.broker.ports import Handler
from kohort.model.errors import ErrorCode
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.templates import FRAMES_MAX
from tests.server.clients import Client, commit, play, served, with_topic

HEARTBEAT = (ApiKey.HEARTBEAT, 4)
FETCH = (ApiKey.OFFSET_FETCH, 9)
Story = Callable[[Client, m.HeartbeatRequest, Node], Awaitable[None]]


async def member_of(client: Client, group: str = "g") -> m.HeartbeatRequest:
    """Join a group, alone; its heartbeat."""
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    refused = await client.ask(ApiKey.JOIN_GROUP, 5, m.JoinGroupRequest(**fields))
    joined = await client.ask(ApiKey.JOIN_GROUP, 5, m.JoinGroupRequest(**fields, member_id=refused.member_id))
    assignment = m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = m.SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    assert (await client.ask(ApiKey.SYNC_GROUP, 3, sync)).error_code == 0
    return m.HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def tell(story: Story) -> None:
    """Run a story of a member whose connection knows its heartbeat."""

    async def from_start(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        beat = await member_of(client)
        for _ in range(3):
            assert (await client.ask(*HEARTBEAT, beat)).error_code == 0
        (connection,) = served(node)
        assert len(connection._templates.frames) == 1
        await story(client, beat, node)

    play(from_start)


@pytest.mark.parametrize("correlation_id", [0, 1, 0x7FFFFFFF, -1, -0x80000000])
def test_the_answer_has_the_correlation_id_of_its_request(correlation_id: int) -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, _node: Node) -> None:
        client.writer.write(request_encoder(*HEARTBEAT)(correlation_id, "test", beat))
        assert (await client.receive(*HEARTBEAT)) == (correlation_id, m.HeartbeatResponse())

    tell(story)


def test_each_is_counted_and_keeps_the_connection_in_use() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        (dispatch,) = node._dispatches.values()
        route = dispatch.routes[HEARTBEAT]
        (connection,) = served(node)
        before, connection.was_used = route.requests, False
        assert (await client.ask(*HEARTBEAT, beat)).error_code == 0
        assert (route.requests, connection.was_used) == (before + 1, True)

    tell(story)


def test_several_in_one_chunk_and_one_in_pieces_are_answered_in_order() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, _node: Node) -> None:
        sent = [request_encoder(*HEARTBEAT)(number, "test", beat) for number in range(6)]
        client.writer.write(b"".join(sent[:3]) + sent[3][:9])
        for number in range(3):
            assert (await client.receive(*HEARTBEAT))[0] == number
        client.writer.write(sent[3][9:])
        assert (await client.receive(*HEARTBEAT))[0] == 3
        client.writer.write(sent[4] + sent[5])
        assert [(await client.receive(*HEARTBEAT))[0] for _ in range(2)] == [4, 5]

    tell(story)


def test_another_size_before_the_same_bytes_is_another_frame() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, _node: Node) -> None:
        frame = request_encoder(*HEARTBEAT)(1, "test", beat)
        more = struct.pack(">i", len(frame) - 4 + 2) + frame[4:]
        client.writer.write(more)
        await client.writer.drain()
        client.writer.write(b"\0\0")
        assert (await client.receive(*HEARTBEAT)) == (1, m.HeartbeatResponse())

    tell(story)


def requests_of(node: Node) -> int:
    """How many heartbeats were read so far."""
    (dispatch,) = node._dispatches.values()
    return dispatch.routes[HEARTBEAT].requests


def test_the_same_bytes_inside_of_another_frame_are_no_request() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        (connection,) = served(node)
        before = requests_of(node)
        frame = request_encoder(*HEARTBEAT)(1, "test", beat)
        connection.data_received(struct.pack(">ihhih", 10 + len(frame), ApiKey.API_VERSIONS, 0, 7, -1))
        connection.data_received(frame)
        assert requests_of(node) == before
        assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == 7

    tell(story)


def test_it_waits_behind_a_request_that_is_not_answered() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        first, second = await connect(), await connect()
        await with_topic(first)
        beat, other = await member_of(first), await member_of(second, "h")
        for _ in range(3):
            assert (await first.ask(*HEARTBEAT, beat)).error_code == 0
        protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = m.JoinGroupRequest(
            group_id="h",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joins = first.send(ApiKey.JOIN_GROUP, 5, join)
        assert (await second.ask(*HEARTBEAT, other)).error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
        while len(requested := [each for each in served(node) if each.in_flight]) != 1:
            await second.ask(*HEARTBEAT, other)
        (connection,) = requested
        before = requests_of(node)
        connection.data_received(request_encoder(*HEARTBEAT)(9, "test", beat))
        assert requests_of(node) == before
        again = m.JoinGroupRequest(
            group_id="h",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=other.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        second.send(ApiKey.JOIN_GROUP, 5, again)
        assert (await first.receive(ApiKey.JOIN_GROUP, 5))[0] == joins
        assert (await first.receive(*HEARTBEAT))[0] == 9

    play(story)


def test_it_waits_while_its_client_is_throttled() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        (connection,) = served(node)
        before = requests_of(node)
        connection.throttle(1)
        connection.data_received(request_encoder(*HEARTBEAT)(9, "test", beat))
        assert requests_of(node) == before
        assert (await client.receive(*HEARTBEAT))[0] == 9

    tell(story)


def test_it_waits_behind_requests_that_wait() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        (connection,) = served(node)
        before = requests_of(node)
        first, second = (request_encoder(*HEARTBEAT)(number, "test", beat) for number in (8, 9))
        connection._waiting.append(first[4:])
        connection.data_received(second)
        assert requests_of(node) == before
        connection._continue()
        assert [(await client.receive(*HEARTBEAT))[0] for _ in range(2)] == [8, 9]

    tell(story)


def test_after_the_member_has_left_its_heartbeat_is_refused() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, _node: Node) -> None:
        identity = m.LeaveGroupRequestMemberIdentity(member_id=beat.member_id)
        await client.ask(ApiKey.LEAVE_GROUP, 4, m.LeaveGroupRequest(group_id="g", members=[identity]))
        for _ in range(3):
            assert (await client.ask(*HEARTBEAT, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    tell(story)


def test_a_wrapper_of_the_handler_that_comes_later_gets_the_decoded_request() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        def wrap(_handler: Handler) -> Handler:
            def handle(request: Any, _context: Any, _reply: Any) -> m.HeartbeatResponse:
                assert request == beat
                return m.HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))

            return handle

        (dispatch,) = node._dispatches.values()
        dispatch.intercept_by(lambda _api_key: wrap)
        assert (await client.ask(*HEARTBEAT, beat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        dispatch.intercept_by(lambda _api_key: None)
        assert (await client.ask(*HEARTBEAT, beat)).error_code == 0

    tell(story)


def test_many_client_ids_of_one_connection_are_not_all_known() -> None:
    async def story(client: Client, beat: m.HeartbeatRequest, node: Node) -> None:
        (connection,) = served(node)
        for number in range(FRAMES_MAX + 50):
            client.writer.write(request_encoder(*HEARTBEAT)(number, f"test-{number}", beat))
            assert (await client.receive(*HEARTBEAT))[0] == number
            assert len(connection._templates.frames) <= FRAMES_MAX

    tell(story)


def test_a_repeated_fetch_of_offsets_sees_each_commit() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        topic = m.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        fetch = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=[topic])])
        for number in range(6):
            assert (await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(number))).topics[0].partitions[0].error_code == 0
            found = await client.ask(*FETCH, fetch)
            assert found.groups[0].topics[0].partitions[0].committed_offset == number
        (connection,) = served(node)
        assert len(connection._templates.frames) == 2

    play(story)
