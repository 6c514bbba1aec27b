"""SCRAM: compared with the package `scramp`, and given messages in every wrong way."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.limits import DERIVED_CREDENTIALS_MAX, SCRAM_MESSAGE_BYTES_MAX
from kohort.model.principals import Principal
from kohort.security.credentials import ITERATIONS_MIN, SCRAM_HASHES, ScramCredential, Token, scram_credential
from kohort.security.sasl.authenticator import Step
from kohort.security.sasl.listener import SaslConfig, SaslListener
from kohort.security.sasl.scram import ScramUsers
from tests.security.sasl.exchanges import Client, Users, authenticate_frame, listener, read
from tests.security.sasl.scram_client import NONCE, final, first

SHA_256, SHA_512 = SCRAM_HASHES
MECHANISMS = pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
FAILURE = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
SALT = b"salt-of-the-tests"
SALLY = scram_credential(SHA_256, "sally-secret", SALT)

_texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
"""Texts that SASLprep, which Kafka leaves out, does not change."""


def begun(users: Users, mechanism: str = SHA_256, **config: Any) -> Client:
    client = Client(listener(users, mechanisms=(mechanism,), **config))
    client.shake_hands(mechanism)
    return client


def sally() -> Client:
    return begun(Users(scram={("sally", SHA_256): SALLY}))


def token_of(step: Step) -> str:
    return str(read(step).auth_bytes.decode())


def send(client: Client, message: str) -> Step:
    return client.authenticate(message.encode())


def assert_refused(step: Step, message: str = FAILURE) -> None:
    assert (step.principal, step.closes, step.delay_ms) == (None, True, 100)
    assert (read(step).error_code, read(step).error_message, read(step).auth_bytes) == (58, message, b"")


# -- the package scramp -----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(user=_texts, password=_texts)
@MECHANISMS
def test_client_of_scramp_logs_in(mechanism: str, user: str, password: str) -> None:
    client = begun(Users(scram={(user, mechanism): scram_credential(mechanism, password, SALT)}), mechanism)
    theirs = scramp.ScramClient([mechanism], user, password)
    theirs.set_server_first(token_of(send(client, theirs.get_client_first())))
    step = send(client, theirs.get_client_final())
    assert step.principal == Principal(user)
    theirs.set_server_final(token_of(step))


@MECHANISMS
def test_credentials_are_those_of_scramp(mechanism: str) -> None:
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(mechanism).make_auth_info(
        "secret", iteration_count=4_096, salt=SALT
    )
    assert scram_credential(mechanism, "secret", SALT) == (salt, stored_key, server_key, iterations)


@MECHANISMS
def test_server_of_scramp_gives_the_same_answers(mechanism: str) -> None:
    credential = scram_credential(mechanism, "secret", SALT)
    theirs = scramp.ScramMechanism(mechanism).make_server(lambda _user: credential, s_nonce="1")
    ours = begun(Users(scram={("sally", mechanism): credential}), mechanism, number=1)
    client = scramp.ScramClient([mechanism], "sally", "secret")
    message = client.get_client_first()
    theirs.set_client_first(message)
    answer = token_of(send(ours, message))
    assert answer == theirs.get_server_first()
    client.set_server_first(answer)
    message = client.get_client_final()
    theirs.set_client_final(message)
    assert token_of(send(ours, message)) == theirs.get_server_final()


# -- messages ---------------------------------------------------------------------------------------------------


def test_nonce_of_20_000_characters() -> None:
    client = sally()
    message = first("sally", nonce="a" * 20_000)
    answer = token_of(send(client, message))
    mine, theirs = final(SHA_256, "sally-secret", message, answer)
    step = send(client, mine)
    assert (step.principal, token_of(step)) == (Principal("sally"), theirs)


@pytest.mark.parametrize("message", ["n,,n=sally,r={}", "n,,n=sally,r=a,x={}", "n,,n={},r=a"])
def test_longer_messages_fail(message: str) -> None:
    room = SCRAM_MESSAGE_BYTES_MAX - len(message) + 2
    users = Users(scram={("sally", SHA_256): SALLY})
    assert not send(begun(users), message.format("a" * room)).closes
    assert_refused(send(begun(users), message.format("a" * (room + 1))))


def test_last_message_may_be_as_long_and_no_longer() -> None:
    client = sally()
    send(client, first("sally"))
    step = send(client, "c=biws,r=" + "a" * SCRAM_MESSAGE_BYTES_MAX)
    assert_refused(step)
    assert "too long" in step.refusal


Mutation = Callable[[str], str]
_mutations: st.SearchStrategy[Mutation] = st.one_of(
    st.integers(0, 200).map(lambda size: lambda text: text[:size]),
    st.just(lambda text: text + text),
    st.just(lambda text: ",".join(reversed(text.split(",")))),
    st.tuples(st.integers(0, 200), st.characters(max_codepoint=127)).map(
        lambda change: lambda text: text[: change[0]] + change[1] + text[change[0] + 1 :]
    ),
    st.tuples(st.integers(0, 200), st.text(max_size=5)).map(
        lambda change: lambda text: text[: change[0]] + change[1] + text[change[0] :]
    ),
    st.integers(1, 3).map(lambda times: lambda text: text + "=" * times),
    st.text(max_size=40).map(lambda other: lambda _text: other),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["first", "final"]), _mutations | st.none()), min_size=1, max_size=4))
def test_no_order_and_no_change_of_messages_logs_in(sent: list[tuple[str, Mutation | None]]) -> None:
    """Only the unchanged messages, in their order, authenticate the user; anything else fails once and for all."""
    client = sally()
    messages = {"first": first("sally"), "final": "c=biws,r=x,p=eHh4"}
    taken: list[str] = []
    for kind, mutation in sent:
        message = messages[kind] if mutation is None else mutation(messages[kind])
        step = client.authenticate(message.encode(errors="surrogatepass"))
        if step.closes:
            assert taken or message != messages["first"]
            assert client.authenticate(messages["first"].encode()).closes
            return
        if step.principal is not None:
            # An extension before the proof is ignored, as in Kafka.
            assert (len(taken), step.principal) == (1, Principal("sally"))
            nonce, proof = messages["final"].split(",p=")
            assert message.startswith(nonce)
            assert message.endswith(proof)
            return
        assert not taken
        taken.append(message)
        messages["final"] = final(SHA_256, "sally-secret", message, token_of(step))[0]


@pytest.mark.parametrize(
    "nonce", ["x", "", "{client}", "{server}", "{client}{client}{server}", "{client}{server}x", "{server}{client}"]
)
def test_wrong_final_nonce_with_a_right_proof_over_it(nonce: str) -> None:
    client = sally()
    message = first("sally")
    answer = token_of(send(client, message))
    server = answer.split(",")[0].removeprefix(f"r={NONCE}")
    wrong = nonce.format(client=NONCE, server=server)
    assert_refused(send(client, final(SHA_256, "sally-secret", message, answer, nonce=wrong)[0]))


@pytest.mark.parametrize("channel", ["y,,", "n,a=sally,", "", "n,,n", "p=tls-unique,,"])
def test_channel_of_another_header_with_a_right_proof_over_it(channel: str) -> None:
    client = sally()
    message = first("sally")
    answer = token_of(send(client, message))
    assert_refused(send(client, final(SHA_256, "sally-secret", message, answer, channel=channel)[0]))


@pytest.mark.parametrize("proof", ["", "eA==", "A" * 40 + "AAA=", "A" * 44])
def test_proof_of_another_length(proof: str) -> None:
    client = sally()
    answer = token_of(send(client, first("sally")))
    nonce = answer.split(",")[0]
    assert_refused(send(client, f"c=biws,{nonce},p={proof}"))


def test_longer_proof_that_begins_with_the_right_one() -> None:
    client = sally()
    message = first("sally")
    right = final(SHA_256, "sally-secret", message, token_of(send(client, message)))[0]
    assert_refused(send(client, right.rstrip("=") + "AAAA="))


def test_mandatory_extension_is_refused_at_once() -> None:
    assert_refused(send(sally(), "n,,m=x,n=sally,r=a"))


def test_other_identity() -> None:
    step = send(sally(), "n,a=bob,n=sally,r=a")
    assert_refused(step, "Authentication failed: Client requested an authorization id that is different from username")


def test_stored_credential_with_few_iterations_is_not_used() -> None:
    weak = scram_credential(SHA_256, "sally-secret", SALT, ITERATIONS_MIN - 1)
    assert_refused(send(begun(Users(scram={("sally", SHA_256): weak})), first("sally")))


# -- users that do not exist ------------------------------------------------------------------------------------


def challenge(users: SaslListener, user: str) -> dict[str, str]:
    client = Client(users)
    client.shake_hands(SHA_256)
    return dict(part.split("=", 1) for part in token_of(send(client, first(user))).split(","))


def test_unknown_user_is_challenged_like_a_known_one() -> None:
    """The salt looks as Kafka's tools make it, and stays the same, because that of a user does."""
    shared = listener(Users(scram={("sally", SHA_256): SALLY}), mechanisms=(SHA_256,))
    one, again, other = challenge(shared, "nobody"), challenge(shared, "nobody"), challenge(shared, "none")
    assert one == again
    assert one["s"] != other["s"]
    assert one["i"] == challenge(shared, "sally")["i"]
    assert 32 <= len(one["s"]) <= 36


def test_proof_of_an_unknown_user_fails() -> None:
    client = sally()
    message = first("nobody")
    answer = token_of(send(client, message))
    assert_refused(send(client, final(SHA_256, "sally-secret", message, answer)[0]))


def _calls(action: Callable[[], Any]) -> int:
    """How many functions an action calls, those of C included."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_unknown_user_costs_the_work_of_a_wrong_password() -> None:
    counts = []
    for user in ("sally", "nobody"):
        client = sally()
        message = first(user)
        answer = token_of(send(client, message))
        wrong = final(SHA_256, "wrong", message, answer)[0].encode()
        # The first time compiles readers and encoders.
        client.authenticator, kept = sally().authenticator, client.authenticator
        client.authenticate(wrong)
        client.authenticator = kept
        counts.append(_calls(partial(client.authenticate, wrong)))
    assert counts[0] == counts[1]


# -- passwords and tokens ---------------------------------------------------------------------------------------


def login(client: Client, user: str, password: str, mechanism: str = SHA_256, extensions: str = "") -> Step:
    message = first(user, extensions=extensions)
    return send(client, final(mechanism, password, message, token_of(send(client, message)))[0])


@MECHANISMS
def test_user_with_a_password_only(mechanism: str) -> None:
    """The credential is derived on another thread at the first login, and again when the password has changed."""
    users = Users(scram={("sally", mechanism): "one"})
    shared = listener(users, mechanisms=(mechanism,))
    works = []
    for password in ("one", "one", "two"):
        users.scram_credentials["sally", mechanism] = password
        client = Client(shared)
        client.shake_hands(mechanism)
        request = first("sally")
        step = client.authenticator.receive(authenticate_frame(request.encode()), client.now_ms)
        works.append(step.work is not None)
        if step.work is not None:
            step = client.authenticator.resume(step.work(), client.now_ms)
        answer = str(read(step).auth_bytes.decode())
        assert send(client, final(mechanism, password, request, answer)[0]).principal == Principal("sally")
    assert works == [True, False, True]


def test_derived_credentials_are_bounded() -> None:
    shared = ScramUsers(Users(), lambda bits: 5)
    for number in range(DERIVED_CREDENTIALS_MAX + 1):
        shared.keep(SHA_256, str(number), "p", SALLY)
    assert shared.derived(SHA_256, "0", "p") is None
    assert shared.derived(SHA_256, "1", "p") == SALLY
    assert shared.derived(SHA_256, "1", "q") is None


def test_first_derivations_leave_no_work_to_the_first_login() -> None:
    """A user with a password is answered at once, like a name that nobody has; more users than are kept are not derived."""
    names = [f"user-{number:04}" for number in range(DERIVED_CREDENTIALS_MAX)]
    users = Users(scram={(name, SHA_256): "secret" for name in names})
    scram_users = ScramUsers(users, lambda bits: 5)
    works = list(scram_users.first_derivations(SHA_256))
    assert len(works) == DERIVED_CREDENTIALS_MAX // 2
    derive, keep = works[0]
    keep(derive())
    client = Client(SaslListener(SaslConfig((SHA_256,)), users, scram_users))
    client.shake_hands(SHA_256)
    step = client.authenticator.receive(authenticate_frame(first(names[0]).encode()), client.now_ms)
    assert (step.work, read(step).error_code) == (None, 0)


BOB = Token(Principal("bob"), 1_600_000, "hmac")


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_login_with_a_token(value: str) -> None:
    client = begun(Users(tokens={"id": BOB}))
    step = login(client, "id", "hmac", extensions=f",tokenauth={value}")
    assert step.principal == Principal("bob", is_token=True)
    assert (step.session_ends_at_ms, read(step).session_lifetime_ms) == (1_600_000, 600_000)


def test_expired_token_gives_a_session_that_has_ended() -> None:
    client = begun(Users(tokens={"id": BOB._replace(expires_at_ms=7)}))
    step = login(client, "id", "hmac", extensions=",tokenauth=true")
    assert (step.session_ends_at_ms, read(step).session_lifetime_ms) == (client.now_ms, 0)
    assert client.authenticate(b"").closes


@pytest.mark.parametrize(
    ("user", "secret", "extensions"),
    [
        ("id", "hmac", ""),
        ("id", "hmac", ",tokenauth=false"),
        ("id", "wrong", ",tokenauth=true"),
        ("sally", "sally-secret", ",tokenauth=true"),
        ("bob", "hmac", ",tokenauth=true"),
    ],
)
def test_names_of_tokens_and_of_users_are_apart(user: str, secret: str, extensions: str) -> None:
    client = begun(Users(scram={("sally", SHA_256): SALLY}, tokens={"id": BOB}))
    assert_refused(login(client, user, secret, extensions=extensions))


def test_secrets_are_not_printed() -> None:
    for value in (SALLY, BOB, ScramCredential(b"salt", b"stored", b"server", 4_096)):
        for secret in ("hmac", "salt", "stored", "server", "\\x"):
            assert secret not in repr(value)
