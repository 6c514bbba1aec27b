"""
PLAIN: the client sends its name and its password. Source: RFC 4616; Kafka PlainSaslServer, PlainServerCallbackHandler.
"""

import hmac
from collections.abc import Callable

from kohort.model.principals import Principal
from kohort.security.sasl.mechanism import OTHER_IDENTITY, Answer, AuthenticationError, Identity

_PARTS_COUNTED_MAX = 4
"""Kafka stops to count the parts of a message at the fourth one."""


class PlainExchange:
    """
    An exchange of one message.

    Args:
        password: of a user; None for an unknown one.
    """

    def __init__(self, password: Callable[[str], str | None]) -> None:
        self._password = password

    def respond(self, token: bytes, _now_ms: int) -> Answer:
        """Check name and password; an unknown user is answered like a wrong password, and after the same work."""
        parts = token.decode(errors="replace").split("\0", _PARTS_COUNTED_MAX - 1)
        if len(parts) != 3:
            raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationError("Authentication failed: password not specified")
        # No password is empty, so an unknown user has none.
        expected = self._password(user) or ""
        if not hmac.compare_digest(password.encode(), expected.encode(errors="surrogateescape")):
            raise AuthenticationError("Authentication failed: Invalid username or password", f"user {user!r}")
        if authorization_id not in ("", user):
            raise AuthenticationError(OTHER_IDENTITY, f"user {user!r}")
        return Answer(identity=Identity(Principal(user)))
