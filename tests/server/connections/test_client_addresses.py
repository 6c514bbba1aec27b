"""The address of a client, as its requests, its groups and access rules name it."""

import socket

import pytest

from kohort.broker.cluster import Endpoint
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import Connect, play_at, served


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_is_in_javas_text_on_both_ip_versions() -> None:
    async def story(node: Node, connect: Connect) -> None:
        ((_, port),) = node.bound[1]
        for own in ("127.0.0.1", "::1"):
            client = await connect(Endpoint(own, port))
            await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, m.DescribeClusterRequest(endpoint_type=1))
        assert sorted(each.client_host for each in served(node)) == ["/0:0:0:0:0:0:0:1", "/127.0.0.1"]

    play_at(story, listeners="PLAINTEXT://[::]:0", allow_anonymous=True)
