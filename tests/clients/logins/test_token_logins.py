"""Sessions that began with a delegation token: they end with the token as it was at the login, whatever becomes of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.client.addresses import Address
from kohort.client.connection import Connection
from kohort.client.security import Security
from kohort.model.errors import ConfigError
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.secured import PASSWORDS, client_properties, secured_kohort, write_properties
from tests.clients.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedKohort]:
    with secured_kohort(tmp_path_factory.mktemp("tokens")) as served:
        yield served


@pytest.fixture
def alice(tmp_path: Path) -> tuple[str, str]:
    file = write_properties(tmp_path / "alice.properties", client_properties("alice", PASSWORDS["alice"]))
    return "--command-config", str(file)


def connected(broker: ServedKohort, token: Any) -> Connection:
    properties = client_properties(token["token_id"], token["hmac"], "SCRAM-SHA-256", is_token=True)
    return Connection(Address("127.0.0.1", broker.port), 30, Security.parse(properties))


def ask(connection: Connection) -> None:
    connection.send(ApiKey.METADATA, m.MetadataRequest(topics=()))


def test_a_session_goes_on_when_its_token_is_ended_and_nobody_else_logs_in(
    broker: ServedKohort, alice: tuple[str, str]
) -> None:
    (token,) = kohort_json("tokens", "create", *alice, bootstrap=broker.bootstrap)
    with connected(broker, token) as session:
        kohort("tokens", "end", token["token_id"], *alice, bootstrap=broker.bootstrap)
        ask(session)
        with pytest.raises(ConfigError, match="refused the authentication: Authentication failed"):
            connected(broker, token)
        ask(session)


def test_a_session_ends_with_its_token(broker: ServedKohort, alice: tuple[str, str]) -> None:
    (token,) = kohort_json("tokens", "create", "--max-life", "PT1S", *alice, bootstrap=broker.bootstrap)

    def is_useless() -> bool:
        """Whether nobody can ask with the token. Until the next sweep a login succeeds, and its session is over."""
        try:
            with connected(broker, token) as another:
                ask(another)
        except ConfigError:
            return True
        return False

    with connected(broker, token) as session:
        ask(session)
        wait_until(is_useless, what="the token ends")
        with pytest.raises(ConfigError):
            ask(session)


def test_the_secret_of_another_token_is_no_login(broker: ServedKohort, alice: tuple[str, str]) -> None:
    made = [kohort_json("tokens", "create", *alice, bootstrap=broker.bootstrap)[0] for _ in range(2)]
    with pytest.raises(ConfigError, match="refused the authentication"):
        connected(broker, made[0] | {"hmac": made[1]["hmac"]})
    with pytest.raises(ConfigError, match="refused the authentication"):
        connected(broker, {"token_id": "alice", "hmac": PASSWORDS["alice"]})
