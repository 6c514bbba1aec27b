"""Brokers that are asked: Apache Kafka and Kohort over sockets, with a listener for users, and Kohort in this process."""

import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from kohort.broker.broker import Broker
from kohort.broker.cluster import Cluster
from kohort.broker.configs.definitions import BrokerConfig
from kohort.client.addresses import Address
from kohort.client.connection import Connection, Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.principals import ANONYMOUS, Principal
from kohort.runtime.processors import InlineProcessor
from kohort.security.acls.acl import Acl
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import COORDINATORS
from kohort.storage.memory import MemoryStore
from kohort.testing.context import FixedContext
from kohort.testing.kafka import KafkaNode
from kohort.testing.ports import free_ports
from kohort.testing.served import ServedKohort
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader, response_reader
from kohort_lab.authorization.questions import EVERYTHING, Question
from kohort_lab.authorization.rules import ADDRESSES, NAMES, USERS, token_of

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "delegation.token.secret.key": "secret",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Of both brokers. The connection without a user prepares everything."""
TIMEOUT_S: Final = 30.0
_AGAIN: Final = frozenset((14, 15, 16))
"""Codes of coordinators that are not there yet."""
_PROTOCOLS: Final = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class AskedBroker:
    """A broker that users ask. `ask_first` asks as the super user."""

    def __init__(self) -> None:
        self._token_ids: dict[str, str] = {}
        """By what stands for them in ACLs."""

    def ask(self, user: str, address: str, question: Question) -> Any:
        """The answer to a question of a user at an address."""
        raise NotImplementedError

    def ask_first(self, api: ApiKey, version: int, request: Any) -> Any:
        raise NotImplementedError

    def pause(self) -> None:
        """Let some time pass."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the topics, and those of the coordinators."""
        created = [
            m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES
        ]
        self.ask_first(ApiKey.CREATE_TOPICS, 4, m.CreateTopicsRequest(topics=created, timeout_ms=10_000))
        leave = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
        end = m.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)
        producer = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        for kind in (0, 1):
            self.ask_first(ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"]))
        for api, request in ((ApiKey.HEARTBEAT, leave), (ApiKey.END_TXN, end), (ApiKey.INIT_PRODUCER_ID, producer)):
            self._until(partial(self._is_ready, api, request))

        for user in USERS:
            own = m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
            made = self.ask(user, ADDRESSES[0], Question(ApiKey.CREATE_DELEGATION_TOKEN, 3, own, 0))
            assert not made.error_code, made
            self._token_ids[token_of(user)] = made.token_id

    def _is_ready(self, api: ApiKey, request: Any) -> bool:
        return self.ask_first(api, 3, request).error_code not in _AGAIN

    def replace_acls(self, acls: Sequence[Acl]) -> None:
        """Replace all ACLs, and wait until the broker decides by the new ones."""
        everything = m.DeleteAclsFilter(**EVERYTHING)
        self.ask_first(ApiKey.DELETE_ACLS, 3, m.DeleteAclsRequest(filters=[everything]))
        acls = [acl._replace(name=self._token_ids.get(acl.name, acl.name)) for acl in acls]
        creations = [
            m.CreateAclsRequestAclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        answer = self.ask_first(ApiKey.CREATE_ACLS, 3, m.CreateAclsRequest(creations=creations))
        refused = [each for each in answer.results if each.error_code]
        assert not refused, refused
        self._until(lambda: self._described() == sorted(map(tuple, acls)))

    def _described(self) -> list[tuple[Any, ...]]:
        request = m.DescribeAclsRequest(**EVERYTHING)
        resources = self.ask_first(ApiKey.DESCRIBE_ACLS, 3, request).resources
        return sorted(
            (*_pattern(each), acl.principal, acl.host, acl.operation, acl.permission_type)
            for each in resources
            for acl in each.acls
        )

    def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(3_000):
            if condition():
                return
            self.pause()
        raise TimeoutError("the broker does not reach the state that was asked for")


def _pattern(resource: m.DescribeAclsResource) -> tuple[int, int, str]:
    return resource.resource_type, resource.pattern_type, resource.resource_name


class _FromAddress(Connection):
    """A connection from an address of this machine."""

    def __init__(self, source: str, address: Address, security: Security) -> None:
        self._source = source
        super().__init__(address, TIMEOUT_S, security)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=TIMEOUT_S, source_address=(self._source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class AskedOverSockets(AskedBroker):
    """
    A process with a listener for the super user, and one for PLAIN.

    Args:
        make: makes the process with its configurations.
    """

    def __init__(self, make: Callable[[Mapping[str, str]], KafkaNode | ServedKohort]) -> None:
        super().__init__()
        port, users_port, controller_port = free_ports(3)
        users = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
        clients = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{users_port}"
        self._node = make(
            SETTINGS
            | {
                "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": clients,
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
                "listener.security.protocol.map": _PROTOCOLS,
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_PLAIN} {users};",
            }
        )
        if isinstance(self._node, KafkaNode):
            self._node.port = port
        self._node.start()
        self._first = Connection(Address("127.0.0.1", port), TIMEOUT_S, PLAINTEXT)
        self._connections = {
            (user, source): _FromAddress(
                source,
                Address("127.0.0.1", users_port),
                Security(mechanism="PLAIN", username=user, password=f"{user}-secret"),
            )
            for user in USERS
            for source in ADDRESSES
        }

    def ask(self, user: str, address: str, question: Question) -> Any:
        version = Versions(question.version, question.version)
        return self._connections[user, address].send(question.api, question.request, within=version)

    def ask_first(self, api: ApiKey, version: int, request: Any) -> Any:
        return self._first.send(api, request, within=Versions(version, version))

    def pause(self) -> None:
        time.sleep(0.01)

    def close(self) -> None:
        for connection in (self._first, *self._connections.values()):
            connection.close()
        self._node.stop()


class AskedKohort(AskedBroker):
    """Kohort over memory, in virtual time. Requests and answers pass through the codec."""

    def __init__(self) -> None:
        super().__init__()
        self._node = node = VirtualNode()
        hosted = Coordinators(node.defer)
        self._broker = Broker(
            MemoryStore(node.defer, clock=node.clock),
            Cluster(1, "kohort-lab", "127.0.0.1", 9092),
            BrokerConfig(SETTINGS),
            node.clock,
            node.call_later,
            coordinators=hosted,
        )
        hosted.start(COORDINATORS, self._broker, partial(InlineProcessor, node.wheel, node.defer, node.call_soon))
        hosted.load()
        node.settle()

    def ask(self, user: str, address: str, question: Question) -> Any:
        return self._ask(Principal(user), address, question.api, question.version, question.request)

    def ask_first(self, api: ApiKey, version: int, request: Any) -> Any:
        return self._ask(ANONYMOUS, ADDRESSES[0], api, version, request)

    def pause(self) -> None:
        self._node.advance(100)

    def _ask(self, principal: Principal, address: str, api: ApiKey, version: int, request: Any) -> Any:
        frame = request_encoder(api, version)(7, "lab", request)[4:]
        read = request_reader(api, version)(frame, read_request_header(frame)[4])
        answers: list[Any] = []
        context = FixedContext(version, client_host=f"/{address}", principal=principal)
        response = self._broker.handlers[api](read, context, answers.append)
        response = drain(response) if isinstance(response, Generator) else response
        answers += [] if response is None else [response]
        for _ in range(600):
            self._node.settle()
            if answers:
                break
            self.pause()
        answered = response_encoder(api, version)(7, answers[0])
        return response_reader(api, version)(answered, 8 + api.response_header_version(version))
