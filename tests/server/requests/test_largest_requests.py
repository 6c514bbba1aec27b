"""
No request holds the event loop: every largest request of every API is read, handled and answered in small steps.

A step is measured in calls of functions, which do not depend on the machine. `make largest-requests` prints times and memory.
"""

import sys
from collections.abc import Awaitable, Callable, Generator
from itertools import count
from types import FrameType
from typing import Any

import pytest

from kohort.server.node import Node
from kohort.server.requests.slices import Slices, Work
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.conftest import LONG
from tests.server.clients import Client, play, with_topic
from tests.server.requests.largest_requests import Largest, largest_requests

ELEMENTS = 20_000 if LONG else 5_000
CALLS_MAX = 12_000
"""
Calls between two turns of the loop: two or three for an element. A request that is not handled in steps has six or more.
"""
SERVED = [
    ApiKey.PRODUCE,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_CLIENT_QUOTAS,
]
CASES = [
    largest
    for api in SERVED
    for largest in largest_requests(api, ELEMENTS)
    # The codes of many markers are put together in one step, of 15 ms for the largest request.
    if api is not ApiKey.WRITE_TXN_MARKERS or not largest.is_distinct
]


class CountedSlices(Slices):
    """Slices of one step each, because each look at the clock ends a slice. Notes the calls of functions in each of them."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        super().__init__(call_soon, count(0.0, 1.0).__next__)
        self.calls: list[int] = []

    def _slice(self, work: Work, steps: Generator[None, None, Any]) -> bool:
        calls = 0

        def profile(_frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            return super()._slice(work, steps)
        finally:
            sys.setprofile(None)
            self.calls.append(calls)


@pytest.mark.parametrize("largest", CASES, ids=str)
def test_a_largest_request_is_handled_in_small_steps(largest: Largest) -> None:
    calls: list[int] = []

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await with_topic(client)
        slices = node._connections.slices = CountedSlices(node._call_soon)
        client.writer.write(largest.frame())
        size = int.from_bytes(await client.reader.readexactly(4), "big")
        await client.reader.readexactly(size)
        assert (await client.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0
        calls.extend(slices.calls)

    play(story, auto_create_topics_enable="false")
    assert len(calls) >= ELEMENTS // 10_000
    assert max(calls) <= CALLS_MAX, f"the longest of {len(calls)} steps"
