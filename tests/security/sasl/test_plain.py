"""PLAIN, and the states of an authentication that it shows best."""

from kohort.model.principals import Principal
from kohort.wire.apis import ApiKey
from tests.security.sasl.exchanges import Client, listener, read


def test_right_password_makes_the_user_the_principal_of_the_connection() -> None:
    client = Client(listener())
    assert read(client.shake_hands("PLAIN"), ApiKey.SASL_HANDSHAKE, 1).mechanisms == ("PLAIN",)
    step = client.authenticate(b"\0alice\0alice-secret")
    assert (step.principal, step.session_ends_at_ms, step.closes) == (Principal("alice"), None, False)
    assert read(step).error_code == 0


def test_wrong_password_is_answered_after_the_delay_and_closes() -> None:
    client = Client(listener(failure_delay_ms=70))
    client.shake_hands("PLAIN")
    step = client.authenticate(b"\0alice\0wrong")
    assert (step.principal, step.closes, step.delay_ms) == (None, True, 70)
    assert (read(step).error_code, read(step).error_message) == (
        58,
        "Authentication failed: Invalid username or password",
    )
    assert "wrong" not in step.refusal
