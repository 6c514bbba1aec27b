"""
Published failures of other brokers and clients in SASL; a test each, with the id in its name.

Those of access tokens are in `test_tokens.py`, of configurations in `tests/broker/configs/test_sasl_configs.py`.
"""

import hmac
from typing import Any

import pytest

from kohort.model.principals import Principal
from kohort.security.credentials import Token, scram_credential
from kohort.security.sasl.access_tokens import Unsecured
from kohort.security.sasl.authenticator import Step
from kohort.security.sasl.listener import RECEIVE_BYTES, SaslConfig
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.sasl.exchanges import Client, Users, authenticate_frame, listener, read
from tests.security.sasl.scram_client import NONCE, final, first
from tests.security.sasl.tokens import NOW_S, unsecured

SHA_256 = "SCRAM-SHA-256"
SALLY = scram_credential(SHA_256, "secret", b"salt-of-the-tests")
ALICE, BOB = b"\0alice\0alice-secret", b"\0bob\0bob-secret"


def begun(mechanism: str, **config: Any) -> Client:
    users = Users(scram={("sally", SHA_256): SALLY, ("derived", SHA_256): "secret"})
    client = Client(listener(users, mechanisms=(mechanism,), **config))
    client.shake_hands(mechanism)
    return client


def login(client: Client, user: str, password: str, **what: Any) -> Step:
    message = first(user)
    answer = read(client.authenticate(message.encode())).auth_bytes.decode()
    return client.authenticate(final(SHA_256, password, message, answer, **what)[0].encode())


def is_refused(step: Step) -> bool:
    return step.principal is None and step.closes and read(step).error_code == 58


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"bob\0alice\0alice-secret"),
        (SHA_256, b"n,a=bob,n=sally,r=a"),
        ("OAUTHBEARER", b"n,a=bob,\x01auth=Bearer %s\x01\x01" % unsecured({"sub": "alice", "exp": NOW_S + 9}).encode()),
    ],
)
def test_cve_2017_12610_authorization_id_is_no_principal(mechanism: str, message: bytes) -> None:
    assert is_refused(begun(mechanism, tokens=Unsecured()).authenticate(message))


def test_cve_2021_38153_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    right = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append(other)
        return bool(right(one, other))

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert login(begun(SHA_256), "sally", "secret").principal == Principal("sally")
    assert begun("PLAIN").authenticate(ALICE).principal == Principal("alice")
    assert is_refused(begun("PLAIN").authenticate(b"\0nobody\0x"))
    assert {SALLY.stored_key, b"alice-secret", b""} <= set(compared)


def test_cve_2022_34917_frames_before_authentication_are_bounded() -> None:
    assert SaslConfig(("PLAIN",)).frame_bytes_max == RECEIVE_BYTES == 524_288
    step = Client(listener()).authenticator.refuse_size()
    assert (step.closes, step.answer) == (True, b"")


def test_cve_2022_34917_lengths_inside_of_frames_are_those_of_the_bytes() -> None:
    """An array or a text that claims more bytes than there are closes the connection; nothing is reserved for it."""
    frame = authenticate_frame(b"x" * 10)
    for claimed in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"):
        changed = frame.replace(b"\x0b" + b"x" * 10, claimed + b"x" * 10)
        step = begun("PLAIN").send_frame(changed)
        assert (step.closes, step.answer, step.delay_ms) == (True, b"", 0)


@pytest.mark.parametrize("nonce", [NONCE, "", "x", f"{NONCE}x"])
def test_cve_2024_56128_final_nonce_is_the_whole_one(nonce: str) -> None:
    assert is_refused(login(begun(SHA_256), "sally", "secret", nonce=nonce))


def test_cve_2026_33558_requests_and_answers_print_no_secret() -> None:
    secret = b"do-not-show"
    values = [
        m.SaslAuthenticateRequest(auth_bytes=secret),
        m.SaslAuthenticateResponse(auth_bytes=secret),
        m.AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
                    name="alice", salt=secret, salted_password=secret
                )
            ],
        ),
        m.CreateDelegationTokenResponse(hmac=secret),
        m.RenewDelegationTokenRequest(hmac=secret),
        m.ExpireDelegationTokenRequest(hmac=secret),
        m.DescribeDelegationTokenResponse(
            tokens=[m.DescribeDelegationTokenResponseDescribedDelegationToken(hmac=secret)]
        ),
        m.AlterConfigsRequest(
            resources=[
                m.AlterConfigsRequestAlterConfigsResource(
                    configs=[m.AlterConfigsRequestAlterableConfig(name="n", value=secret.decode())]
                )
            ]
        ),
        m.IncrementalAlterConfigsRequest(
            resources=[
                m.IncrementalAlterConfigsRequestAlterConfigsResource(
                    configs=[m.IncrementalAlterConfigsRequestAlterableConfig(name="n", value=secret.decode())]
                )
            ]
        ),
        SALLY,
        Token(Principal("bob"), 1, secret.decode()),
        SaslConfig(("PLAIN",), users={"alice": secret.decode()}),
    ]
    for value in values:
        for text in (repr(value), str(value), f"{[value]}"):
            assert "do-not-show" not in text
            assert "salt-of-the-tests" not in text
    assert "'alice'" in repr(values[2])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kafka_9241_sessions_end_for_clients_that_are_not_told(version: int) -> None:
    client = begun("PLAIN", session_ms={"PLAIN": 100})
    client.authenticate(ALICE, version)
    client.now_ms += 100
    assert client.send(ApiKey.LIST_GROUPS, 0, m.ListGroupsRequest()).closes


def test_kafka_9241_sessions_end_for_bare_tokens() -> None:
    client = Client(listener(session_ms={"PLAIN": 100}))
    client.shake_hands("PLAIN", 0)
    assert client.send_frame(ALICE).session_ends_at_ms == client.now_ms + 100
    client.now_ms += 100
    assert client.send(ApiKey.LIST_GROUPS, 0, m.ListGroupsRequest()).closes


def test_kafka_13848_credential_that_is_over_gives_no_session_without_an_end() -> None:
    client = Client(listener(Users(tokens={"id": Token(Principal("bob"), 5, "secret")}), mechanisms=(SHA_256,)))
    client.shake_hands(SHA_256)
    message = first("id", extensions=",tokenauth=true")
    answer = read(client.authenticate(message.encode())).auth_bytes.decode()
    step = client.authenticate(final(SHA_256, "secret", message, answer)[0].encode())
    assert step.session_ends_at_ms == client.now_ms
    assert client.send(ApiKey.LIST_GROUPS, 0, m.ListGroupsRequest()).closes


def test_nisshi_694_finished_exchange_is_not_a_right_one() -> None:
    step = login(begun(SHA_256), "sally", "wrong")
    assert (step.principal, step.closes) == (None, True)


def test_nisshi_695_plain_takes_the_right_password_only() -> None:
    for wrong in (b"\0alice\0x", b"\0alice\0", b"\0alice", b"\0nobody\0nobody", b"\0\0", b""):
        assert is_refused(begun("PLAIN").authenticate(wrong))


def test_nisshi_665_reauthentication_is_no_unsupported_mechanism() -> None:
    client = begun(SHA_256, session_ms={SHA_256: 5_000})
    assert login(client, "sally", "secret").principal == Principal("sally")
    assert read(client.shake_hands(SHA_256), ApiKey.SASL_HANDSHAKE, 1).error_code == 0
    assert login(client, "sally", "secret").principal == Principal("sally")


def test_franz_go_249_reauthentication_as_another_user() -> None:
    client = begun("PLAIN", session_ms={"PLAIN": 5_000})
    client.authenticate(ALICE)
    client.shake_hands("PLAIN")
    step = client.authenticate(BOB)
    assert is_refused(step)
    assert read(step).error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_librdkafka_4895_client_nonce_twice() -> None:
    """What librdkafka to 2.6.0 sent is refused, as by Kafka."""
    client = begun(SHA_256)
    message = first("sally")
    answer = read(client.authenticate(message.encode())).auth_bytes.decode()
    nonce = NONCE + answer.split(",")[0].removeprefix("r=")
    assert is_refused(client.authenticate(final(SHA_256, "secret", message, answer, nonce=nonce)[0].encode()))


def test_cve_2026_10143_keys_are_derived_outside_of_the_loop() -> None:
    """And with the iterations of the broker; a client cannot name any."""
    client = begun(SHA_256)
    step = client.authenticator.receive(authenticate_frame(first("derived").encode()), client.now_ms)
    assert step.work is not None
    assert b",i=4096" in client.authenticator.resume(step.work(), client.now_ms).answer
