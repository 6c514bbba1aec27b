"""The states of an authentication, and what the recorded exchanges do not show of them."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import ConfigError
from kohort.model.limits import SCRAM_MESSAGE_BYTES_MAX
from kohort.model.principals import Principal
from kohort.security.sasl.authenticator import REFUSAL_LENGTH_MAX, Step
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import request_encoder
from tests.security.sasl.exchanges import Client, Users, authenticate_frame, listener, read

ALICE = b"\0alice\0alice-secret"
SESSION_MS = 3_000


def logged_in(version: int = 2, session_ms: int = SESSION_MS) -> Client:
    client = Client(listener(session_ms={"PLAIN": session_ms}))
    client.shake_hands("PLAIN")
    step = client.authenticate(ALICE, version)
    assert (step.principal, step.session_ends_at_ms) == (Principal("alice"), client.now_ms + session_ms)
    return client


def ask(client: Client) -> Step:
    """Send an ordinary request."""
    return client.send(ApiKey.LIST_GROUPS, 0, m.ListGroupsRequest())


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-1", "plain", "OAUTHBEARER"])
def test_mechanisms_that_a_listener_cannot_have(mechanism: str) -> None:
    with pytest.raises(ConfigError) as raised:
        listener(mechanisms=("PLAIN", mechanism))
    assert mechanism in str(raised.value)
    assert ("Kerberos" in str(raised.value)) == (mechanism == "GSSAPI")


def test_listener_without_a_mechanism() -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.enabled\.mechanisms"):
        listener(mechanisms=())


@pytest.mark.parametrize("api", [api for api in ApiKey if api is not ApiKey.SASL_AUTHENTICATE])
def test_any_other_request_during_an_exchange(api: ApiKey) -> None:
    """Every version of every API has an answer of its own with ILLEGAL_SASL_STATE, then the connection closes."""
    for version in range(api.oldest, api.newest_stable + 1):
        client = Client(listener())
        client.shake_hands("PLAIN")
        frame = request_encoder(ApiKey.API_VERSIONS, 0)(7, "test", m.ApiVersionsRequest())
        tags = b"\0" if API_KEYS[api].is_flexible(version) else b""
        header = int(api).to_bytes(2, "big") + version.to_bytes(2, "big") + frame[8:18]
        step = client.send_frame(header + tags)
        assert (step.closes, step.delay_ms) == (True, 100)
        response = read(step, api, version)
        assert getattr(response, "error_code", 34) in (34, 0)


def test_frames_behind_the_end_are_not_read() -> None:
    client = Client(listener())
    client.shake_hands("NONE")
    for frame in (authenticate_frame(ALICE), b""):
        assert client.send_frame(frame) == Step(closes=True)


def test_refusals_are_short() -> None:
    """A name of the client does not fill the log."""
    client = Client(listener())
    client.shake_hands("PLAIN")
    assert len(client.authenticate(b"\0" + b"a" * 100_000 + b"\0x").refusal) == REFUSAL_LENGTH_MAX


_FRAMES = [
    request_encoder(ApiKey.API_VERSIONS, 3)(1, "c", m.ApiVersionsRequest())[4:],
    request_encoder(ApiKey.SASL_HANDSHAKE, 0)(1, "c", m.SaslHandshakeRequest(mechanism="PLAIN"))[4:],
    request_encoder(ApiKey.SASL_HANDSHAKE, 1)(1, "c", m.SaslHandshakeRequest(mechanism="PLAIN"))[4:],
    request_encoder(ApiKey.SASL_HANDSHAKE, 1)(1, "c", m.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))[4:],
    request_encoder(ApiKey.LIST_GROUPS, 0)(1, "c", m.ListGroupsRequest())[4:],
    authenticate_frame(b"n,,n=alice,r=x"),
    authenticate_frame(b"\0alice\0wrong"),
    b"\0alice\0wrong",
    b"",
]
_RIGHT = (authenticate_frame(ALICE), ALICE)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*_FRAMES, *_RIGHT]), st.integers(0, 40), st.binary(max_size=2), st.booleans()),
        max_size=6,
    )
)
def test_no_frames_but_the_right_ones_authenticate(sent: list[tuple[bytes, int, bytes, bool]]) -> None:
    """Whatever arrives is answered or ends the connection; only the password of a user makes it that user's."""
    client = Client(listener(mechanisms=("PLAIN", "SCRAM-SHA-256"), session_ms={"PLAIN": SESSION_MS}))
    is_closed = is_complete = False
    for frame, place, other, is_changed in sent:
        whole = frame[:place] + other + frame[place:] if is_changed else frame
        step = client.send_frame(whole)
        assert not (is_closed and step != Step(closes=True))
        assert step.passes <= is_complete
        assert step.delay_ms in (0, 100)
        if step.principal is not None:
            assert step.principal == Principal("alice")
            assert b"alice\0alice-secret" in whole
        is_closed = is_closed or step.closes
        is_complete = is_complete or step.principal is not None


def test_memory_of_an_unfinished_authentication() -> None:
    """One connection holds two messages of SCRAM at most, whatever its client sends."""
    shared = listener(mechanisms=("SCRAM-SHA-256",))
    Client(shared).shake_hands("SCRAM-SHA-256")
    message = authenticate_frame(b"n,,n=alice,r=" + b"a" * (SCRAM_MESSAGE_BYTES_MAX - 100))
    tracemalloc.start()
    try:
        clients = [Client(shared) for _ in range(10)]
        for client in clients:
            client.shake_hands("SCRAM-SHA-256")
            assert not client.send_frame(message).closes
        held = tracemalloc.get_traced_memory()[0] / len(clients)
    finally:
        tracemalloc.stop()
    assert held < 5 * SCRAM_MESSAGE_BYTES_MAX


def test_too_large_frame() -> None:
    step = Client(listener()).authenticator.refuse_size()
    assert (step.answer, step.closes, step.delay_ms) == (b"", True, 100)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_session_ends_at_its_time(version: int) -> None:
    """KAFKA-9241: also for a client that is not told."""
    client = logged_in(version)
    client.now_ms += SESSION_MS - 1
    assert ask(client).passes
    client.now_ms += 1
    step = ask(client)
    assert (step.passes, step.closes, step.delay_ms) == (False, True, 0)
    assert ask(client).closes


def test_reauthentication_begins_once_a_second() -> None:
    client = logged_in()
    for pause_ms, begins in ((0, True), (999, False), (1, True), (500, False)):
        client.now_ms += pause_ms
        step = client.shake_hands("PLAIN")
        assert step.passes is not begins
        if begins:
            assert client.authenticate(ALICE).session_ends_at_ms == client.now_ms + SESSION_MS


def test_late_reauthentication_begins_a_new_session() -> None:
    client = logged_in()
    client.now_ms += 10 * SESSION_MS
    client.shake_hands("PLAIN")
    assert client.authenticate(ALICE).session_ends_at_ms == client.now_ms + SESSION_MS
    assert ask(client).passes


def test_handshake_within_a_second_after_the_end_of_a_session() -> None:
    client = logged_in(session_ms=500)
    client.shake_hands("PLAIN")
    client.authenticate(ALICE)
    client.now_ms += 600
    assert client.shake_hands("PLAIN").closes


def test_nothing_ends_a_session_without_an_end() -> None:
    client = Client(listener())
    client.shake_hands("PLAIN")
    assert client.authenticate(ALICE).session_ends_at_ms is None
    client.now_ms += 1 << 40
    assert ask(client).passes
    assert client.shake_hands("PLAIN").passes


def test_changed_password_counts_from_the_next_authentication() -> None:
    users = Users()
    client = Client(listener(users, session_ms={"PLAIN": SESSION_MS}))
    client.shake_hands("PLAIN")
    client.authenticate(ALICE)
    del users.passwords["alice"]
    assert ask(client).passes
    client.shake_hands("PLAIN")
    step = client.authenticate(ALICE)
    assert (step.closes, step.delay_ms, read(step).error_code) == (True, 100, 58)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_password_that_is_not_utf_8(mechanism: str) -> None:
    """What Python makes of other bytes on the command line is no password of PLAIN, and none that breaks a login."""
    client = Client(listener(Users({"alice": "\udcff"}, {("alice", mechanism): "\udcff"}), mechanisms=(mechanism,)))
    client.shake_hands(mechanism)
    step = client.authenticate(b"\0alice\0\xff" if mechanism == "PLAIN" else b"n,,n=alice,r=x")
    assert (step.closes, read(step).error_code) == ((True, 58) if mechanism == "PLAIN" else (False, 0))


def test_users_of_the_listener_come_before_those_of_the_broker() -> None:
    shared = listener(users={"alice": "other", "carol": "c"})
    for token, is_right in (
        (b"\0alice\0other", True),
        (ALICE, False),
        (b"\0carol\0c", True),
        (b"\0bob\0bob-secret", True),
    ):
        client = Client(shared)
        client.shake_hands("PLAIN")
        assert (client.authenticate(token).principal is not None) is is_right
