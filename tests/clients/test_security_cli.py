"""`kohort acls`, `kohort users` and `kohort tokens` against brokers that ask for a login."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort.testing.kafka import UnavailableKafkaError
from tests.clients.conftest import Broker
from tests.clients.kohort_command import kohort
from tests.clients.secured import PASSWORDS, client_properties, secured_kafka, secured_kohort, write_properties
from tests.clients.waiting import wait_until

ROW = ("principal", "permission", "operation", "resource_type", "name", "pattern", "host")


class Secured:
    """A broker, and the commands of one of its users."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self._directory = directory

    def file(self, user: str, password: str | None = None, **how: Any) -> str:
        properties = client_properties(user, password or PASSWORDS[user], **how)
        return str(write_properties(self._directory / f"{user}.properties", properties))

    def run(self, *words: str, user: str = "admin", codes: tuple[int, ...] = (0,)) -> Any:
        """A command of a user; what it prints as JSON, or its error."""
        asked = (*words, "--json", "--command-config", self.file(user))
        done = kohort(*asked, bootstrap=self.bootstrap, codes=codes)
        return done.stderr if done.returncode else json.loads(done.stdout)

    def said(self, *words: str, user: str = "admin") -> str:
        return kohort(*words, "--command-config", self.file(user), bootstrap=self.bootstrap).stdout


BROKERS = ["kohort", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.maven])]


@pytest.fixture(scope="module", params=BROKERS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured-cli")
    try:
        node = secured_kohort(directory / "node") if request.param == "kohort" else secured_kafka(directory / "node")
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with node:
        yield Secured(node.bootstrap, directory)


def rows(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(row[field] for field in ROW) for row in found]


@pytest.fixture
def no_acls(secured: Secured) -> Iterator[None]:
    yield
    secured.run("acls", "delete", "--all")
    wait_until(lambda: secured.run("acls", "list") == [], what="no ACL is left")


def seen(secured: Secured, *words: str, count: int) -> list[tuple[Any, ...]]:
    """The ACLs that a command shows, once there are as many: a broker of Kafka follows its controller some time later."""
    found: list[list[tuple[Any, ...]]] = []

    def are_there() -> bool:
        found.append(rows(secured.run("acls", "list", *words)))
        return len(found[-1]) == count

    wait_until(are_there, what=f"{count} ACLs")
    return found[-1]


@pytest.mark.usefixtures("no_acls")
def test_acls_from_their_creation_to_their_end(secured: Secured) -> None:
    words = ("acls", "create", "--principal", "User:alice", "--topic", "orders-", "--prefixed")
    created = secured.run(*words, "--operation", "read", "--operation", "DescribeConfigs", "--host", "10.0.0.0/8")
    expected = [
        ("User:alice", "ALLOW", "READ", "TOPIC", "orders-", "PREFIXED", "10.0.0.0/8"),
        ("User:alice", "ALLOW", "DESCRIBE_CONFIGS", "TOPIC", "orders-", "PREFIXED", "10.0.0.0/8"),
    ]
    assert rows(created) == expected
    secured.run("acls", "create", "--principal", "User:*", "--deny", "--operation", "all", "--cluster", "--prefixed")
    denied = ("User:*", "DENY", "ALL", "CLUSTER", "kafka-cluster", "LITERAL", "*")
    assert seen(secured, count=3) == [denied, *sorted(expected, key=lambda row: row[2])]

    found = [
        (("--topic", "orders-"), 2),
        (("--topic", "orders-", "--pattern", "literal"), 0),
        (("--topic", "orders-", "--pattern", "prefixed"), 2),
        (("--topic", "orders-7"), 0),
        (("--topic", "orders-7", "--pattern", "match"), 2),
        (("--operation", "read"), 1),
        (("--operation", "read", "--operation", "all"), 2),
        (("--permission", "deny"), 1),
        (("--host", "*"), 1),
        (("--principal", "User:alice", "--principal", "User:*"), 3),
        (("--principal", "User:bob"), 0),
        (("--cluster", "--topic", "orders-"), 3),
    ]
    for options, count in found:
        assert len(secured.run("acls", "list", *options)) == count, options

    assert rows(secured.run("acls", "delete", "--topic", "orders-", "--operation", "read", "--dry-run")) == expected[:1]
    assert len(secured.run("acls", "list")) == 3
    assert rows(secured.run("acls", "delete", "--topic", "orders-", "--operation", "read")) == expected[:1]
    assert seen(secured, count=2) == [denied, expected[1]]
    assert secured.run("acls", "delete", "--topic", "nothing") == []
    assert secured.said("acls", "delete", "--topic", "nothing") == "There are no such ACLs.\n"


@pytest.mark.usefixtures("no_acls")
def test_acls_as_a_table(secured: Secured) -> None:
    assert "Created 1 ACL:" in secured.said(
        "acls", "create", "--principal", "User:alice", "--operation", "read", "--group", "g"
    )
    seen(secured, count=1)
    heading, line = secured.said("acls", "list").splitlines()
    assert heading.split() == ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "TYPE", "NAME", "PATTERN", "HOST"]
    assert line.split() == ["User:alice", "ALLOW", "READ", "GROUP", "g", "LITERAL", "*"]


@pytest.mark.usefixtures("no_acls")
def test_what_producers_and_consumers_need(secured: Secured) -> None:
    producer = ("--producer", "--topic", "t", "--transactional-id", "x")
    secured.run("acls", "create", "--principal", "User:alice", *producer)
    secured.run("acls", "create", "--principal", "User:bob", "--consumer", "--topic", "t", "--group", "g")
    found = seen(secured, count=8)
    assert [(row[0].removeprefix("User:"), row[3], row[4], row[2]) for row in found] == [
        ("bob", "GROUP", "g", "READ"),
        ("alice", "TOPIC", "t", "CREATE"),
        ("alice", "TOPIC", "t", "DESCRIBE"),
        ("alice", "TOPIC", "t", "WRITE"),
        ("bob", "TOPIC", "t", "DESCRIBE"),
        ("bob", "TOPIC", "t", "READ"),
        ("alice", "TRANSACTIONAL_ID", "x", "DESCRIBE"),
        ("alice", "TRANSACTIONAL_ID", "x", "WRITE"),
    ]
    assert {row[1] for row in found} == {"ALLOW"}
    producing = Producer(
        {"bootstrap.servers": secured.bootstrap, "transactional.id": "x", "security.protocol": "SASL_PLAINTEXT"}
        | {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}
    )
    producing.init_transactions(60)
    producing.begin_transaction()
    producing.produce("t", b"x")
    producing.commit_transaction(60)


@pytest.mark.usefixtures("no_acls")
def test_refused_acls_are_sentences(secured: Secured) -> None:
    refused = secured.run("acls", "list", user="alice", codes=(2,))
    assert refused.startswith("kohort: ACLs: ")
    assert refused.endswith("(CLUSTER_AUTHORIZATION_FAILED)\n")
    words = ("acls", "create", "--principal", "User:alice", "--operation", "read", "--topic", "t")
    error = secured.run(*words, "--host", "10.0.0.0/99", "--host", "10.0.0.1", codes=(2,))
    assert "the ACL User:alice ALLOW READ TOPIC t (LITERAL) from 10.0.0.0/99 cannot be created: Invalid CIDR" in error
    assert error.endswith("(INVALID_REQUEST)\n")
    assert [row[-1] for row in seen(secured, count=1)] == ["10.0.0.1"]


def test_users_from_their_creation_to_their_end(secured: Secured, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text('käse, = and "quotes"\nnot this line\n')
    created = secured.run("users", "set", "carol", "--password-file", str(password), "--iterations", "8192")
    assert created == [
        {"user": "carol", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    wait_until(lambda: secured.run("users", "list") == created, what="the user is known")
    jaas_password = password.read_text().splitlines()[0].replace('"', '\\"')
    file = ""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        file = secured.file("carol", jaas_password, mechanism=mechanism)
        kohort("topics", "list", "--command-config", file, bootstrap=secured.bootstrap)
    assert "carol" in secured.said("users", "list").splitlines()[1]

    deleted = secured.run("users", "delete", "carol", "--mechanism", "scram-sha-256")
    assert deleted == [{"user": "carol", "mechanism": "SCRAM-SHA-256"}]
    wait_until(lambda: secured.run("users", "list") == created[1:], what="the credential is gone")
    assert secured.run("users", "delete", "carol") == [{"user": "carol", "mechanism": "SCRAM-SHA-512"}]
    wait_until(lambda: secured.run("users", "list") == [], what="the user is gone")
    error = secured.run("users", "delete", "carol", codes=(2,))
    assert error.startswith("kohort: user carol cannot be deleted: Attempt to describe a user credential that does not")
    assert secured.run("users", "delete", "carol", "--if-exists") == []
    refused = kohort("topics", "list", "--command-config", file, bootstrap=secured.bootstrap, codes=(2,))
    assert "refused the authentication: Authentication failed" in refused.stderr


def test_refused_users_are_sentences(secured: Secured, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("x")
    words = ("users", "set", "carol", "--password-file", str(password))
    error = secured.run(*words, user="alice", codes=(2,))
    assert error.startswith("kohort: user carol cannot be set for SCRAM-SHA-256: ")
    assert error.endswith("(CLUSTER_AUTHORIZATION_FAILED)\n")
    assert secured.run("users", "list") == []


def test_tokens_from_their_creation_to_their_end(secured: Secured) -> None:
    (made,) = secured.run("tokens", "create", "--renewer", "User:bob", "--max-life", "PT1H", user="alice")
    assert (made["owner"], made["ends_at_latest_ms"] - made["issued_ms"]) == ("User:alice", 3_600_000)
    token_id = made["token_id"]
    listed = {key: value for key, value in made.items() if key != "hmac"} | {"requester": "User:alice"}
    listed["renewers"] = ["User:bob"]
    wait_until(lambda: secured.run("tokens", "list", user="alice") == [listed], what="the token is known")
    assert made["hmac"] not in secured.said("tokens", "list", user="bob")
    assert secured.run("tokens", "list", "--owner", "User:bob", user="alice") == [listed]
    assert secured.run("tokens", "list", "--owner", "User:carol", user="alice") == []

    file = secured.file(token_id, made["hmac"], mechanism="SCRAM-SHA-512", is_token=True)
    kohort("topics", "list", "--command-config", file, bootstrap=secured.bootstrap)
    refused = kohort("tokens", "create", "--command-config", file, bootstrap=secured.bootstrap, codes=(2,))
    assert (
        refused.stderr
        == "kohort: the token cannot be created: the cluster refused (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)\n"
    )

    (renewed,) = secured.run("tokens", "renew", token_id, "--for", "PT10M", user="bob")
    assert renewed["token_id"] == token_id
    assert made["issued_ms"] + 600_000 <= renewed["ends_ms"] < made["ends_ms"]
    wait_until(lambda: secured.run("tokens", "list", user="alice")[0]["ends_ms"] == renewed["ends_ms"], what="the end")
    assert secured.run("tokens", "end", token_id, user="bob")[0]["token_id"] == token_id
    wait_until(lambda: secured.run("tokens", "list", user="alice") == [], what="the token is gone")
    error = secured.run("tokens", "end", token_id, user="alice", codes=(2,))
    assert error.startswith(f"kohort: there is no token {token_id!r} that you may see; ")


def test_a_token_for_another_user(secured: Secured) -> None:
    error = secured.run("tokens", "create", "--owner", "User:bob", user="alice", codes=(2,))
    assert error.endswith("(DELEGATION_TOKEN_AUTHORIZATION_FAILED)\n")
    shown = secured.said("tokens", "create", "--owner", "User:bob")
    heading, line, _, secret = shown.splitlines()
    assert heading.split()[:2] == ["TOKEN", "ID"]
    assert "User:bob" in line
    assert secret.startswith("secret  ")
    token_id = line.split()[0]
    wait_until(lambda: secured.run("tokens", "list", user="bob") != [], what="the token is known")
    assert secured.said("tokens", "list", user="bob").splitlines()[1].split()[1:3] == ["User:bob", "User:admin"]
    mismatch = secured.run("tokens", "end", token_id, codes=(2,))
    assert mismatch.endswith("(DELEGATION_TOKEN_OWNER_MISMATCH)\n")
    ending = secured.said("tokens", "end", token_id, "--after", "PT5M", user="bob")
    assert ending.startswith(f"Token {token_id} ends at 20")
    assert secured.said("tokens", "end", token_id, user="bob") == f"Token {token_id} has ended.\n"
    wait_until(lambda: secured.run("tokens", "list", user="bob") == [], what="the token is gone")


def test_what_a_broker_without_logins_and_access_rules_says(broker: Broker) -> None:
    said = {
        "acls list": "ACLs: No Authorizer is configured on the broker (SECURITY_DISABLED)",
        "acls create --principal User:a --operation read --topic t": "No Authorizer is configured (SECURITY_DISABLED)",
        "acls delete --all": "No Authorizer is configured (SECURITY_DISABLED)",
        "tokens list": "tokens cannot be listed: the cluster refused (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)",
        "tokens create": "the token cannot be created: the cluster refused (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)",
    }
    for words, text in said.items():
        done = kohort(*words.split(), bootstrap=broker.bootstrap, codes=(2,))
        assert done.stderr.startswith("kohort: ")
        assert done.stderr.endswith(f"{text}\n")
        assert done.stdout == ""
