"""
The value of a delegation token, its lifetimes, its secret, and the form in which the catalog stores it.

The secret is not stored: it is the HMAC of the token's id under `delegation.token.secret.key`. Source: KIP-48, KIP-373; Kafka
DelegationTokenControlManager, TokenInformation.
"""

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import TOKEN_PRINCIPALS_BYTES_MAX, TOKEN_RENEWERS_MAX
from kohort.model.principals import Principal

USER_TYPE: Final = "User"
_LONG_MAX: Final = (1 << 63) - 1


class Token(msgspec.Struct, frozen=True):
    """
    One delegation token; a value without its secret. Times are milliseconds of the epoch.

    Attributes:
        owner: the user of a connection that is authenticated with the token.
        requester: who made it: the owner, or a user who may make tokens for the owner.
        renewers: users who may renew it and end it beside the owner, as the request named them.
        expires_ms: until when it is valid unless it is renewed; not after `max_ms`.
        max_ms: until when it can be renewed.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over. An expired token exists until the next sweep."""
        return self.expires_ms < now_ms

    def is_renewed_by(self, principal: Principal) -> bool:
        """Whether a user may renew the token and end it. A super user who is neither owner nor renewer may not."""
        return same(principal, self.owner) or any(same(principal, renewer) for renewer in self.renewers)

    def stored(self) -> dict[str, Any]:
        """The fields of the setting in the catalog."""
        return {
            "owner": _pair(self.owner),
            "requester": _pair(self.requester),
            "renewers": [_pair(renewer) for renewer in self.renewers],
            "issued_ms": self.issued_ms,
            "expires_ms": self.expires_ms,
            "max_ms": self.max_ms,
        }


def same(one: Principal, other: Principal) -> bool:
    """Whether two principals are the same user, however their connections were authenticated. Source: KafkaPrincipal.equals."""
    return one.name == other.name and one.type == other.type


def secret_of(token_id: str, key: str) -> bytes:
    """The HMAC of a token, 64 bytes. Clients name the token by it, and its base64 text is the password of a login."""
    return hmac.digest(key.encode(), token_id.encode(), "sha512")


def least_end(now_ms: int, period_ms: int, bound_ms: int) -> int:
    """The end of a period of the client's choice. Zero and negative ones are `bound_ms`, the longest one."""
    return min(now_ms + (min(period_ms, bound_ms) if period_ms > 0 else bound_ms), _LONG_MAX)


def check_principals(owner: Principal, renewers: Sequence[Principal]) -> None:
    """
    Check what a new token stores. Kafka has no bound, and its controller ends with an error at 8 MiB.

    Raises:
        CoordinatorError: INVALID_PRINCIPAL_TYPE; INVALID_REQUEST for more than a token can hold.
    """
    if len(renewers) > TOKEN_RENEWERS_MAX:
        message = f"A delegation token has at most {TOKEN_RENEWERS_MAX} renewers"
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)
    if any(renewer.type != USER_TYPE for renewer in renewers):
        raise CoordinatorError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    size = sum(len(text.encode()) for each in (owner, *renewers) for text in _pair(each))
    if size > TOKEN_PRINCIPALS_BYTES_MAX:
        message = f"The names of owner and renewers have at most {TOKEN_PRINCIPALS_BYTES_MAX} bytes together"
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)


def token_of(token_id: str, fields: Mapping[str, Any]) -> Token:
    """
    Read a stored token.

    Raises:
        ConfigError: a field is missing or invalid.
    """
    try:
        times = [fields[name] for name in ("issued_ms", "expires_ms", "max_ms")]
        if not all(isinstance(time_ms, int) and 0 <= time_ms <= _LONG_MAX for time_ms in times):
            raise ValueError(times)
        return Token(
            token_id,
            _principal(fields["owner"]),
            _principal(fields["requester"]),
            tuple(_principal(renewer) for renewer in fields["renewers"]),
            *times,
        )
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"The delegation token {token_id!r} has a missing or invalid field") from None


def _pair(principal: Principal) -> list[str]:
    return [principal.type, principal.name]


def _principal(pair: Any) -> Principal:
    kind, name = pair
    if not isinstance(kind, str) or not isinstance(name, str):
        raise TypeError(pair)
    return Principal(name, kind)
