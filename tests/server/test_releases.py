"""Brokers that are like different releases of Apache Kafka, in one process: clients see what a node of the release shows."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ErrorCode
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import RELEASES, ApiKey, versions_in
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader
from tests.broker.configs.record_definitions import definitions
from tests.server.clients import Client

DATA = Path(__file__).parent.parent / "data"
ABSENT_FEATURES = {"streams.version"}
"""Kohort has no such groups."""
OF_QUORUM = {"kraft.version"}
"""Finalised by a node whose voters can change; the recorded nodes have fixed ones."""
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}

Clients = dict[str, Client]


def play(story: Callable[[Clients], Awaitable[None]], **settings: str) -> None:
    """Run a story with a client of a broker of each release, all in one loop."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        explicit = {name.replace("_", "."): text for name, text in settings.items()}
        nodes = {
            release: Node(Settings(port=0, config=BrokerConfig(explicit, release=release)), loop)
            for release in RELEASES
        }
        clients: Clients = {}
        try:
            for release, node in nodes.items():
                clients[release] = Client(*await asyncio.open_connection(*await node.start()))
            async with asyncio.timeout(60):
                await story(clients)
        finally:
            for node in nodes.values():
                await node.stop()
            for client in clients.values():
                client.writer.close()

    asyncio.run(run())


async def api_versions(client: Client, version: int, **expected: Any) -> m.ApiVersionsResponse:
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1", **expected)
    sent = request_encoder(ApiKey.API_VERSIONS, ApiKey.API_VERSIONS.newest)(1, "test", request)
    client.writer.write(sent[:6] + version.to_bytes(2, "big") + sent[8:])
    frame = await client.frame()
    is_refused = frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    answer: m.ApiVersionsResponse = response_reader(ApiKey.API_VERSIONS, 0 if is_refused else version)(frame, 4)
    return answer


def test_apis_versions_and_features_are_those_of_a_fresh_node_of_the_release() -> None:
    async def story(clients: Clients) -> None:
        for release, client in clients.items():
            answer = await api_versions(client, versions_in(release)[ApiKey.API_VERSIONS].newest)
            shown = {each.api_key: [each.min_version, each.max_version] for each in answer.api_keys}
            recorded = json.loads((DATA / f"api-versions-{release}.json").read_text())
            assert shown == {int(key): found for key, found in recorded.items()}
            features = json.loads((DATA / f"features-{release}.json").read_text())
            assert {each.name: [each.min_version, each.max_version] for each in answer.supported_features} == {
                name: levels for name, levels in features["supported"].items() if name not in ABSENT_FEATURES
            }
            assert {
                each.name: each.max_version_level for each in answer.finalized_features if each.name not in OF_QUORUM
            } == {name: level for name, level in features["finalized"].items() if name not in ABSENT_FEATURES}

    play(story)


def test_an_unknown_version_of_api_versions_is_answered_with_those_of_the_release() -> None:
    async def story(clients: Clients) -> None:
        for release, newest in (("4.2.1", 4), ("4.4.0", 5)):
            answer = await api_versions(clients[release], newest + 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, newest)]
            assert (await api_versions(clients[release], newest)).error_code == ErrorCode.NONE

    play(story)


def test_a_connection_stays_open_when_its_client_expects_another_broker() -> None:
    async def story(clients: Clients) -> None:
        client = clients["4.4.0"]
        for expected, code in (
            ({"node_id": 1}, ErrorCode.INVALID_REQUEST),
            ({"node_id": 1, "cluster_id": "another"}, ErrorCode.REBOOTSTRAP_REQUIRED),
            ({}, ErrorCode.NONE),
        ):
            assert (await api_versions(client, 5, **expected)).error_code == code

    play(story)


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [
        (ApiKey.DELETE_GROUPS, 3, m.DeleteGroupsRequest()),
        (ApiKey.UNREGISTER_CONTROLLER, 0, m.UnregisterControllerRequest()),
    ],
    ids=["version", "API"],
)
def test_what_the_release_lacks_closes_the_connection(api: ApiKey, version: int, request_: Any) -> None:
    async def story(clients: Clients) -> None:
        client = clients["4.2.1"]
        client.send(api, version, request_)
        assert await client.is_closed()

    play(story)


async def described(client: Client, kind: int, name: str) -> dict[str, m.DescribeConfigsResourceResult]:
    resource = m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, m.DescribeConfigsRequest(resources=[resource]))
    (result,) = answer.results
    assert result.error_code == 0, result
    return {entry.name: entry for entry in result.configs}


@pytest.mark.parametrize(("kind", "number", "name"), [("broker", 4, "1"), ("topic", 2, "t"), ("group", 32, "g")])
def test_configurations_are_those_of_the_release(kind: str, number: int, name: str) -> None:
    """The keys of Kafka's own classes that are not internal, with their defaults."""

    async def story(clients: Clients) -> None:
        for release, client in clients.items():
            topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=1_000))
            keys = {key: row for key, row in definitions(release)[kind].items() if not row[-1]}
            shown = await described(client, number, name)
            assert set(shown) == set(keys)
            for entry in shown.values():
                if entry.config_source == 5 and kind != "broker":
                    # A group's default is the broker's value: here the first of `group.streams.assignors`.
                    is_of_list = entry.name == "streams.assignor.name"
                    assert entry.value == ("sticky" if is_of_list else keys[entry.name][1])
            if kind == "topic":
                assert {each.name for each in created.topics[0].configs or ()} == set(keys)

    play(story)


async def altered(client: Client, kind: int, name: str, key: str, value: str) -> tuple[int, str | None]:
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[change]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)).responses
    return answer.error_code, answer.error_message


def test_a_group_has_the_configurations_of_the_release() -> None:
    async def story(clients: Clients) -> None:
        key = "consumer.assignment.interval.ms"
        assert await altered(clients["4.2.1"], 32, "g", key, "0") == (40, f"Unknown group config name: {key}")
        assert await altered(clients["4.4.0"], 32, "g", key, "0") == (0, None)
        assert (await described(clients["4.4.0"], 32, "g"))[key].value == "0"

    play(story)


def test_a_broker_takes_a_configuration_that_its_release_lacks_and_hides_its_value() -> None:
    key = "group.consumer.assignment.interval.ms"

    async def story(clients: Clients) -> None:
        for release, value, is_sensitive in (("4.2.1", None, True), ("4.4.0", "7", False)):
            entry = (await described(clients[release], 4, "1"))[key]
            assert (entry.value, entry.is_sensitive, entry.config_source) == (value, is_sensitive, 4)
            assert await altered(clients[release], 4, "", key, "8") == (0, None)
            entry = (await described(clients[release], 4, ""))[key]
            assert (entry.value, entry.is_sensitive) == (value and "8", is_sensitive)

    play(story, group_consumer_assignment_interval_ms="7")
