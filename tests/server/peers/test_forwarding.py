"""Requests of clients that the controller alone handles, at another node."""

import asyncio
import logging
from typing import Any

import pytest

from kohort.broker.apis.api_table import API_TABLE
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.model.principals import ANONYMOUS
from kohort.server.peers import auto_creation, controller, forwarding
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel
from kohort.server.peers.principals import principal_bytes
from kohort.server.requests.places import place_of
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey, versions_in
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.message_classes import message_classes
from kohort.wire.readers import request_reader
from tests.server.clients import Client
from tests.server.peers.fake_node import Asked, FakeNode
from tests.server.peers.two_nodes import Cluster, create, creation, play

FORWARDED = [api for api, row in API_TABLE.items() if row.is_forwarded]


async def with_fake(cluster: Cluster) -> FakeNode:
    """Let a fake node be the controller, as node 3."""
    node = FakeNode()
    cluster.world.endpoints[3] = await node.start()
    cluster.world.controller = 3
    return node


def begun(client: Client, *names: str) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(create(client, *names))


def codes(answer: m.CreateTopicsResponse) -> list[int]:
    return [topic.error_code for topic in answer.topics]


def names_of(cluster: Cluster, node_id: int) -> list[str]:
    return sorted(topic.name for topic in cluster[node_id].broker.catalog.topics())


def test_a_topic_is_created_at_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        answer = await create(client, "a", "b")
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", 0), ("b", 0)]
        assert names_of(cluster, 1) == ["a", "b"]
        assert names_of(cluster, 2) == []
        assert codes(await create(client, "a", "c/")) == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]

    play(story)


def test_who_handles_a_request_is_decided_anew_each_time() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        for number, controller_id in enumerate((1, 2, 1)):
            cluster.world.controller = controller_id
            assert codes(await create(client, f"t{number}")) == [0]
        assert names_of(cluster, 1) == ["t0", "t2"]
        assert names_of(cluster, 2) == ["t1"]

    play(story)


def test_other_requests_of_a_connection_wait_for_a_forwarded_one() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        client.send(ApiKey.CREATE_TOPICS, 7, creation("a"))
        client.send(ApiKey.API_VERSIONS, 3, m.ApiVersionsRequest())
        asked = await node.asked.get()
        envelope(asked, m.CreateTopicsResponse(topics=[m.CreateTopicsResponseCreatableTopicResult(name="a")]))
        assert (await client.receive(ApiKey.CREATE_TOPICS, 7))[0] == 1
        assert (await client.receive(ApiKey.API_VERSIONS, 3))[0] == 2
        node.close()

    play(story)


def envelope(asked: Asked, response: Any, api: ApiKey = ApiKey.CREATE_TOPICS, version: int = 7) -> None:
    """Answer an Envelope."""
    number = int.from_bytes(asked.request.request_data[4:8], "big")
    asked.answer(m.EnvelopeResponse(response_data=response_encoder(api, version)(number, response)[4:]))


def test_an_envelope_has_the_bytes_the_user_and_the_address() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        answer = begun(client, "a")
        asked = await node.asked.get()
        assert (asked.api_key, asked.version, asked.client_id) == (ApiKey.ENVELOPE, 0, "kohort-2")
        frame = request_encoder(ApiKey.CREATE_TOPICS, 7)(1, "test", creation("a"))
        assert asked.request.request_data == frame[4:]
        assert asked.request.request_principal == bytes.fromhex("0000") + b"\x05User\x0aANONYMOUS\0\0"
        assert asked.request.client_host_address == bytes((127, 0, 0, 1))
        envelope(asked, m.CreateTopicsResponse(topics=[m.CreateTopicsResponseCreatableTopicResult(name="made")]))
        assert (await answer).topics[0].name == "made"
        node.close()

    play(story)


def test_an_answer_waits_until_the_view_of_the_node_is_current() -> None:
    async def story(cluster: Cluster) -> None:
        cluster[2].is_behind = True
        client = await cluster.connect(2)
        answer = begun(client, "a")
        while not cluster[2].behind:
            await asyncio.sleep(0)
        assert names_of(cluster, 1) == ["a"]
        assert not answer.done()
        cluster[2].behind.pop()()
        assert codes(await answer) == [0]

    play(story)


def test_a_view_that_stays_behind_holds_no_answer_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CURRENT_MS_MAX", 20)

    async def story(cluster: Cluster) -> None:
        cluster[2].is_behind = True
        assert codes(await create(await cluster.connect(2), "a")) == [0]
        cluster[2].behind.pop()()  # too late, and without effect

    play(story)


# -- a controller that moves, hangs or is lost -------------------------------------------------------------------


def test_a_request_goes_to_the_next_controller_while_nobody_has_got_it() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client, other = await cluster.connect(2), await cluster.connect(2)
        first = begun(client, "a")
        refused = await node.asked.get()
        waiting = begun(other, "b")
        refused.answer(m.EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER)))
        asked = await node.asked.get()
        assert b"\x02b" in asked.request.request_data
        cluster.world.controller = 1
        asked.answer(m.EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER)))
        assert [codes(await first), codes(await waiting)] == [[0], [0]]
        assert names_of(cluster, 1) == ["a", "b"]
        node.close()

    play(story)


def test_a_request_waits_for_a_controller() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        for absent in (-1, 9):
            cluster.world.controller = absent
            answer = begun(client, f"a{absent}")
            await asyncio.sleep(0.01)
            assert not answer.done()
            cluster.world.controller = 1
            assert codes(await answer) == [0]

    play(story)


def test_an_unknown_outcome_is_not_repeated() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client, other = await cluster.connect(2), await cluster.connect(2)
        sent = begun(client, "a", "b")
        asked = await node.asked.get()
        unsent = begun(other, "c")
        peer = cluster[2].peering.peers._peers[3, Channel.CONTROLLER]
        while peer.unanswered < 2:
            await asyncio.sleep(0)
        assert peer._waiting, "one change at a time"
        cluster.world.controller = 1
        asked.cut()
        answer = await sent
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("a", ErrorCode.REQUEST_TIMED_OUT),
            ("b", ErrorCode.REQUEST_TIMED_OUT),
        ]
        again = await node.asked.get()  # what was not sent goes over the next connection to the same node
        again.answer(m.EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER)))
        assert codes(await unsent) == [0]
        assert names_of(cluster, 1) == ["c"]
        node.close()

    play(story)


def test_a_controller_that_stops_loses_what_it_has_got_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        answer = begun(await cluster.connect(2), "a")
        await node.asked.get()
        del cluster.world.endpoints[3]
        cluster.world.controller = 1
        cluster[2].peering.refresh()
        assert codes(await answer) == [ErrorCode.REQUEST_TIMED_OUT]
        node.close()

    play(story)


def test_a_controller_that_hangs_and_one_that_is_never_found_end_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller.ControllerChannel.ask, "__defaults__", (150,))

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        assert codes(await create(client, "a")) == [ErrorCode.REQUEST_TIMED_OUT]
        cluster.world.controller = -1
        assert codes(await create(client, "a")) == [ErrorCode.REQUEST_TIMED_OUT]
        assert cluster[2].peering.forwarding._size_bytes == 0
        node.close()

    play(story)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION),
        (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=lambda code: code.name,
)
def test_what_is_wrong_between_the_nodes_is_no_answer_to_a_client(code: ErrorCode, told: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        answer = begun(await cluster.connect(2), "a")
        wrong = b"\0\0\0\x63wrong" if code is ErrorCode.NONE else None
        (await node.asked.get()).answer(m.EnvelopeResponse(error_code=int(code), response_data=wrong))
        assert codes(await answer) == [told]
        node.close()

    play(story)


def test_a_malformed_request_closes_the_connection_of_its_client() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        whole = request_encoder(ApiKey.CREATE_TOPICS, 7)(1, "test", creation("a"))
        cut = whole[4:-9]
        client.writer.write(len(cut).to_bytes(4, "big") + cut)
        assert await client.is_closed()
        assert names_of(cluster, 1) == []

    play(story)


def test_the_bytes_of_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "FORWARDED_BYTES_MAX", 100)

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        first = begun(await cluster.connect(2), "a" * 200)
        asked = await node.asked.get()
        assert codes(await create(await cluster.connect(2), "b", "c")) == [ErrorCode.REQUEST_TIMED_OUT] * 2
        envelope(asked, m.CreateTopicsResponse())
        assert codes(await first) == []
        again = begun(await cluster.connect(2), "d")
        envelope(await node.asked.get(), m.CreateTopicsResponse())
        assert codes(await again) == []
        node.close()

    play(story)


def test_a_client_that_has_gone_needs_no_answer() -> None:
    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        client.send(ApiKey.CREATE_TOPICS, 7, creation("a"))
        asked = await node.asked.get()
        client.writer.transport.abort()
        envelope(asked, m.CreateTopicsResponse())
        assert codes(await forwarded(cluster, node)) == [0]
        node.close()

    play(story)


async def forwarded(cluster: Cluster, node: FakeNode) -> m.CreateTopicsResponse:
    answer = begun(await cluster.connect(2), "z")
    envelope(await node.asked.get(), m.CreateTopicsResponse(topics=[m.CreateTopicsResponseCreatableTopicResult()]))
    found: m.CreateTopicsResponse = await answer
    return found


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.api_name)
def test_every_api_that_is_forwarded_has_an_answer_without_a_controller(api: ApiKey) -> None:
    """Every version: with the bytes of the controller's answer, and with that of a lost one."""

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        versions = versions_in("4.4.0")[api]
        request, response = (message_classes(f"{api.api_name}{kind}")[f"{api.api_name}{kind}"] for kind in KINDS)
        for version in range(versions.oldest, versions.newest_stable + 1):
            client.send(api, version, request())
            asked = await node.asked.get()
            envelope(asked, response(), api, version)
            assert (await client.receive(api, version))[1] is not None
            client.send(api, version, request())
            (await node.asked.get()).answer(m.EnvelopeResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR)))
            lost = (await client.receive(api, version))[1]
            place = place_of(api, version)
            assert not place.code or getattr(lost, place.code) == ErrorCode.UNKNOWN_SERVER_ERROR
        node.close()

    play(story)


KINDS = ("Request", "Response")


def test_long_requests_are_forwarded_too() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        names = [f"topic-{number}" for number in range(1_500)]
        answer = await create(client, *names)
        assert [topic.name for topic in answer.topics] == names
        assert set(codes(answer)) == {0}
        elections = m.ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000)
        elected = await client.ask(ApiKey.ELECT_LEADERS, 2, elections)
        assert elected.error_code == 0
        node = await with_fake(cluster)
        lost = begun(client, *names)
        (await node.asked.get()).cut()
        assert codes(await lost) == [ErrorCode.REQUEST_TIMED_OUT] * len(names)
        node.close()

    play(story)


def alteration(*resources: tuple[int, str, str, str]) -> m.IncrementalAlterConfigsRequest:
    """A request that sets one value of each resource: kind, name, key and value."""
    return m.IncrementalAlterConfigsRequest(
        resources=[
            m.IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)],
            )
            for kind, name, key, value in resources
        ]
    )


@pytest.mark.parametrize("threads", ["1000", "9"])
def test_a_node_checks_changes_of_its_own_configurations_and_forwards_the_rest(threads: str) -> None:
    """Source: Kafka ConfigAdminManager.preprocess and reassembleIncrementalResponse."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    is_refused = threads == "1000"

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        alone = alteration((4, "1", "num.io.threads", "9"), (4, "2", "num.io.threads", "1000"))
        answer = await client.ask(api, 1, alone)
        assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert node.asked.empty()
        request = alteration(
            (2, "t", "retention.ms", "1"), (4, "2", "num.io.threads", threads), (2, "u", "retention.ms", "2")
        )
        client.send(api, 1, request)
        asked = await node.asked.get()
        frame = asked.request.request_data
        _, _, _, client_id, body = read_request_header(frame)
        assert client_id == "test"
        forwarded = request_reader(api, 1)(frame, body)
        names = [resource.resource_name for resource in forwarded.resources]
        assert names == (["t", "u"] if is_refused else ["t", "2", "u"])
        kinds = {"t": 2, "2": 4, "u": 2}
        told = m.IncrementalAlterConfigsResponseAlterConfigsResourceResponse
        results = [told(error_code=0, resource_type=kinds[name], resource_name=name) for name in names]
        envelope(asked, m.IncrementalAlterConfigsResponse(responses=results), api, 1)
        _, answer = await client.receive(api, 1)
        assert [one.resource_name for one in answer.responses] == ["t", "2", "u"]
        assert [bool(one.error_code) for one in answer.responses] == [False, is_refused, False]
        client.send(api, 1, request)
        (await node.asked.get()).cut()
        _, answer = await client.receive(api, 1)
        lost = [one.error_code for one in answer.responses]
        of_own = ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.REQUEST_TIMED_OUT
        assert lost == [ErrorCode.REQUEST_TIMED_OUT, of_own, ErrorCode.REQUEST_TIMED_OUT]
        node.close()

    play(story)


def test_levels_of_loggers_are_those_of_the_node_that_is_asked() -> None:
    api, logger = ApiKey.INCREMENTAL_ALTER_CONFIGS, logging.getLogger("kohort.share")

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        own = alteration((8, "2", logger.name, "ERROR"))
        answer = await client.ask(api, 1, own)
        assert [(one.error_code, one.resource_name) for one in answer.responses] == [(0, "2")]
        assert logger.level == logging.ERROR
        refused = await client.ask(api, 1, alteration((8, "1", logger.name, "DEBUG")))
        assert refused.responses[0].error_code == ErrorCode.INVALID_REQUEST
        assert node.asked.empty()
        client.send(api, 1, alteration((8, "2", logger.name, "ERROR"), (2, "t", "retention.ms", "1")))
        envelope(await node.asked.get(), m.IncrementalAlterConfigsResponse(), api, 1)
        await client.receive(api, 1)
        whole = request_encoder(api, 1)(1, "test", own)[4:-5]
        client.writer.write(len(whole).to_bytes(4, "big") + whole)
        assert await client.is_closed()
        node.close()

    before = logger.level
    try:
        play(story)
    finally:
        logger.setLevel(before)


# -- requests of the node itself ---------------------------------------------------------------------------------


def ask_controller(cluster: Cluster) -> "asyncio.Future[Any]":
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    cluster[2].peering.forwarding.ask_controller(ApiKey.CREATE_TOPICS, 7, creation("n"), found.set_result)
    return found


def test_a_node_asks_for_itself() -> None:
    async def story(cluster: Cluster) -> None:
        cluster[2].is_behind = True
        answer = ask_controller(cluster)
        while not cluster[2].behind:
            await asyncio.sleep(0)
        assert not answer.done()
        cluster[2].behind.pop()()
        assert codes(await answer) == [0]
        cluster[2].is_behind = False
        node = await with_fake(cluster)
        lost = ask_controller(cluster)
        (await node.asked.get()).cut()
        assert isinstance(await lost, Lost)
        refused = ask_controller(cluster)
        cluster.world.controller = 1
        one = m.CreateTopicsResponseCreatableTopicResult(name="n", error_code=int(ErrorCode.NOT_CONTROLLER))
        (await node.asked.get()).answer(m.CreateTopicsResponse(topics=[one]))
        assert codes(await refused) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        node.close()

    play(story)


def metadata(*names: str) -> m.MetadataRequest:
    return m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )


def test_a_topic_that_a_client_names_is_created_by_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        answer = await client.ask(ApiKey.METADATA, 12, metadata("a", "b", "a/"))
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a/", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        while names_of(cluster, 1) != ["a", "b"]:
            await asyncio.sleep(0)
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        found = await client.ask(ApiKey.FIND_COORDINATOR, 4, find)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        while CONSUMER_OFFSETS not in names_of(cluster, 1):
            await asyncio.sleep(0)
        internal = cluster[1].broker.catalog.topic(CONSUMER_OFFSETS)
        assert internal is not None
        assert (internal.partition_count, internal.configs["cleanup.policy"]) == (50, "compact")
        assert names_of(cluster, 2) == []

    play(story)


def test_a_topic_is_asked_for_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_creation, "AUTO_CREATIONS_MAX", 3)

    async def story(cluster: Cluster) -> None:
        node = await with_fake(cluster)
        client = await cluster.connect(2)
        await client.ask(ApiKey.METADATA, 12, metadata("a", "b"))
        asked = await node.asked.get()
        assert asked.api_key is ApiKey.ENVELOPE
        assert asked.request.request_principal == principal_bytes(ANONYMOUS)
        await client.ask(ApiKey.METADATA, 12, metadata("a", "c", "d"))
        asked.cut()
        again = await node.asked.get()
        assert b"\x02c" in again.request.request_data
        assert b"\x02d" not in again.request.request_data
        assert b"\x02a" not in again.request.request_data
        again.answer(m.EnvelopeResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        await client.ask(ApiKey.METADATA, 12, metadata("a", "d"))
        last = await node.asked.get()
        assert b"\x02a" in last.request.request_data
        node.close()

    play(story)
