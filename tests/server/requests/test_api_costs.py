"""
The table of APIs: no request of any API costs more than its row says.

Every API is sent the worst requests of `worst_requests.py`: the largest arrays, the longest strings, and requests made for it
by hand. Work is counted in calls of functions, which do not depend on the machine; `make largest-requests` prints times.
"""

import asyncio
import gc
import importlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.broker.apis.api_table import API_TABLE, LISTENER_TABLE, Api, Cost, Listener, served_versions
from kohort.model.limits import CONTROL_BODY_BYTES_MAX
from kohort.scrape import REQUEST_BYTES_MAX
from kohort.server.control import LINE_BYTES_MAX
from kohort.server.node import Node
from kohort.server.requests.dispatch import LongRoute
from kohort.server.requests.slices import Slices
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from tests.conftest import LONG, watches_calls
from tests.server.clients import Client, play, with_coordinators, with_share_coordinator, with_topic
from tests.server.requests.largest_requests import Largest, StoredRequest
from tests.server.requests.work import Memory, WorkOfTurns
from tests.server.requests.worst_requests import Longest, strings, worst_requests

pytestmark = watches_calls  # Compiled code shows no calls; `make largest-requests` measures it.

ELEMENTS = 20_000 if LONG else 3_000
"""
Elements of the largest arrays. Memory is measured for so many, and compared with this part of its bound. An API that does not
work in steps has five calls an element or more.
"""
MEMORY_ALWAYS = 1 << 20
"""Memory of a request that does not grow with its elements."""
COPIES = 4
"""Copies of the frame and of the answer: on their way in and out, at the client, and as strings."""
ANSWER_SECONDS_MAX = 120
TURN_SECONDS_MAX = 0.5
"""Of the processor, for work in C that no count sees. The goal is 0.02."""


@pytest.fixture(scope="module", autouse=True)
def frozen_objects() -> None:
    """The collector would visit the objects of earlier tests, many times. An import belongs to no request."""
    importlib.import_module("kio.serial")  # readers do so for the 17th message of a version
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """A collection would belong to the turn of some request."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _answer(client: Client, frame: bytes) -> int | None:
    """Send a request; the size of its answer, None if the connection was closed."""
    client.writer.write(frame)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            await client.reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    return size


async def _exceeded(
    connect: Callable[[], Awaitable[Client]], request: Largest | Longest | StoredRequest, cost: Cost
) -> list[str]:
    """What a request cost above its row, as sentences."""
    frame = request.frame()
    part = request.elements / cost.elements if isinstance(request, Largest) else 1.0
    client = await connect()
    with WorkOfTurns() as work:
        await _answer(client, frame)
    client.writer.close()
    client = await connect()
    bytes_max = cost.memory * part + MEMORY_ALWAYS
    with Memory() as memory:
        size = await _answer(client, frame)
        taken = memory.peak() - COPIES * (len(frame) + (size or 0))
        client.writer.close()
        # Nothing that is kept was not taken. To look takes a collection, which is most of the time of a small request.
        kept = memory.kept() if memory.peak() > bytes_max else 0
    found = []
    if work.units > cost.step:
        found.append(f"{request}: {work.units} units in one step; its bound is {cost.step}")
    if work.seconds > TURN_SECONDS_MAX:
        found.append(f"{request}: {work.seconds:.1f} s in one step of {work.units} units")
    if max(taken, kept) > bytes_max:
        found.append(f"{request}: {taken} bytes of memory, {kept} are kept; the bound is {bytes_max:.0f}")
    return found


AUTHORIZED = {"authorizer_class_name": CLASS_NAME, "super_users": "User:ANONYMOUS"}
"""With these, each element is decided."""

UNREPAIRED: dict[ApiKey, str] = {}
"""APIs that exceed their rows. Who repairs one takes it out."""


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(api, marks=pytest.mark.xfail(strict=False, reason=UNREPAIRED[api]) if api in UNREPAIRED else ())
        for api in served_versions(DEFAULT_RELEASE)
    ],
    ids=lambda api: api.api_name,
)
@pytest.mark.parametrize("settings", [{}, AUTHORIZED] if LONG else [{}], ids=["plain", "authorized"][: 1 + LONG])
def test_no_request_costs_more_than_its_row(api: ApiKey, settings: dict[str, str]) -> None:
    exceeded: list[str] = []
    requests = 0

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        nonlocal requests
        assert api in node._broker.handlers
        (dispatch,) = node._dispatches.values()
        oldest, newest = node._broker.versions[api]
        for version in range(oldest, newest + 1):
            # Readers and encoders are compiled once, with the first request of a version.
            route = dispatch.route(api, version)
            assert route is None or isinstance(route.long, LongRoute)
        client = await connect()
        await with_topic(client)
        await with_coordinators(client)
        await with_share_coordinator(client)
        # Each look at the clock ends a slice: it has one step.
        node._connections.slices = Slices(node._turns.call_soon, count(0.0, 1.0).__next__)
        async for request in worst_requests(api, client, ELEMENTS):
            exceeded.extend(await _exceeded(connect, request, API_TABLE[api].cost))
            requests += 1

    play(story, auto_create_topics_enable="false", **settings)
    assert not exceeded, "\n".join(exceeded)
    assert requests > len(strings(api))


def test_a_row_has_a_cost() -> None:
    with pytest.raises(TypeError):
        Api()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Cost()  # type: ignore[call-arg]
    assert list(API_TABLE) == list(ApiKey)
    assert list(LISTENER_TABLE) == list(Listener)


def test_other_listeners_take_requests_as_large_as_their_rows_say() -> None:
    assert LISTENER_TABLE[Listener.METRICS].request_bytes == REQUEST_BYTES_MAX
    assert LISTENER_TABLE[Listener.EXPORTER].request_bytes == REQUEST_BYTES_MAX
    assert LISTENER_TABLE[Listener.TESTING_KIT].request_bytes == CONTROL_BODY_BYTES_MAX
    assert LISTENER_TABLE[Listener.CONTROL].request_bytes == LINE_BYTES_MAX
