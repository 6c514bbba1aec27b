"""Strings at the limit of the protocol: longer ones close the connection, and every reply to the longest can be read."""

from collections.abc import Awaitable, Callable

import pytest

from kohort.model.limits import STRING_BYTES_MAX
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.primitives import cut_text
from tests.server.clients import Client, play, with_topic
from tests.server.requests.worst_requests import Longest, one_byte_longer

Connect = Callable[[], Awaitable[Client]]


def test_a_longer_string_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def story(_node: Node, connect: Connect) -> None:
        other, client = await connect(), await connect()
        client.writer.write(one_byte_longer(Longest(ApiKey.API_VERSIONS, ("client_software_name",)).frame()))
        assert await client.is_closed()
        assert (await other.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0

    play(story)
    assert "client_software_name has a length of 32768" in caplog.text


def test_the_member_id_of_a_client_with_a_long_id_can_be_answered() -> None:
    async def story(_node: Node, connect: Connect) -> None:
        client = await connect()
        await with_topic(client)
        protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = m.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        for version in 4, 9:
            client.writer.write(request_encoder(ApiKey.JOIN_GROUP, version)(1, "é" * (STRING_BYTES_MAX // 2), request))
            _, response = await client.receive(ApiKey.JOIN_GROUP, version)
            assert response.error_code == 79
            assert STRING_BYTES_MAX - 2 < len(response.member_id.encode()) <= STRING_BYTES_MAX

    play(story)


@pytest.mark.parametrize("version", [4, 7])
def test_a_message_that_repeats_a_long_name_is_cut(version: int) -> None:
    async def story(_node: Node, connect: Connect) -> None:
        client = await connect()
        topic = m.CreateTopicsRequestCreatableTopic(name="/" * STRING_BYTES_MAX, num_partitions=1, replication_factor=1)
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        (answer,) = (await client.ask(ApiKey.CREATE_TOPICS, version, request)).topics
        assert answer.error_code == 17
        assert len(answer.error_message.encode()) <= STRING_BYTES_MAX

    play(story)


def test_a_text_is_cut_between_characters() -> None:
    assert cut_text("aé", 3) == "aé"
    assert cut_text("aé", 2) == "a"
    assert cut_text("a😀b", 5) == "a😀"
