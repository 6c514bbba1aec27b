"""
Clients and ways to log in: each client does its work with each mechanism, and says what is wrong with a wrong one.

Every client and every mechanism occurs in the short version; the long one has all pairs. docs/compatibility.md tells them.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from kohort.server.listeners.made_certificates import AUTHORITY, CLIENT, CLIENT_NAME
from kohort.testing.ports import free_ports
from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.logins.clients import (
    Aiokafka,
    FranzGo,
    Java,
    KafkaPython,
    Librdkafka,
    LoginClient,
    Make,
    RefusedError,
)
from tests.clients.logins.login import MECHANISMS, MUTUAL_TLS, OAUTHBEARER, Login
from tests.clients.secured import AUTHORIZER, PASSWORDS, client_properties, write_properties
from tests.clients.waiting import PATIENCE_S
from tests.conftest import LONG

CLIENTS = ("librdkafka", "aiokafka", "kafka-python", "java", *(("franz-go",) if LONG else ()))
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SHORT_SESSIONS = "SCRAM-SHA-256"
"""The mechanism whose sessions end after two seconds, unless the client logs in again."""
PAIRS = [
    (client, mechanism)
    for place, client in enumerate(CLIENTS)
    for number, mechanism in enumerate(MECHANISMS)
    if LONG or number == place or (client, mechanism) == ("java", MUTUAL_TLS)
]


class Secured(NamedTuple):
    """A broker with a listener for SASL and one for mutual TLS, and the files of the latter."""

    sasl: str
    tls: str
    authority: Path
    certificate: Path
    admin: Path

    def login(self, mechanism: str, user: str = "alice") -> Login:
        if mechanism == MUTUAL_TLS:
            return Login(self.tls, mechanism, user, authority=self.authority, certificate=self.certificate)
        return Login(self.sasl, mechanism, user, PASSWORDS[user])

    def allow(self, *words: str) -> None:
        self._acls("create", *words)

    def revoke(self, *words: str) -> None:
        self._acls("delete", *words)

    def _acls(self, verb: str, *words: str) -> None:
        kohort(
            "acls", verb, "--principal", "User:alice", *words, "--command-config", str(self.admin), bootstrap=self.sasl
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("logins")
    sasl, tls = free_ports(2)
    properties = AUTHORIZER | {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS[:4]),
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": f"RULE:.*CN={CLIENT_NAME}.*/alice/",
        f"listener.name.sasl_plaintext.{SHORT_SESSIONS.lower()}.connections.max.reauth.ms": "2000",
        "group.initial.rebalance.delay.ms": "0",
    }
    users = [word for name, password in PASSWORDS.items() for word in ("--user", f"{name}:{password}")]
    admin = write_properties(directory / "admin.properties", client_properties("admin", PASSWORDS["admin"]))
    with ServedKohort(directory / "node", properties, options=("--tls", *users)) as served:
        assert served.certificates is not None, "--tls makes them"
        files = (served.certificates / AUTHORITY, served.certificates / CLIENT)
        yield Secured(f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", *files, admin)


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program with franz-go; skips without Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    program = tmp_path_factory.mktemp("franz-go") / "login"
    command = (go, "build", "-buildvcs=false", "-o", str(program), "./logins")
    subprocess.run(command, cwd=Path(__file__).parents[1] / "franz_go", check=True, timeout=PATIENCE_S)
    return str(program)


@pytest.fixture
def make(request: pytest.FixtureRequest, client: str) -> Iterator[Make]:
    """Makes clients of one kind, and closes them."""
    kinds: dict[str, Make] = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "kafka-python": KafkaPython}
    if client == "java":
        kinds[client] = partial(Java, request.getfixturevalue("jvm"))
    elif client == "franz-go":
        kinds[client] = partial(FranzGo, request.getfixturevalue("franz_go"))
    kind = kinds[client]
    opened: list[LoginClient] = []

    def made(login: Login) -> LoginClient:
        opened.append(kind(login))
        return opened[-1]

    yield made
    for each in opened:
        each.close()


@pytest.mark.parametrize(("client", "mechanism"), PAIRS)
def test_a_client_does_its_work(secured: Secured, make: Make, client: str, mechanism: str) -> None:
    topic, group, transactional_id = (f"{name}-{uuid4().hex[:8]}" for name in ("topic", "group", "id"))
    secured.allow("--producer", "--topic", topic, "--transactional-id", transactional_id)
    secured.allow("--consumer", "--topic", topic, "--group", group)
    opened = make(secured.login(mechanism))
    opened.send(topic, "one")
    opened.transact(topic, transactional_id, "two")
    assert opened.read(topic, group, 2) == ["one", "two"]
    asked = ("offsets", group, "--command-config", str(secured.admin))
    (row,) = kohort_json(*asked, bootstrap=secured.sasl)
    assert (row["topic"], row["offset"]) == (topic, row["offset"])
    assert row["offset"] >= 2
    secured.revoke("--topic", topic)
    with pytest.raises(RefusedError, match=r"(?i)topic.?authorization"):
        opened.send(topic, "three")


WRONG = [
    (client, mechanism)
    for client, mechanism in PAIRS
    # The module of Java makes its token itself, and none that has ended. aiokafka takes a refused token for accepted, and asks
    # again for ever.
    if mechanism != MUTUAL_TLS and (client, mechanism) not in (("java", OAUTHBEARER), ("aiokafka", OAUTHBEARER))
]
SAID = {
    "librdkafka": "_AUTHENTICATION",
    "aiokafka": "Unable to bootstrap",
    "kafka-python": "Unable to bootstrap",
    "java": "SaslAuthenticationException",
    "franz-go": "SASL_AUTHENTICATION_FAILED|unexpected data in oauth response",
}
"""What a client says of a refused login."""


@pytest.mark.parametrize(("client", "mechanism"), WRONG)
def test_a_wrong_password_and_a_token_that_has_ended_are_refused(
    secured: Secured, make: Make, client: str, mechanism: str
) -> None:
    with pytest.raises(RefusedError, match=SAID[client]):
        make(secured.login(mechanism).wrong()).send("any", "one")


@pytest.mark.skipif(not LONG, reason="make test-long: the long run only")
@pytest.mark.parametrize("client", CLIENTS)
def test_sessions_that_end_lose_and_double_no_record(secured: Secured, make: Make, client: str) -> None:
    """For a minute: clients that know re-authentication log in again, the others connect again."""
    topic, group = (f"{name}-{uuid4().hex[:8]}" for name in ("topic", "group"))
    secured.allow("--producer", "--topic", topic)
    secured.allow("--consumer", "--topic", topic, "--group", group)
    opened = make(secured.login(SHORT_SESSIONS))
    sent: list[str] = []
    ends_s = time.monotonic() + 60
    while time.monotonic() < ends_s:
        sent.append(f"{len(sent)}")
        opened.send(topic, sent[-1])
    assert opened.read(topic, group, len(sent)) == sent
