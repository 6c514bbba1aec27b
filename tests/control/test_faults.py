"""Faults over HTTP, seen by raw clients: filters, triggers and effects."""

from typing import Any

from kohort.broker.apis.api_table import served_versions
from kohort.model.errors import ErrorCode
from kohort.model.fixed_context import FixedContext
from kohort.server.requests.dispatch import Dispatch, Route
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from tests.control.controlled import Stage, play
from tests.server.clients import Client, commit, with_topic


async def committed(client: Client, offset: int) -> int:
    answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(offset))
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(client: Client) -> int:
    groups = [
        m.OffsetFetchRequestGroup(group_id="g", topics=[m.OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    ]
    answer = await client.ask(ApiKey.OFFSET_FETCH, 9, m.OffsetFetchRequest(groups=groups))
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def test_an_error_replaces_the_effect_as_often_as_the_fault_says() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        fault = await stage.control.fault(api="OffsetCommit", group="g", error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
        loading = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert [await committed(client, 5), await committed(client, 6)] == [loading, loading]
        assert await fetched(client) == -1
        assert await committed(client, 7) == 0
        assert await fetched(client) == 7
        assert await stage.control.hits(fault) == 2

    play(story)


def test_a_filter_that_does_not_match_leaves_requests_alone() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        others: list[dict[str, Any]] = [
            {"group": "other"},
            {"client_id": "other"},
            {"min_version": 10},
            {"topic": "other"},
            {"partition": 1},
            {"broker": 2},
            {"principal": "User:alice"},
            {"transactional_id": "x"},
        ]
        faults = [await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR", **each) for each in others]
        assert await committed(client, 5) == 0
        assert [await stage.control.hits(fault) for fault in faults] == [0] * len(faults)

    play(story)


def test_counts_survive_the_removal() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        fault = await stage.control.fault(api="OffsetCommit", error="NOT_COORDINATOR", always=True)
        assert await committed(client, 5) == ErrorCode.NOT_COORDINATOR
        for _ in range(2):
            removed = await stage.control.take("DELETE", f"/faults/{fault}")
            assert (removed["hits"], removed["is_removed"]) == (1, True)
        assert await committed(client, 5) == 0
        assert await stage.control.hits(fault) == 1
        assert (await stage.control.ask("DELETE", "/faults/unknown")).status == 204

    play(story)


def test_nothing_is_wrapped_without_a_fault() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        await committed(client, 1)
        (dispatch,) = stage.node.dispatches.values()
        route = dispatch.routes[ApiKey.OFFSET_COMMIT, 9]
        plain = route.handler
        fault = await stage.control.fault(api="OffsetCommit", observe=True)
        assert route.handler is not plain
        assert route.read_repeated is None
        await stage.control.take("DELETE", f"/faults/{fault}")
        assert route.handler is plain
        assert route.read_repeated is not None

    play(story)


def test_a_wait_for_hits_ends_with_the_hit() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        fault = await stage.control.fault(api="OffsetCommit", observe=True)
        late = await stage.control.ask("GET", f"/faults/{fault}?wait=1&timeout=0.01")
        assert (late.status, late.body["type"]) == (409, "urn:kohort:problem:timeout")
        assert late.body["state"]["hits"] == 0
        await committed(client, 5)
        assert (await stage.control.take("GET", f"/faults/{fault}?wait=1&timeout=5"))["hits"] == 1

    play(story)


def test_faults_are_around_quotas() -> None:
    order: list[str] = []

    def wrapped_by(name: str) -> Any:
        def wrap(handler: Any) -> Any:
            def handle(*arguments: Any) -> Any:
                order.append(name)
                return handler(*arguments)

            return handle

        return lambda _api: wrap

    def handle(route: Route) -> None:
        route.handler(m.HeartbeatRequest(), FixedContext(4), lambda _response: None)

    dispatch = Dispatch({ApiKey.HEARTBEAT: lambda *_: order.append("handler")}, served_versions(DEFAULT_RELEASE))
    route = dispatch.route(ApiKey.HEARTBEAT, 4)
    assert route is not None
    dispatch.throttle_by(wrapped_by("quota"))
    dispatch.intercept_by(wrapped_by("fault"))
    handle(route)
    dispatch.throttle_by(lambda _api: None)
    handle(route)
    dispatch.intercept_by(lambda _api: None)
    handle(route)
    assert order == ["fault", "quota", "handler", "fault", "handler", "handler"]
