"""Requests before the login on a listener with SASL: which faults they meet."""

import asyncio
from typing import Any

import pytest

from kohort.broker.cluster import Endpoint
from kohort.control.requests.faults import FaultSpec
from kohort.control.server import ControlServer
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import Client, play_at

CONFIGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    ),
}
VERSIONS = m.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
HANDSHAKE = m.SaslHandshakeRequest(mechanism="PLAIN")
CLOSED = "closed"


async def answered(client: Client, api: ApiKey, version: int, request: object) -> Any:
    try:
        return await client.ask(api, version, request)
    except asyncio.IncompleteReadError:
        return CLOSED


@pytest.mark.parametrize(
    ("effect", "code"),
    [
        ({"observe": True}, 0),
        ({"error": "UNSUPPORTED_VERSION"}, 35),
        ({"answer": {"error_code": 7}}, 7),
        ({"disconnect": "before"}, CLOSED),
        ({"disconnect": "after"}, CLOSED),
        ({"delay": 0.001}, CLOSED),
        ({"silence": True}, CLOSED),
        ({"black_hole": True}, CLOSED),
        ({"slow": 1000}, CLOSED),
    ],
)
def test_the_versions_are_refused_at_once_or_not_at_all(effect: dict[str, Any], code: object) -> None:
    async def story(node: Node, connect: Any) -> None:
        control = ControlServer(node)
        await control.start("127.0.0.1", 0, None)
        assert control.kit is not None
        ((endpoint,),) = node.bound.values()
        client: Client = await connect(Endpoint(*endpoint))
        fault = control.kit.add_fault(FaultSpec(api="ApiVersions", **effect))
        answer = await answered(client, ApiKey.API_VERSIONS, 3, VERSIONS)
        assert (CLOSED if answer == CLOSED else answer.error_code) == code
        assert fault.hits == 1
        # The login itself meets no fault.
        fault = control.kit.add_fault(FaultSpec(api="SaslHandshake", **effect))
        other: Client = await connect(Endpoint(*endpoint))
        assert (await answered(other, ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
        assert fault.hits == 0
        await control.close()

    play_at(story, configs=CONFIGS)
