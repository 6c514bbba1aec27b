"""
Access tokens of OAUTHBEARER: their parts, their claims, and the validator of tokens without a signature.

A refused token has a reason for the log. The client learns only that its token is invalid, or which scope it lacks.

Source: RFC 7515, RFC 7519; KIP-255, KIP-768; Kafka OAuthBearerUnsecuredJws, OAuthBearerUnsecuredValidatorCallbackHandler,
OAuthBearerValidationUtils.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kohort.model.limits import ACCESS_TOKEN_BYTES_MAX
from kohort.model.numbers import INT64_MAX, trim

Claims = Mapping[str, Any]

_TIME_MAX_S: Final = INT64_MAX // 1_000

_URL_SAFE: Final = re.compile("[A-Za-z0-9_-]*")


class TokenError(Exception):
    """
    A token is refused.

    Args:
        reason: for the log; it repeats nothing of the token's signature.
        scope: the scopes that are required, as Java prints a list, if the token lacks one.
    """

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.scope = scope


class AcceptedToken(NamedTuple):
    """
    Attributes:
        subject: the name of the user.
        expires_at_ms: may have passed already, within the skew of clocks.
    """

    subject: str
    expires_at_ms: int


class TokenValidator(Protocol):
    """Says whose token it is."""

    @property
    def is_slow(self) -> bool:
        """Whether `validate` may wait, and runs on another thread."""

    def validate(self, token: str, now_ms: int, /) -> AcceptedToken:
        """
        Check a token.

        Raises:
            TokenError: it is not valid now.
        """


class Unsecured(NamedTuple):
    """
    Validates tokens that anybody can make, for development: the header says `{"alg": "none"}`, and there is no signature.

    Attributes:
        subject_claim: the claim with the name of the user.
        scope_claim: the claim with the scopes.
        required_scope: scopes that a token needs.
        skew_ms: how much the clocks may differ.
    """

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: Collection[str] = ()
    skew_ms: int = 0
    is_slow: bool = False

    def validate(self, token: str, now_ms: int) -> AcceptedToken:
        header, claims, signature = parts_of(token)
        if header.get("alg") != "none" or signature:
            raise TokenError("a token without a signature is wanted")
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not trim(subject):
            raise TokenError(f"the claim {self.subject_claim} names no user")
        expires_at_ms, issued_at_ms = time_of(claims, "exp"), time_of(claims, "iat")
        if expires_at_ms is None or now_ms - self.skew_ms >= expires_at_ms:
            raise TokenError("the token has expired")
        if issued_at_ms is not None and (issued_at_ms > now_ms + self.skew_ms or issued_at_ms >= expires_at_ms):
            raise TokenError("the token is issued in the future, or after it ends")
        scopes = set(scopes_of(claims, self.scope_claim))
        for scope in self.required_scope:
            if scope not in scopes:
                raise TokenError("the token lacks a scope", f"[{', '.join(self.required_scope)}]")
        return AcceptedToken(subject, expires_at_ms)


def parts_of(token: str) -> tuple[Claims, Claims, bytes]:
    """
    Header, claims and signature of a token.

    Raises:
        TokenError: it has another form.
    """
    if len(token) > ACCESS_TOKEN_BYTES_MAX:
        raise TokenError(f"a token of {len(token)} bytes is too long")
    sections = token.split(".")
    if len(sections) != 3:
        raise TokenError(f"a token has three sections, not {len(sections)}")
    header, claims, signature = map(_decoded, sections)
    return _json_object(header), _json_object(claims), signature


def _decoded(section: str) -> bytes:
    if not _URL_SAFE.fullmatch(section) or len(section) % 4 == 1:
        raise TokenError("a section of the token is not in base64")
    return urlsafe_b64decode(section + "=" * (-len(section) % 4))


def _json_object(text: bytes) -> Claims:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenError("a section of the token is not JSON") from None
    if not isinstance(found, dict):
        raise TokenError("a section of the token is not a JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def time_of(claims: Claims, name: str) -> int | None:
    """
    A time in milliseconds, of a claim in seconds; None if it is absent.

    Raises:
        TokenError: it is no number, or too far away.
    """
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _TIME_MAX_S:
        raise TokenError(f"the claim {name} is no time")
    return int(value * 1_000)


def scopes_of(claims: Claims, name: str) -> list[str]:
    """
    The scopes of a claim: a text, or a list of texts. Blank ones do not count.

    Raises:
        TokenError: it is something else.
    """
    value = claims.get(name, [])
    scopes = [value] if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise TokenError(f"the claim {name} has no scopes")
    return [trim(scope) for scope in scopes if trim(scope)]
