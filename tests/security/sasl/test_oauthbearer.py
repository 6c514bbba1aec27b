"""OAUTHBEARER: its messages, and what follows a refused token."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.limits import ACCESS_TOKEN_BYTES_MAX
from kohort.model.principals import Principal
from kohort.security.sasl.access_tokens import TokenValidator, Unsecured
from kohort.security.sasl.authenticator import Step
from kohort.security.sasl.signed_tokens import Signed
from tests.security.sasl.exchanges import Client, authenticate_frame, listener, read
from tests.security.sasl.tokens import CLAIMS, NOW_S, Keys, signed, unsecured

MECHANISM = "OAUTHBEARER"
GOOD = unsecured({"sub": "alice", "exp": NOW_S + 60})
INVALID = b'{"status":"invalid_token"}'
FAILURE = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"


def begun(tokens: TokenValidator | None = None, **config: Any) -> Client:
    client = Client(listener(mechanisms=(MECHANISM,), tokens=tokens or Unsecured(), **config))
    client.shake_hands(MECHANISM)
    return client


def message(token: str, *, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def assert_refused(step: Step, text: str = FAILURE) -> None:
    assert (step.principal, step.closes, step.delay_ms) == (None, True, 100)
    assert (read(step).error_code, read(step).error_message) == (58, text)


def test_session_ends_with_the_token() -> None:
    step = begun().authenticate(message(GOOD))
    assert (step.principal, step.session_ends_at_ms) == (Principal("alice"), (NOW_S + 60) * 1_000)
    assert (read(step).auth_bytes, read(step).session_lifetime_ms) == (b"", 60_000)


def test_session_ends_earlier_if_the_listener_says_so() -> None:
    step = begun(session_ms={MECHANISM: 5_000}).authenticate(message(GOOD))
    assert (step.session_ends_at_ms, read(step).session_lifetime_ms) == ((NOW_S + 5) * 1_000, 5_000)


def test_signature_is_checked_on_another_thread() -> None:
    client = begun(Signed(Keys(), ("kafka",), "https://issuer.test"))
    step = client.authenticator.receive(authenticate_frame(message(signed())), client.now_ms)
    assert step.work is not None
    assert (step.answer, step.principal) == (b"", None)
    assert client.authenticator.resume(step.work(), client.now_ms).principal == Principal("alice")


def test_failure_of_a_library_refuses_the_token() -> None:
    """The connection would wait for ever."""

    class Broken:
        def find(self, name: str | None) -> tuple[()]:
            raise MemoryError(name)

    client = begun(Signed(Broken(), ("kafka",), "https://issuer.test"))
    assert read(client.authenticate(message(signed()))).auth_bytes == INVALID


def test_kafka_13848_token_within_the_skew_gives_a_session_that_has_ended() -> None:
    client = begun(Signed(Keys(), ("kafka",), "https://issuer.test"))
    step = client.authenticate(message(signed(CLAIMS | {"exp": NOW_S - 5, "iat": 1})))
    assert (step.principal, step.session_ends_at_ms) == (Principal("alice"), client.now_ms)
    assert client.authenticate(b"").closes


def test_cve_2017_12610_other_identity() -> None:
    assert begun().authenticate(message(GOOD, header="n,a=alice,")).principal == Principal("alice")
    assert_refused(
        begun().authenticate(message(GOOD, header="n,a=bob,")),
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's principal "
        "name (alice)",
    )


def test_other_identity_is_taken_as_it_is_sent() -> None:
    """As in Kafka, which does not decode it."""
    step = begun().authenticate(message(GOOD, header="n,a=a=2Cb,"))
    assert "an authorization id (a=2Cb) that" in read(step).error_message


@pytest.mark.parametrize("token", ["a.b.c=", "a~b", "a+/b", "a"])
def test_tokens_of_other_forms_are_refused_as_tokens(token: str) -> None:
    assert read(begun().authenticate(message(token))).auth_bytes == INVALID


def test_missing_scope_is_named() -> None:
    client = begun(Unsecured(required_scope=("read", "write")))
    answer = read(client.authenticate(message(GOOD))).auth_bytes
    assert answer == b'{"status":"insufficient_scope", "scope":"[read, write]"}'
    assert_refused(client.authenticate(b"\x01"), answer.decode())


def test_refused_token() -> None:
    """The client may see the error, then send another token, as long as it likes."""
    client = begun()
    for _ in range(3):
        step = client.authenticate(message("a.b.c"))
        assert (read(step).error_code, read(step).auth_bytes, step.principal) == (0, INVALID, None)
    assert client.authenticate(message(GOOD)).principal == Principal("alice")


def test_end_of_a_refused_exchange() -> None:
    client = begun()
    assert_refused(client.authenticate(b"\x01"))
    client = begun()
    client.authenticate(message("a.b.c"))
    assert_refused(client.authenticate(b"\x01"), INVALID.decode())
    assert client.authenticate(message(GOOD)).closes


@pytest.mark.parametrize(
    "text",
    [
        "n,,\x01auth=Basic {}\x01\x01",
        "n,,\x01auth={}\x01\x01",
        "n,,\x01auth=Bearer\t{}\x01\x01",
        "n,,\x01auth=Bearer {} x\x01\x01",
        "n,,\x01auth=Bearer {}=x\x01\x01",
        "n,,\x01AUTH=Bearer {}\x01\x01",
        "n,,auth=Bearer {}\x01\x01",
        "p=x,,\x01auth=Bearer {}\x01\x01",
        "n,a=,\x01auth=Bearer {}\x01\x01",
        "n,,\x01auth=Bearer {}\x01x=\x01\x01",
        "n,,\x01auth=Bearer {}\x01=y\x01\x01",
        "n,,\x01auth=Bearer {}\x01x=é\x01\x01",
        "n,,\x01auth=Bearer {}\x01\x01\x01",
    ],
)
def test_malformed_messages(text: str) -> None:
    assert_refused(begun().authenticate(text.format(GOOD).encode()))


def test_longest_message() -> None:
    step = begun().authenticate(message("a" * ACCESS_TOKEN_BYTES_MAX))
    assert read(step).auth_bytes == INVALID
    assert_refused(begun().authenticate(message("a" * (ACCESS_TOKEN_BYTES_MAX + 4_096))))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.binary(max_size=3), st.integers(0, 3))
def test_changed_messages_are_refused_or_name_the_same_user(place: int, other: bytes, cut: int) -> None:
    whole = message(GOOD, extensions="trace=abc\x01")
    step = begun().authenticate(whole[:place] + other + whole[place + cut :])
    assert step.principal in (None, Principal("alice"))
    assert step.closes == (read(step).error_code == 58)


def test_token_reaches_no_log() -> None:
    step = begun().authenticate(message(GOOD, header="y,,"))
    assert GOOD[:20] not in step.refusal
