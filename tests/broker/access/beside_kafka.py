"""Apache Kafka and Kohort side by side: the same access rules, the same requests, equal answers."""

import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kohort.broker.ports import NoResponse
from kohort.model.ids import uuid_text
from kohort.security.acls.acl import PatternType, Permission
from kohort.security.operations import Operation, ResourceType
from kohort.testing.kafka import KafkaNode
from kohort.testing.ports import free_ports
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.access.matrix import SETTINGS, filled
from tests.broker.access.random_requests import GROUPS, IDS, TOPICS, Asked
from tests.broker.access.secured import Users

CLOSED = "closed"
SUPER = "ANONYMOUS"
SECONDS_MAX = 30.0
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="x" user_alice="x" user_bob="x";'
DIFFERENT = frozenset({"brokers", "clusterId", "controllerId", "host", "port", "nodeEndpoints", "throttleTimeMs"})
"""Fields that say where a broker is."""
ALL_ACLS = {"resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1, "principalFilter": None,
            "hostFilter": None, "operation": 1, "permissionType": 1}  # fmt: skip
AGAIN = {14, 15, 51}


_NO_ID = uuid_text(None)


class Side:
    """One broker, with the fixtures."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        topics = [{"name": name, "numPartitions": 2, "replicationFactor": 1} for name in TOPICS]
        made = self.ask(SUPER, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeoutMs": 30_000})
        self.ids = {topic["name"]: topic["topicId"] for topic in made["topics"]}
        for group in GROUPS:
            self._until_found(0, group)
            partition = {"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}
            named = [{"name": name, "partitions": [partition]} for name in TOPICS]
            self._until_done(ApiKey.OFFSET_COMMIT, 9, {"groupId": group, "memberId": "", "topics": named})
        for one in IDS:
            self._until_found(1, one)
            self._until_done(ApiKey.INIT_PRODUCER_ID, 5, {"transactionalId": one, "transactionTimeoutMs": 60_000})
        described = self.ask(SUPER, ApiKey.METADATA, 12, {"topics": None, "allowAutoTopicCreation": False})
        self.ids = {topic["name"]: topic["topicId"] for topic in described["topics"]}

    def _until_found(self, kind: int, key: str) -> None:
        self._until_done(ApiKey.FIND_COORDINATOR, 6, {"keyType": kind, "coordinatorKeys": [key]})

    def _until_done(self, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            answer = self.ask(SUPER, api, version, request)
            if not codes(answer) - {0}:
                return answer
            assert time.monotonic() < deadline, answer
            self.rest()

    def rest(self) -> None:
        """Let time pass."""
        raise NotImplementedError

    def ask(self, user: str, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
        """The answer in Kafka's JSON names, or `CLOSED`."""
        raise NotImplementedError

    def answer(self, asked: Asked) -> Any:
        """The answer without what differs from broker to broker."""
        answer = self.ask(asked.user, asked.api, asked.version, asked.request)
        while codes(answer) & AGAIN:
            self.rest()
            answer = self.ask(asked.user, asked.api, asked.version, asked.request)
        names = {topic_id: f"id of {name}" for name, topic_id in self.ids.items()}
        return _comparable(answer, names)

    def use(self, acls: Sequence[dict[str, str]]) -> None:
        """Have these rules and no others."""
        self.ask(SUPER, ApiKey.DELETE_ACLS, 3, {"filters": [ALL_ACLS]})
        self._until_there_are(0)
        creations = [
            {
                "resourceType": ResourceType[acl["resource"]],
                "resourceName": acl["name"],
                "resourcePatternType": PatternType[acl["pattern"]],
                "principal": acl["principal"],
                "host": acl["host"],
                "operation": Operation[acl["operation"]],
                "permissionType": Permission[acl["permission"]],
            }
            for acl in acls
        ]
        made = self.ask(SUPER, ApiKey.CREATE_ACLS, 3, {"creations": creations})
        assert not codes(made) - {0}, made
        self._until_there_are(len({tuple(acl.values()) for acl in acls}))

    def _until_there_are(self, count: int) -> None:
        """Wait for the authorizer of the broker: the controller answers a change before it has an effect."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._acls() != count:
            assert time.monotonic() < deadline, "the rules have not arrived"

    def _acls(self) -> int:
        found = self.ask(SUPER, ApiKey.DESCRIBE_ACLS, 3, ALL_ACLS)
        return sum(len(resource["acls"]) for resource in found["resources"])


class KohortSide(Side):
    def __init__(self) -> None:
        self._broker = Users(
            **SETTINGS | {"super_users": f"User:{SUPER};User:admin"}, auto_create_topics_enable="false"
        )
        super().__init__()

    def rest(self) -> None:
        self._broker.node.advance(50)

    def ask(self, user: str, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
        asked = request_of(api, filled(request, self.ids))
        answer = self._broker.ask_as(user, api, asked, version)
        return CLOSED if isinstance(answer, NoResponse) else json_of(api, version, answer)


class KafkaSide(Side):
    def __init__(self, directory: Path) -> None:
        plain, sasl, controller = free_ports(3)
        where = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
        settings = {name.replace("_", "."): value for name, value in SETTINGS.items()}
        self._node = KafkaNode(
            directory,
            settings
            | {
                "super.users": f"User:{SUPER}",
                "auto.create.topics.enable": "false",
                "listeners": f"{where},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": where,
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            },
        )
        self._node.port = plain
        self._sasl_port = sasl
        self._connections: dict[str, socket.socket] = {}
        self._node.start()
        try:
            super().__init__()
        except BaseException:
            self._node.stop()
            raise

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._node.stop()

    def rest(self) -> None:
        time.sleep(0.05)

    def ask(self, user: str, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
        connection = self._connections.get(user) or self._connect(user)
        asked = request_of(api, filled(request, self.ids))
        connection.sendall(request_encoder(api, version)(7, user, asked))
        try:
            frame = _frame(connection)
        except ConnectionError:
            self._connections.pop(user).close()
            return CLOSED
        _, body = read_response_header(frame, api, version)
        return json_of(api, version, response_reader(api, version)(frame, body))

    def _connect(self, user: str) -> socket.socket:
        port = self._node.port if user == SUPER else self._sasl_port
        connection = self._connections[user] = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        if user != SUPER:
            token = f"\0{user}\0x".encode().hex()
            for api, fields in (
                (ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}),
                (ApiKey.SASL_AUTHENTICATE, {"authBytes": token}),
            ):
                assert self.ask(user, api, 1, fields)["errorCode"] == 0
        return connection


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = b""
        with suppress(ConnectionResetError):
            more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def codes(answer: Any) -> set[int]:
    """The error codes of an answer, wherever they are."""
    if isinstance(answer, dict):
        found = {value for key, value in answer.items() if key.lower().endswith("errorcode") and isinstance(value, int)}
        return found.union(*map(codes, answer.values()))
    return set().union(*map(codes, answer)) if isinstance(answer, list) else set()


def _comparable(answer: Any, names: dict[str, str]) -> Any:
    if isinstance(answer, list):
        return [_comparable(one, names) for one in answer]
    if isinstance(answer, str):
        return names.get(answer, answer)
    if not isinstance(answer, dict):
        return answer
    found = {key: _comparable(value, names) for key, value in answer.items() if key not in DIFFERENT}
    if found.get("errorCode") == 31:
        found.pop("errorMessage", None)  # Kafka prints its request object.
    if found.get("topicId") not in (None, *names.values(), _NO_ID):
        found["topicId"] = "some"
    for key in ("producerId", "issueTimestampMs", "expiryTimestampMs", "maxTimestampMs"):
        if found.get(key, -1) > 0:
            found[key] = "some"
    for key in ("tokenId", "hmac"):
        if found.get(key):
            found[key] = "some"
    return found
