"""
OAUTHBEARER: the client sends an access token.

A refused token is answered with a JSON object, and the client has to say that it has seen it before the exchange fails. It may
send another token instead.

Source: RFC 7628; KIP-255; Kafka OAuthBearerSaslServer, OAuthBearerClientInitialResponse.
"""

import re
from functools import partial
from typing import Final

from kohort.model.limits import ACCESS_TOKEN_BYTES_MAX
from kohort.model.principals import Principal
from kohort.security.sasl.access_tokens import AcceptedToken, TokenError, TokenValidator
from kohort.security.sasl.mechanism import Answer, AuthenticationError, Identity, Work

_SEEN: Final = b"\x01"
_NAME: Final = r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)++"
_MESSAGE: Final = re.compile(f"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01")
_AUTH: Final = re.compile(r"(\w+) +([\w.~+/-]+=*)", re.ASCII)
_SCHEME: Final = "bearer"
_MESSAGE_ROOM: Final = 4_096
"""The fields that a message may have beside its token."""


class OAuthBearerExchange:
    """An exchange of one message, or of more if a token is refused."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._error = ""
        """How the last token was refused, as JSON."""

    def respond(self, token: bytes, now_ms: int) -> Answer | Work:
        """Take a token, or the client's answer to the refusal of the last one."""
        if token == _SEEN and self._error:
            raise AuthenticationError(self._error)
        authorization_id, access_token = _read(token)
        run = partial(_validate, self._validator, access_token, now_ms)
        then = partial(self._take, authorization_id)
        return Work(run, then) if self._validator.is_slow else then(run(), now_ms)

    def _take(self, authorization_id: str, result: AcceptedToken | TokenError, _now_ms: int) -> Answer:
        if isinstance(result, TokenError):
            self._error = (
                '{"status":"invalid_token"}'
                if result.scope is None
                else f'{{"status":"insufficient_scope", "scope":"{result.scope}"}}'
            )
            return Answer(self._error.encode())
        if authorization_id not in ("", result.subject):
            raise AuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from "
                f"the token's principal name ({result.subject})"
            )
        return Answer(identity=Identity(Principal(result.subject), result.expires_at_ms))


def _validate(validator: TokenValidator, access_token: str, now_ms: int) -> AcceptedToken | TokenError:
    try:
        return validator.validate(access_token, now_ms)
    except TokenError as error:
        return error
    except Exception as error:  # noqa: BLE001 -- what a library does with a hostile token refuses the token, and no more
        return TokenError(f"the token cannot be read: {type(error).__name__}")


def _read(message: bytes) -> tuple[str, str]:
    """
    The authorization id, as it is sent, and the token of a message; other fields have no meaning.

    Raises:
        AuthenticationError: it has another form, or no token.
    """
    if len(message) > ACCESS_TOKEN_BYTES_MAX + _MESSAGE_ROOM:
        raise AuthenticationError(reason=f"a message of {len(message)} bytes is too long")
    match = _MESSAGE.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise AuthenticationError(reason="the message is malformed")
    fields = dict(field.split("=", 1) for field in match[2].split("\x01")[:-1])
    auth = _AUTH.fullmatch(fields.get("auth", ""))
    if auth is None or auth[1].lower() != _SCHEME:
        raise AuthenticationError(reason="the message has no bearer token")
    return match[1] or "", auth[2]
