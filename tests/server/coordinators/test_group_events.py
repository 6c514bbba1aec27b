"""The log of group life, as a node writes it."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

import kohort.group.events
from kohort.broker.configs.definitions import BrokerConfig
from kohort.group.events import GroupEvent, HeartbeatRefused, MemberExpired, MemberLeft, RebalanceStarted
from kohort.group.metrics import EventCounts
from kohort.model.errors import ErrorCode
from kohort.server.coordinators.event_lines import EventLog, event_name
from kohort.server.logs import REPEATS_MAX, REPEATS_SECONDS, JsonFormatter, RepeatLimit
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import Client, with_topic


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kohort.group"]


def test_a_node_logs_the_life_of_a_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.group")

    async def run() -> str:
        config = BrokerConfig({"group.initial.rebalance.delay.ms": "0"})
        node = Node(Settings(port=0, config=config), asyncio.get_running_loop())
        client = Client(*await asyncio.open_connection(*await node.start()))
        try:
            async with asyncio.timeout(60):
                await with_topic(client)
                return await live(client)
        finally:
            await node.stop()
            client.writer.close()

    async def live(client: Client) -> str:
        join = m.JoinGroupRequest(
            group_id="g",
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )
        member: str = (await client.ask(ApiKey.JOIN_GROUP, 3, join)).member_id
        sync = m.SyncGroupRequest(group_id="g", generation_id=1, member_id=member)
        await client.ask(ApiKey.SYNC_GROUP, 3, sync)
        identity = m.LeaveGroupRequestMemberIdentity(member_id=member, reason="closed")
        await client.ask(ApiKey.LEAVE_GROUP, 5, m.LeaveGroupRequest(group_id="g", members=[identity]))
        return member

    member = asyncio.run(run())
    client_id = member[:-37]
    assert lines(caplog) == [
        f"member.joined group_id='g' member_id='{member}' client_id='{client_id}' client_host='/127.0.0.1'",
        f"rebalance.started group_id='g' state='Empty' generation=0 reason='member {member} joined'",
        f"generation.started group_id='g' generation=1 members=1 protocol='range' leader='{member}'",
        f"assignment.stored group_id='g' generation=1 leader='{member}' members=1",
        f"member.left group_id='g' member_id='{member}' reason='closed'",
        "rebalance.started group_id='g' state='Stable' generation=1 reason='members left'",
        "group.emptied group_id='g' generation=2",
    ]


def test_texts_of_clients_stay_in_their_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.group")
    EventLog("kohort.group")(MemberLeft("g", "m", None, "bye\ngroup_id=other member_id=x"))
    (record,) = caplog.records
    assert record.getMessage() == (
        r"member.left group_id='g' member_id='m' reason='bye\ngroup_id\x3dother member_id\x3dx'"
    )
    assert '"group_id": "\'g\'"' in JsonFormatter().format(record)


def test_refused_heartbeats_are_counted_and_their_lines_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.group")
    counts, now = EventCounts(), 0.0
    log = EventLog("kohort.group", count=counts.count)
    limit = RepeatLimit(lambda: now)
    fenced = HeartbeatRefused("g", "ConsumerGroupHeartbeat", "m", None, 3, ErrorCode.FENCED_MEMBER_EPOCH, "too low")
    for _ in range(100):
        log(fenced)
    log(HeartbeatRefused("g", "Heartbeat", "m", "i", 1, ErrorCode.UNKNOWN_MEMBER_ID, None))
    now_lines = [record.getMessage() for record in caplog.records if limit.filter(record)]
    line = "heartbeat.refused group_id='g' api='ConsumerGroupHeartbeat' member_id='m' epoch=3 error=FENCED_MEMBER_EPOCH"
    other = "heartbeat.refused group_id='g' api='Heartbeat' member_id='m' group_instance_id='i' epoch=1"
    assert now_lines == [f"{line} reason='too low'"] * REPEATS_MAX + [f"{other} error=UNKNOWN_MEMBER_ID"]
    caplog.clear()
    log(fenced)
    now = REPEATS_SECONDS
    assert [limit.filter(record) for record in caplog.records] == [True]
    assert caplog.records[0].getMessage().endswith(f"suppressed={100 - REPEATS_MAX}")
    assert counts.refused_heartbeats == {
        ("ConsumerGroupHeartbeat", ErrorCode.FENCED_MEMBER_EPOCH): 101,
        ("ConsumerGroupHeartbeat", ErrorCode.UNKNOWN_MEMBER_ID): 0,
        ("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID): 1,
        ("ShareGroupHeartbeat", ErrorCode.UNKNOWN_MEMBER_ID): 0,
    }


def test_members_that_miss_a_rebalance_are_counted() -> None:
    counts = EventCounts()
    for timeout in ("session", "member id", "rebalance", "join", "sync"):
        counts.count(MemberExpired("g", "m", None, timeout))
    assert counts.rebalance_timeouts == 3


def test_nothing_is_formatted_below_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kohort.group")
    EventLog("kohort.group")(RebalanceStarted("g", "Empty", 0, "joined"))
    assert caplog.records == []


def test_every_event_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "groups.md").read_text()
    events = [found for found in vars(kohort.group.events).values() if isinstance(found, type)]
    logged = {event_name(event) for event in events if issubclass(event, GroupEvent) and event is not GroupEvent}
    documented = set(re.findall(r"^\| `(\w+\.\w+)` \|", page, re.MULTILINE))
    assert logged == documented
