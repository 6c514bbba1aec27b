"""
One partition of `__consumer_offsets` that cannot be read, or whose disk fails: its groups have no coordinator, and all others
go on.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.faulty_files import FaultyFiles, fail_on
from tests.server.clients import SECONDS_MAX, Client, commit, with_topic


def play(data_dir: Path, story: Callable[[Client], Awaitable[None]], **settings: str) -> None:
    explicit = {"offsets.topic.num.partitions": "2"} | {key.replace("_", "."): value for key, value in settings.items()}

    async def run() -> None:
        config = BrokerConfig(explicit)
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
    """The code of a commit when the partition of its group is loaded."""
    asked = commit(7)
    request = m.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=asked.topics)
    code: int = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, request)
        code = answer.topics[0].partitions[0].error_code
    return code


async def found_codes(client: Client) -> list[int]:
    found = await client.ask(ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(coordinator_keys=list(GROUPS)))
    return [one.error_code for one in found.coordinators]


GROUPS = ("g", "h")
"""One in each partition: `g` (103) in the second, `h` in the first, as `b`."""


def test_a_broker_starts_without_one_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fill(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]

    async def look(client: Client) -> None:
        codes = [await commit_code(client, group_id) for group_id in GROUPS]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
        assert await found_codes(client) == [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]

    play(tmp_path, fill)
    (tmp_path / f"{CONSUMER_OFFSETS}-0" / "7.log").write_bytes(b"")
    with caplog.at_level(logging.ERROR, "kohort.server"):
        play(tmp_path, look)
    assert "coordinator.not_loaded partition=__consumer_offsets-0" in caplog.text
    assert "move it away" in caplog.text


def test_a_partition_that_could_not_be_opened_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Here a file without an offset as its name is moved away; process limits on files are another reason."""
    strange = tmp_path / f"{CONSUMER_OFFSETS}-0" / "7.log"

    async def fill(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]

    async def look(client: Client) -> None:
        assert await found_codes(client) == [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        strange.unlink()
        while (codes := [await commit_code(client, group_id) for group_id in GROUPS]) != [0, 0]:
            assert codes[0] == ErrorCode.NONE
            assert codes[1] == ErrorCode.NOT_COORDINATOR
        assert await found_codes(client) == [ErrorCode.NONE, ErrorCode.NONE]

    play(tmp_path, fill)
    strange.write_bytes(b"")
    with caplog.at_level(logging.ERROR, "kohort.server"):
        play(tmp_path, look)
    assert caplog.text.count("coordinator.not_loaded") == 1


@pytest.mark.parametrize("number", range(1, 5))
def test_a_read_that_fails_once_delays_its_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Any read of the partition at a start: of its opening, or of the load. A single broker never gets a newer leader epoch."""
    reads_left, pread = [0], os.pread

    async def fill(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]

    async def look(client: Client) -> None:
        while (codes := [await commit_code(client, group_id) for group_id in GROUPS]) != [0, 0]:
            assert codes[0] == ErrorCode.NONE
            assert codes[1] == ErrorCode.NOT_COORDINATOR

    def failing(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino in files:
            reads_left[0] -= 1
            if reads_left[0] == 0:
                raise OSError(EIO, "Input/output error")
        return pread(fd, size, position)

    play(tmp_path, fill)
    reads_left[0] = number
    files = {path.stat().st_ino for path in (tmp_path / f"{CONSUMER_OFFSETS}-0").glob("*.log")}
    monkeypatch.setattr(os, "pread", failing)
    play(tmp_path, look)


def test_a_load_that_takes_long_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first read of the start fails. The load is tried again while clients are served, and hangs until the log says so."""
    reads, goes_on, pread = [0], threading.Event(), os.pread

    async def fill(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]

    async def look(client: Client) -> None:
        try:
            while "the disk has not answered" not in caplog.text:
                assert await commit_code(client, "g") == 0
        finally:
            goes_on.set()
        while await commit_code(client, "h") != 0:
            pass

    def failing(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino in files:
            reads[0] += 1
            if reads[0] == 1:
                raise OSError(EIO, "Input/output error")
            goes_on.wait()
        return pread(fd, size, position)

    play(tmp_path, fill)
    files = {path.stat().st_ino for path in (tmp_path / f"{CONSUMER_OFFSETS}-0").glob("*.log")}
    monkeypatch.setattr(os, "pread", failing)
    play(tmp_path, look)
    late = [record for record in caplog.records if "the disk has not answered" in record.getMessage()]
    assert {record.levelno for record in late} == {logging.WARNING}


def test_who_waits_for_a_partition_that_fails_is_told_at_once(tmp_path: Path) -> None:
    """Not when an initial rebalance of an hour is over. Source: a 4.2.1 of which one log directory failed."""

    async def fail(client: Client) -> None:
        await with_topic(client)
        assert [await commit_code(client, group_id) for group_id in GROUPS] == [0, 0]
        protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
        joining = m.JoinGroupRequest(
            group_id="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="test",
            protocols=[protocol],
        )
        other = Client(*await asyncio.open_connection(*client.writer.get_extra_info("peername")))
        other.send(ApiKey.JOIN_GROUP, 3, joining)
        while (await describe(client, "h")).group_state == "Empty":
            pass
        hit = fail_on("write", ".log", code=ENOSPC)
        files.refuse = lambda call, path: hit(call, path) if path.parent.name == f"{CONSUMER_OFFSETS}-0" else None
        codes = [await commit_code(client, group_id) for group_id in ("g", "b")]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
        _, answer = await other.receive(ApiKey.JOIN_GROUP, 3)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        assert (await describe(client, "h")).error_code == ErrorCode.NOT_COORDINATOR
        assert await found_codes(client) == [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert await commit_code(client, "g") == ErrorCode.NONE
        files.refuse = lambda _call, _path: None
        other.writer.close()

    with FaultyFiles(tmp_path / "data") as files:
        play(tmp_path / "data", fail, group_initial_rebalance_delay_ms="3600000")


async def describe(client: Client, group_id: str) -> m.DescribeGroupsResponseDescribedGroup:
    found = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=[group_id]))
    described: m.DescribeGroupsResponseDescribedGroup = found.groups[0]
    return described
