"""Apache Kafka's side of random SASL exchanges: one node with a listener for each kind of mechanism, and a client of it."""

import hashlib
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple, Self

from kohort.security.sasl.access_tokens import Unsecured
from kohort.security.sasl.authenticator import Step
from kohort.security.sasl.listener import SaslListener
from kohort.security.sasl.signed_tokens import Signed
from kohort.testing.kafka import KafkaNode
from kohort.testing.ports import free_ports
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_response_header
from kohort.wire.readers import response_reader
from tests.security.sasl.exchanges import Users, listener, read
from tests.security.sasl.tokens import Keys, key_set, private_key

SHA_256 = "SCRAM-SHA-256"
SALT = b"salt-of-the-tests"
ITERATIONS = 4_096
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "empty": ""}
SCOPES = ("a", "b")
AUDIENCES = ("kafka", "k2")
ISSUER = "https://issuer.test"
MECHANISMS = {"plain": "PLAIN", "scram": SHA_256, "unsecured": "OAUTHBEARER", "signed": "OAUTHBEARER"}
"""By listener."""
KEYS = (private_key("rsa", "RSA", 2_048), private_key("one"), private_key("ed", "OKP", "Ed25519"))
SECONDS_MAX = 10.0
_PREFIX = "org.apache.kafka.common.security"
_USERS = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())


class Answer(NamedTuple):
    """What a client hears of one message."""

    error_code: int
    error_message: str | None
    token: bytes
    lifetime_ms: int


def answer_of(step: Step) -> Answer | None:
    """Kohort's answer; None if the connection is closed without one."""
    if not step.answer:
        assert step.closes
        return None
    return _answer(read(step))


def _answer(response: Any) -> Answer:
    return Answer(response.error_code, response.error_message, bytes(response.auth_bytes), response.session_lifetime_ms)


def listeners() -> dict[str, SaslListener]:
    """The same listeners of Kohort."""
    users = Users({}, {("sally", SHA_256): "sally-secret"})
    signed = Signed(Keys(key_set(*KEYS)), AUDIENCES, ISSUER)
    return {
        "plain": listener(users, mechanisms=("PLAIN",), users=PASSWORDS),
        "scram": listener(users, mechanisms=(SHA_256,)),
        "unsecured": listener(users, mechanisms=("OAUTHBEARER",), tokens=Unsecured(required_scope=SCOPES)),
        "signed": listener(users, mechanisms=("OAUTHBEARER",), tokens=signed),
    }


class Kafka:
    """The node."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        keys = directory / "keys.json"
        keys.write_bytes(key_set(*KEYS))
        open_port, controller, *ports = free_ports(2 + len(MECHANISMS))
        self.ports = dict(zip(MECHANISMS, ports, strict=True))
        own = ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in self.ports.items())
        where = f"PLAINTEXT://127.0.0.1:{open_port},{own}"
        protocols = ",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in MECHANISMS)
        oauth, jaas = f"{_PREFIX}.oauthbearer.OAuthBearerLoginModule required", "sasl.jaas.config"
        of_signed = "listener.name.signed.oauthbearer.sasl"
        properties = {f"listener.name.{name}.sasl.enabled.mechanisms": mech for name, mech in MECHANISMS.items()} | {
            "listeners": f"{where},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": where,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}",
            f"listener.name.plain.plain.{jaas}": f"{_PREFIX}.plain.PlainLoginModule required {_USERS};",
            f"listener.name.scram.scram-sha-256.{jaas}": f"{_PREFIX}.scram.ScramLoginModule required;",
            f"listener.name.unsecured.oauthbearer.{jaas}": f'{oauth} unsecuredLoginStringClaim_sub="x" '
            f'unsecuredValidatorRequiredScope="{" ".join(SCOPES)}";',
            f"listener.name.signed.oauthbearer.{jaas}": f"{oauth};",
            f"{of_signed}.server.callback.handler.class": f"{_PREFIX}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{of_signed}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{of_signed}.oauthbearer.expected.audience": ",".join(AUDIENCES),
            f"{of_signed}.oauthbearer.expected.issuer": ISSUER,
            "connection.failed.authentication.delay.ms": "0",
        }
        self._node = KafkaNode(directory / "node", properties)
        self._node.port = open_port
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
        os.environ["JAVA_TOOL_OPTIONS"] = allowed
        try:
            self._node.start()
        finally:
            del os.environ["JAVA_TOOL_OPTIONS"]
        self._add_sally(open_port)

    def _add_sally(self, port: int) -> None:
        upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
            name="sally",
            mechanism=1,
            iterations=ITERATIONS,
            salt=SALT,
            salted_password=hashlib.pbkdf2_hmac("sha256", b"sally-secret", SALT, ITERATIONS),
        )
        with Connection(port) as connection:
            request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            answer = connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
            assert answer.results[0].error_code == 0

    def stop(self) -> None:
        self._node.stop()


class Connection:
    """A client of the node."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, api: ApiKey, version: int, request: Any) -> Any:
        """The response; None if the connection is closed instead."""
        try:
            self._socket.sendall(request_encoder(api, version)(1, "test", request))
            frame = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        except ConnectionError:
            return None
        if not frame:
            return None
        return response_reader(api, version)(frame, read_response_header(frame, api, version)[1])

    def authenticate(self, token: bytes) -> Answer | None:
        response = self.ask(ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=token))
        return None if response is None else _answer(response)
