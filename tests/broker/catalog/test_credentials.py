"""The users of a broker: those of its options, and the SCRAM credentials that clients store."""

import hashlib
from base64 import b64encode

import pytest

from kohort.broker.catalog.credentials import BrokerCredentials
from kohort.model.principals import Principal
from kohort.security.sasl.authenticator import Step
from kohort.security.sasl.listener import SaslConfig, SaslListener
from kohort.security.sasl.scram import ScramUsers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.broker.tokens.test_tokens import create
from tests.security.sasl.exchanges import Client, read
from tests.security.sasl.scram_client import final, first

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
NUMBERS = {SHA_256: 1, SHA_512: 2}
SALT = b"salt-of-the-tests"


def store(harness: Harness, user: str, mechanism: str, password: str, iterations: int = 4_096) -> None:
    name = {SHA_256: "sha256", SHA_512: "sha512"}[mechanism]
    upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name=user,
        mechanism=NUMBERS[mechanism],
        iterations=iterations,
        salt=SALT,
        salted_password=hashlib.pbkdf2_hmac(name, password.encode(), SALT, iterations),
    )
    request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    assert harness.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request).results[0].error_code == 0


def delete(harness: Harness, user: str, mechanism: str) -> None:
    deletion = m.AlterUserScramCredentialsRequestScramCredentialDeletion(name=user, mechanism=NUMBERS[mechanism])
    request = m.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    assert harness.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request).results[0].error_code == 0


def listener(harness: Harness, **passwords: str) -> SaslListener:
    config = SaslConfig(("PLAIN", SHA_256, SHA_512))
    credentials = BrokerCredentials(harness.broker.catalog, passwords, harness.broker.tokens.login)
    return SaslListener(config, credentials, ScramUsers(credentials, lambda bits: 5))


def login(shared: SaslListener, user: str, password: str, mechanism: str, extensions: str = "") -> Step:
    client = Client(shared)
    client.shake_hands(mechanism)
    if mechanism == "PLAIN":
        return client.authenticate(f"\0{user}\0{password}".encode())
    message = first(user, extensions=extensions)
    answer = read(client.authenticate(message.encode())).auth_bytes.decode()
    return client.authenticate(final(mechanism, password, message, answer)[0].encode())


@pytest.mark.parametrize("iterations", [4_096, 16_384])
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_stored_credential_counts_from_the_next_login(mechanism: str, iterations: int) -> None:
    harness = Harness()
    shared = listener(harness)
    assert login(shared, "alice", "one", mechanism).principal is None
    store(harness, "alice", mechanism, "one", iterations)
    assert login(shared, "alice", "one", mechanism).principal == Principal("alice")
    store(harness, "alice", mechanism, "two", iterations)
    assert login(shared, "alice", "one", mechanism).principal is None
    assert login(shared, "alice", "two", mechanism).principal == Principal("alice")
    delete(harness, "alice", mechanism)
    assert login(shared, "alice", "two", mechanism).principal is None


def test_credential_is_of_one_mechanism() -> None:
    harness = Harness()
    store(harness, "alice", SHA_256, "one")
    shared = listener(harness)
    for mechanism in (SHA_512, "PLAIN"):
        assert login(shared, "alice", "one", mechanism).principal is None


def test_credential_that_is_not_durable_does_not_count() -> None:
    harness = Harness()
    shared = listener(harness)
    harness.hold()
    upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4_096, salt=SALT, salted_password=b"x"
    )
    request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    assert harness.begin(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request) == []
    credentials = BrokerCredentials(harness.broker.catalog, {}, harness.broker.tokens.login)
    assert credentials.scram("alice", SHA_256) is None
    harness.let_go()
    assert credentials.scram("alice", SHA_256) is not None
    assert login(shared, "alice", "one", SHA_256).principal is None


@pytest.mark.parametrize("mechanism", ["PLAIN", SHA_256, SHA_512])
def test_users_of_the_options_have_every_mechanism(mechanism: str) -> None:
    shared = listener(Harness(), alice="one")
    assert login(shared, "alice", "one", mechanism).principal == Principal("alice")
    assert login(shared, "alice", "two", mechanism).principal is None
    assert login(shared, "bob", "one", mechanism).principal is None


def test_first_derivations_are_those_of_the_options() -> None:
    harness = Harness()
    store(harness, "alice", SHA_256, "two")
    credentials = BrokerCredentials(harness.broker.catalog, {"alice": "one", "bob": "b"}, harness.broker.tokens.login)
    users = ScramUsers(credentials, lambda bits: 5)
    for mechanism, names in ((SHA_256, ["bob"]), (SHA_512, ["alice", "bob"])):
        works = list(users.first_derivations(mechanism))
        for derive, keep in works:
            keep(derive())
        assert len(works) == len(names)
        assert [
            name for name in ("alice", "bob") if users.derived(mechanism, name, credentials.password(name) or "")
        ] == names


def test_stored_credential_comes_before_the_password_of_the_options() -> None:
    harness = Harness()
    shared = listener(harness, alice="one")
    store(harness, "alice", SHA_256, "two")
    assert login(shared, "alice", "one", SHA_256).principal is None
    assert login(shared, "alice", "two", SHA_256).principal == Principal("alice")
    assert login(shared, "alice", "one", SHA_512).principal == Principal("alice")
    assert login(shared, "alice", "one", "PLAIN").principal == Principal("alice")


def test_login_with_a_delegation_token_that_the_broker_made() -> None:
    harness = Harness(delegation_token_secret_key="key-of-the-tests")
    made = create(harness, Principal("bob"))
    shared = listener(harness)
    secret = b64encode(made.hmac).decode()
    for mechanism in (SHA_256, SHA_512):
        step = login(shared, made.token_id, secret, mechanism, ",tokenauth=true")
        assert step.principal == Principal("bob", is_token=True)
        assert step.session_ends_at_ms == made.expiry_timestamp_ms
        assert login(shared, made.token_id, "wrong", mechanism, ",tokenauth=true").principal is None
        assert login(shared, made.token_id, secret, mechanism).principal is None
