"""The controller's side of forwarded requests: whose rights count, and what is refused."""

import asyncio
from typing import Any, Final

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.principals import ANONYMOUS, Principal
from kohort.security.operations import Operation
from kohort.server.peers.principals import address_bytes, principal_bytes, read_address, read_principal
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader
from tests.server.clients import Client
from tests.server.listeners.test_sasl import JAAS, authenticate
from tests.server.peers.two_nodes import Cluster, create, creation, play

LOOPBACK: Final = bytes((127, 0, 0, 1))


def framed(api: ApiKey = ApiKey.CREATE_TOPICS, version: int = 7, request: Any = None) -> bytes:
    """A request as an Envelope has it."""
    return request_encoder(api, version)(77, "asker", creation("a") if request is None else request)[4:]


def envelope(
    data: bytes, principal: bytes | None = principal_bytes(ANONYMOUS), address: bytes = LOOPBACK
) -> m.EnvelopeRequest:
    return m.EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


async def asked(client: Client, request: m.EnvelopeRequest) -> m.EnvelopeResponse:
    answer: m.EnvelopeResponse = await client.ask(ApiKey.ENVELOPE, 0, request)
    return answer


# -- bytes of users and addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("principal", "data"),
    [
        (ANONYMOUS, "0000 05 55736572 0a 414e4f4e594d4f5553 00 00"),
        (Principal("jürgen", "Group", is_token=True), "0000 06 47726f7570 08 6ac3bc7267656e 01 00"),
    ],
)
def test_a_user_has_the_bytes_of_kafkas_principal_builder(principal: Principal, data: str) -> None:
    assert principal_bytes(principal) == bytes.fromhex(data)
    assert read_principal(bytes.fromhex(data)) == principal
    with_tag = bytes.fromhex(data)[:-1] + b"\1\x05\2xy"
    assert read_principal(with_tag) == principal


BAD_PRINCIPALS = [
    b"",
    b"\0\1" + principal_bytes(ANONYMOUS)[2:],
    principal_bytes(ANONYMOUS)[:-1],
    principal_bytes(ANONYMOUS)[:-2],
    principal_bytes(ANONYMOUS)[:9],
    b"\0\0\0\0\0\0",
    b"\0\0\x05Us\xff\xff\x02a\0\0",
    b"\0\0\xff\xff\xff\xff\x0fa\x02a\0\0",
    principal_bytes(ANONYMOUS)[:-1] + b"\xff\xff\x03",
    principal_bytes(ANONYMOUS)[:-1] + b"\1\1\x40x",
]


@pytest.mark.parametrize(
    ("host", "data", "told"),
    [
        ("/127.0.0.1", LOOPBACK, "/127.0.0.1"),
        ("/0:0:0:0:0:0:0:1", bytes(15) + b"\1", "/0:0:0:0:0:0:0:1"),
        ("/fe80:0:0:0:0:0:0:1%eth0", b"\xfe\x80" + bytes(13) + b"\1", "/fe80:0:0:0:0:0:0:1"),
        ("", bytes(4), "/0.0.0.0"),
    ],
)
def test_an_address_has_the_bytes_of_java(host: str, data: bytes, told: str) -> None:
    assert address_bytes(host) == data
    assert read_address(data) == told


# -- hostile Envelopes -------------------------------------------------------------------------------------------


def test_an_envelope_is_answered_with_the_answer_to_its_request() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        answer = await asked(client, envelope(framed()))
        assert answer.error_code == 0
        data = answer.response_data
        assert data is not None
        assert data[:4] == (77).to_bytes(4, "big")
        response = response_reader(ApiKey.CREATE_TOPICS, 7)(data, 5)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", 0)]

    play(story)


@pytest.mark.parametrize("principal", [None, *BAD_PRINCIPALS], ids=repr)
def test_an_envelope_without_a_user_is_refused(principal: bytes | None) -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        answer = await asked(client, envelope(framed(), principal))
        assert (answer.error_code, answer.response_data) == (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, None)
        assert not list(cluster[1].broker.catalog.topics())

    play(story)


HOSTILE = {
    "nothing": b"",
    "half a header": framed()[:6],
    "half a client id": framed()[:11],
    "half a body": framed()[:-5],
    "no such api": b"\x03\xe8" + framed()[2:],
    "a negative api": b"\xff\xff" + framed()[2:],
    "not forwarded": framed(ApiKey.METADATA, 12, m.MetadataRequest()),
    "a login": framed(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN")),
    "nested": framed(ApiKey.ENVELOPE, 0, envelope(framed())),
    "producer ids": framed(ApiKey.ALLOCATE_PRODUCER_IDS, 0, m.AllocateProducerIdsRequest(broker_id=1)),
    "markers": framed(ApiKey.WRITE_TXN_MARKERS, 2, m.WriteTxnMarkersRequest()),
    "a huge array": framed()[:16] + b"\xff\xff\xff\xff\x07" + bytes(40),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_controller_handles_is_refused(data: bytes) -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        answer = await asked(client, envelope(data))
        assert (answer.error_code, answer.response_data) == (ErrorCode.INVALID_REQUEST, None)
        # The connection of the node stays: its other requests are not concerned.
        assert (await asked(client, envelope(framed()))).error_code == 0

    play(story)


def test_an_unknown_version_and_an_address_of_no_length_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(1)
        newer = framed()[:2] + b"\0\x63" + framed()[4:]
        assert (await asked(client, envelope(newer))).error_code == ErrorCode.UNSUPPORTED_VERSION
        for address in (b"", b"123", b"12345", bytes(17)):
            answer = await asked(client, envelope(framed(), address=address))
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not list(cluster[1].broker.catalog.topics())

    play(story)


def test_an_envelope_for_another_controller_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        client = await cluster.connect(2)
        answer = await asked(client, envelope(framed()))
        assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert not list(cluster[2].broker.catalog.topics())

    play(story)


def test_a_controller_that_has_moved_meanwhile_refuses_the_envelope() -> None:
    """Only then an error of the request is one of the Envelope: the asking node has to find the next controller."""

    async def story(cluster: Cluster) -> None:
        moves = iter((1, 2))

        def handler(_request: Any, _context: Any, reply: Any) -> None:
            cluster.world.controller = next(moves)
            one = m.CreateTopicsResponseCreatableTopicResult(name="a", error_code=int(ErrorCode.NOT_CONTROLLER))
            reply(m.CreateTopicsResponse(topics=[one]))

        cluster[1].dispatch.here(ApiKey.CREATE_TOPICS, 7).long.handler = handler
        client = await cluster.connect(1)
        assert (await asked(client, envelope(framed()))).error_code == 0
        answer = await asked(client, envelope(framed()))
        assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)

    play(story)


def test_a_node_that_is_alone_serves_no_requests_between_nodes() -> None:
    from tests.server.clients import play as play_alone

    async def story(_node: Any, connect: Any) -> None:
        for api, request in (
            (ApiKey.ENVELOPE, envelope(framed())),
            (ApiKey.ALLOCATE_PRODUCER_IDS, m.AllocateProducerIdsRequest()),
        ):
            client = await connect()
            client.send(api, 0, request)
            assert await client.is_closed()

    play_alone(story)


# -- users -------------------------------------------------------------------------------------------------------

SECURED: Final = {
    "listeners": "CLIENT://127.0.0.1:0,BROKER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,BROKER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": JAAS,
    "listener.name.broker.plain.sasl.jaas.config": JAAS[:-1] + ' user_broker="of-the-broker";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
    "connection.failed.authentication.delay.ms": "1",
}


async def logged_in(cluster: Cluster, node_id: int, user: str = "alice", number: int = 0) -> Client:
    client = await cluster.connect(node_id, number)
    password = "of-the-broker" if user == "broker" else f"{user}-secret"
    assert (await authenticate(client, user, password)).error_code == 0
    return client


async def allow(cluster: Cluster, node_id: int, user: str, operation: Operation, host: str = "*") -> None:
    """Have a node allow a user something with every topic."""
    before, cluster.world.controller = cluster.world.controller, node_id
    creation = m.CreateAclsRequestAclCreation(
        resource_type=2,
        resource_name="*",
        resource_pattern_type=3,
        principal=f"User:{user}",
        host=host,
        operation=operation.value,
        permission_type=3,
    )
    client = await logged_in(cluster, node_id, "broker", 1)
    answer = await client.ask(ApiKey.CREATE_ACLS, 3, m.CreateAclsRequest(creations=[creation]))
    assert answer.results[0].error_code == 0
    cluster.world.controller = before


def test_the_rights_of_the_asker_count_and_only_at_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        alice, bob = [await logged_in(cluster, 2, user) for user in ("alice", "bob")]
        await allow(cluster, 2, "bob", Operation.CREATE)
        for client in (alice, bob):
            assert [each.error_code for each in (await create(client, "a")).topics] == [
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ]
        await allow(cluster, 1, "alice", Operation.CREATE, "127.0.0.1")
        assert [each.error_code for each in (await create(alice, "a")).topics] == [0]
        assert [each.error_code for each in (await create(bob, "b")).topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await allow(cluster, 1, "bob", Operation.CREATE, "10.0.0.1")  # from where he does not ask
        assert [each.error_code for each in (await create(bob, "b")).topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        cluster.world.controller = 2
        assert [each.error_code for each in (await create(bob, "b")).topics] == [0]

    play(story, SECURED)


def test_the_address_of_the_asker_counts_and_not_that_of_the_node() -> None:
    async def story(cluster: Cluster) -> None:
        await allow(cluster, 1, "bob", Operation.CREATE, "10.0.0.1")
        node = await logged_in(cluster, 1, "broker", 1)
        for address, code in ((LOOPBACK, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (bytes((10, 0, 0, 1)), ErrorCode.NONE)):
            answer = await asked(node, envelope(framed(), principal_bytes(Principal("bob")), address))
            assert answer.response_data is not None
            response = response_reader(ApiKey.CREATE_TOPICS, 7)(answer.response_data, 5)
            assert [topic.error_code for topic in response.topics] == [code]

    play(story, SECURED)


def test_a_topic_that_is_named_is_created_with_the_rights_of_who_names_it() -> None:
    async def story(cluster: Cluster) -> None:
        for operation in (Operation.CREATE, Operation.DESCRIBE):
            await allow(cluster, 2, "alice", operation)
        alice = await logged_in(cluster, 2)
        request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="a")], allow_auto_topic_creation=True)

        async def name() -> None:
            answer = await alice.ask(ApiKey.METADATA, 12, request)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            while cluster[2].broker.creation.elsewhere.__self__._asked:  # type: ignore[attr-defined]
                await asyncio.sleep(0)

        await name()
        assert cluster[1].broker.catalog.topic("a") is None
        await allow(cluster, 1, "alice", Operation.CREATE)
        await name()
        assert cluster[1].broker.catalog.topic("a") is not None

    play(story, SECURED)


def test_only_a_node_may_send_an_envelope_and_only_where_nodes_ask_each_other() -> None:
    async def story(cluster: Cluster) -> None:
        request = envelope(framed(), principal_bytes(Principal("broker")))
        alice = await logged_in(cluster, 1, "alice", 1)
        assert (await asked(alice, request)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer = await alice.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, m.AllocateProducerIdsRequest(broker_id=2))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not list(cluster[1].broker.catalog.topics())
        assert cluster[1].broker.catalog.next_producer_id == 0
        node = await logged_in(cluster, 1, "broker", 1)
        assert (await asked(node, request)).error_code == 0
        assert (await node.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, m.AllocateProducerIdsRequest())).error_code == 0

    play(story, SECURED)


def test_requests_between_nodes_close_a_connection_of_clients() -> None:
    configs = {
        "listeners": "CLIENT://127.0.0.1:0,BROKER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
    }

    async def story(cluster: Cluster) -> None:
        for api, request in (
            (ApiKey.ENVELOPE, envelope(framed())),
            (ApiKey.ALLOCATE_PRODUCER_IDS, m.AllocateProducerIdsRequest()),
        ):
            client = await cluster.connect(1)
            client.send(api, 0, request)
            assert await client.is_closed()
            assert (await (await cluster.connect(1, 1)).ask(api, 0, request)).error_code == 0

    play(story, configs)
