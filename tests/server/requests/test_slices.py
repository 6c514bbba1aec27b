"""Long requests: worked on in slices, in turns, between the short requests of others, and dropped with their connection."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator
from itertools import count
from typing import Any

import pytest

from kohort.broker.apis.api_table import API_TABLE
from kohort.model.errors import WireError
from kohort.model.limits import LONG_REQUESTS_MAX, REQUEST_ELEMENTS_MAX
from kohort.server.node import Node
from kohort.server.requests.slices import SLICE_SECONDS, Slices
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import STEP_ELEMENTS
from tests.server.clients import Client, play, with_topic


class Turns:
    """An event loop of one callback a turn, in which each look at the clock takes a third of a slice."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.time = 0.0
        self.slices = Slices(self.due.append, self.now)

    def now(self) -> float:
        self.time += SLICE_SECONDS / 3
        return self.time

    def run(self, turns: int = 1_000_000) -> int:
        """Run up to so many turns; returns how many there were."""
        for turn in range(turns):
            if not self.due:
                return turn
            self.due.pop(0)()
        return turns


class Job:
    """A work of some steps that notes each of them."""

    def __init__(self, name: str, steps: int, notes: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.steps = steps
        self.notes = notes
        self.error = error
        self.results: list[tuple[Any, Exception | None]] = []
        self.wanted = True

    def work(self) -> Generator[None, None, str]:
        for _ in range(self.steps):
            self.notes.append(self.name)
            yield
        if self.error is not None:
            raise self.error
        return self.name

    def is_wanted(self) -> bool:
        return self.wanted

    def done(self, result: Any, error: Exception | None, /) -> None:
        self.results.append((result, error))


def test_a_slice_has_the_steps_of_its_time_and_works_take_turns() -> None:
    turns, notes = Turns(), list[str]()
    jobs = [Job(name, 6, notes) for name in "ab"]
    for job in jobs:
        turns.slices.add(job, job.work())
    turns.run()
    assert "".join(notes) == "aaabbbaaabbb"
    assert [job.results for job in jobs] == [[("a", None)], [("b", None)]]
    assert not len(turns.slices)


def test_a_failure_goes_to_its_owner() -> None:
    turns, error = Turns(), WireError("bad")
    job, other = Job("a", 1, [], error), Job("b", 1, [])
    for each in (job, other):
        turns.slices.add(each, each.work())
    turns.run()
    assert job.results == [(None, error)]
    assert other.results == [("b", None)]


def test_a_work_that_nobody_wants_any_more_ends() -> None:
    turns, notes = Turns(), list[str]()
    job = Job("a", 100, notes)
    turns.slices.add(job, job.work())
    turns.run(1)
    job.wanted = False
    turns.run()
    assert len(notes) == 3
    assert not job.results


def test_only_some_works_are_begun_at_a_time() -> None:
    """Each begun work holds its decoded request; the others hold their frame."""
    turns, notes = Turns(), list[str]()
    jobs = [Job(chr(97 + number), 9, notes) for number in range(LONG_REQUESTS_MAX + 4)]
    for job in jobs:
        turns.slices.add(job, job.work())
    turns.run(2 * LONG_REQUESTS_MAX)
    assert len(set(notes)) == LONG_REQUESTS_MAX
    turns.run()
    assert all(job.results for job in jobs)


def test_a_short_request_is_answered_while_a_long_one_is_worked_on() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        long, short = await connect(), await connect()
        await with_topic(short)
        groups = [f"g{number}" for number in range(50_000)]
        first = long.send(ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=groups))
        behind = long.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        slices = node._connections.slices
        while not len(slices):
            await asyncio.sleep(0)
        answered = 0
        while len(slices):
            await short.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
            answered += 1
        assert answered > 3
        assert slices.steps > 2 * len(groups) / 512 + len(groups) / 250
        correlation_id, response = await long.receive(ApiKey.DESCRIBE_GROUPS, 5)
        assert correlation_id == first
        assert [group.group_id for group in response.groups] == groups
        assert (await long.receive(ApiKey.API_VERSIONS, 0))[0] == behind

    play(story)


def test_a_request_with_too_many_elements_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        client.send(ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=["g"] * (REQUEST_ELEMENTS_MAX + 1)))
        assert await client.is_closed()

    play(story)
    assert f"DescribeGroupsRequest has more than {REQUEST_ELEMENTS_MAX} elements" in caplog.text


def test_a_tool_may_ask_for_the_offsets_of_a_thousand_groups() -> None:
    indexes = list(range(100))
    topics = [m.OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
    groups = [
        m.OffsetFetchRequestGroup(group_id=f"g{number}", member_id=None, member_epoch=-1, topics=topics)
        for number in range(1_000)
    ]

    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        answer = await client.ask(ApiKey.OFFSET_FETCH, 8, m.OffsetFetchRequest(groups=groups, require_stable=False))
        assert [group.group_id for group in answer.groups] == [group.group_id for group in groups]

    play(story)


def test_the_work_of_a_client_that_is_gone_is_dropped() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client, other = await connect(), await connect()
        slices = node._connections.slices
        # Each slice is one step: a quick machine would read the whole request before the broker notices the abort.
        slices._now = count(0.0, 1.0).__next__
        client.send(
            ApiKey.DESCRIBE_GROUPS,
            5,
            m.DescribeGroupsRequest(groups=[f"g{number}" for number in range(REQUEST_ELEMENTS_MAX - 1)]),
        )
        while not len(slices):
            await asyncio.sleep(0)
        client.writer.transport.abort()
        while len(slices):
            await asyncio.sleep(0)
        assert slices.steps < REQUEST_ELEMENTS_MAX // STEP_ELEMENTS, "reading alone takes as many"
        assert (await other.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())).error_code == 0

    play(story)


def test_repeated_groups_are_described_once() -> None:
    """Kafka describes each of them again, with all members: a few bytes of request for megabytes of response."""

    async def story(_: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for repeats in (2, 5_000):
            response = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, m.DescribeGroupsRequest(groups=["a", "b"] * repeats))
            assert [group.group_id for group in response.groups] == ["a", "b"]

    play(story)


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("is_later", [False, True])
def test_a_handler_may_work_in_steps(monkeypatch: pytest.MonkeyPatch, steps: int, is_later: bool) -> None:
    row = API_TABLE[ApiKey.FIND_COORDINATOR]
    monkeypatch.setitem(API_TABLE, ApiKey.FIND_COORDINATOR, row._replace(is_gradual=True, splits=()))

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        def handle(_request: Any, _context: Any, reply: Any) -> Generator[None, None, Any]:
            for _ in range(steps):
                yield
            response = m.FindCoordinatorResponse(error_message="done")
            if is_later:
                asyncio.get_running_loop().call_soon(reply, response)
                return None
            return response

        node.broker.serve(ApiKey.FIND_COORDINATOR, handle)
        client = await connect()
        for _ in range(3):
            first = client.send(ApiKey.FIND_COORDINATOR, 1, m.FindCoordinatorRequest(key="k"))
            second = client.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
            correlation_id, response = await client.receive(ApiKey.FIND_COORDINATOR, 1)
            assert (correlation_id, response.error_message) == (first, "done")
            assert (await client.receive(ApiKey.API_VERSIONS, 0))[0] == second

    play(story)


def test_a_pipelined_request_waits_until_a_long_one_before_it_was_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only replies may wait together; the requests of a connection take effect in their order."""
    monkeypatch.setitem(API_TABLE, ApiKey.HEARTBEAT, API_TABLE[ApiKey.HEARTBEAT]._replace(is_gradual=True))

    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        notes: list[str] = []

        def handle(_request: Any, _context: Any, _reply: Any) -> Generator[None, None, Any]:
            notes.append("begin")
            for _ in range(5):
                yield
            notes.append("end")
            return m.HeartbeatResponse()

        node.broker.serve(ApiKey.HEARTBEAT, handle)
        client = await connect()
        sent = [client.send(ApiKey.HEARTBEAT, 4, m.HeartbeatRequest(group_id="g", member_id="m")) for _ in range(3)]
        assert [(await client.receive(ApiKey.HEARTBEAT, 4))[0] for _ in range(3)] == sent
        assert notes == ["begin", "end"] * 3

    play(story)


def test_garbage_collection_visits_few_new_objects_at_once() -> None:
    """A collection is one step of the event loop: the 100 000 new objects of a long request took 27 ms."""

    async def story(_: Node, _connect: Callable[[], Awaitable[Client]]) -> None:
        assert gc.get_threshold()[0] <= 10_000

    play(story)


def test_a_long_request_is_read_handled_and_encoded_in_different_steps() -> None:
    async def story(node: Node, connect: Callable[[], Awaitable[Client]]) -> None:
        slices = node._connections.slices
        steps_before: list[int] = []

        def handle(_request: Any, _context: Any, _reply: Any) -> m.ListGroupsResponse:
            steps_before.append(slices.steps)
            return m.ListGroupsResponse()

        node.broker.serve(ApiKey.LIST_GROUPS, handle)
        client = await connect()
        # The connection takes the first step of reading itself, and the last step returns the frame. Before it the request is
        # freed in three steps.
        request = m.ListGroupsRequest(states_filter=["a"] * (4 * STEP_ELEMENTS))
        await client.ask(ApiKey.LIST_GROUPS, 5, request)
        assert (steps_before, slices.steps) == ([4], 5 + 3)

    play(story)
