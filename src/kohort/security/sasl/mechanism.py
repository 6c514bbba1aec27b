"""
One exchange of a SASL mechanism: messages of the client, answers of the broker, and at the end a user.

A user is authenticated if and only if an `Answer` has an `Identity`. Source: javax.security.sasl.SaslServer.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from kohort.model.principals import Principal

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

OTHER_IDENTITY: Final = "Authentication failed: Client requested an authorization id that is different from username"


class AuthenticationError(Exception):
    """
    The client is not who it claims to be, or does not follow the mechanism.

    Args:
        message: for the client; None if it is told only that its credentials are invalid.
        reason: for the log, without a secret.
    """

    def __init__(self, message: str | None = None, reason: str = "") -> None:
        super().__init__(message or reason)
        self.message = message
        self.reason = reason


class Identity(NamedTuple):
    """
    Who the client is.

    Attributes:
        principal: the user.
        expires_at_ms: when the credential ends; None if it does not end.
    """

    principal: Principal
    expires_at_ms: int | None = None


class Answer(NamedTuple):
    """
    The broker's next message.

    Attributes:
        token: may be empty.
        identity: the exchange is complete, and the client is this user.
    """

    token: bytes = b""
    identity: Identity | None = None


class Work(NamedTuple):
    """
    Work that takes too long for an event loop.

    Attributes:
        run: the work, on any thread. It does not raise.
        then: takes its result and the time, and goes on with the exchange; raises `AuthenticationError`.
    """

    run: Callable[[], Any]
    then: Callable[[Any, int], Answer]


class Exchange(Protocol):
    """The state of one exchange."""

    def respond(self, token: bytes, now_ms: int, /) -> Answer | Work:
        """
        Take the client's next message.

        Raises:
            AuthenticationError: the exchange is over.
        """
