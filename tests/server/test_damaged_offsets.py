"""One partition of `__consumer_offsets` that cannot be read: its groups have no coordinator, and all others go on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kohort.broker.configs import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.test_connection import SECONDS_MAX, Client, commit, with_topic


def play(data_dir: Path, story: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        config = BrokerConfig({"offsets.topic.num.partitions": "2"})
        node = Node(Settings(port=0, data_dir=data_dir, config=config), asyncio.get_running_loop())
        host, port = await node.start()
        client = Client(*await asyncio.open_connection(host, port))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await story(client)
        finally:
            await node.stop()
            client.writer.close()

    asyncio.run(run())


async def commit_code(client: Client, group_id: str) -> int:
    asked = commit(7)
    request = m.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=asked.topics)
    answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, request)
    code: int = answer.topics[0].partitions[0].error_code
    return code


GROUPS = ("g", "h")
"""One in each partition: `g` (103) in the second, `h` in the first."""


def test_a_broker_starts_without_one_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fill(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]

    async def look(client: Client) -> None:
        codes = [await commit_code(client, group_id) for group_id in GROUPS]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]

    play(tmp_path, fill)
    (tmp_path / f"{CONSUMER_OFFSETS}-0" / "7.log").write_bytes(b"")
    with caplog.at_level(logging.ERROR, "kohort.server"):
        play(tmp_path, look)
    assert "groups.not_loaded partition=0" in caplog.text
    assert "move it away" in caplog.text
