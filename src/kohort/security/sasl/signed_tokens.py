"""
Access tokens with a signature, by the keys of a JSON Web Key Set.

The key decides which algorithms a token may name. A symmetric key is never used, an unknown critical header is refused.

Source: RFC 7515, RFC 7517, RFC 7519; KIP-768, KIP-1258; Kafka BrokerJwtValidator, ClaimValidationUtils.
"""

import json
import warnings
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kohort.model.errors import ConfigError
from kohort.model.limits import SIGNING_KEYS_MAX
from kohort.model.numbers import trim
from kohort.security.sasl.access_tokens import AcceptedToken, Claims, TokenError, parts_of, time_of

_RSA_BITS_MIN: Final = 2_048
_BITS_OF_BASE64: Final = 6
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA", "Ed25519"}),
}


class SigningKey(NamedTuple):
    """
    A public key.

    Attributes:
        name: of the key (`kid`), if it has one.
        algorithms: those that fit the key.
        key: as the library has it.
    """

    name: str | None
    algorithms: frozenset[str]
    key: Any


class SigningKeys(Protocol):
    """The keys of an issuer. They may be read from a file or a server, so a call may take long."""

    def find(self, name: str | None, /) -> Sequence[SigningKey]:
        """The keys with a name, or all keys."""


def read_keys(text: bytes) -> list[SigningKey]:
    """
    Read a JSON Web Key Set. Keys that cannot verify signatures are left out.

    Raises:
        ConfigError: it is none. The message has nothing of the text.
    """
    try:
        from joserfc import jwk
        from joserfc.errors import JoseError, SecurityWarning
    except ImportError:
        raise ConfigError(
            "Signed tokens need the package joserfc: install kohort with its extra, kohort[oauth]"
        ) from None
    # The library warns of EdDSA, which has a newer name, for each token.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    try:
        members = json.loads(text)["keys"]
    except (ValueError, RecursionError, TypeError, KeyError):
        members = None
    if not isinstance(members, list) or len(members) > SIGNING_KEYS_MAX:
        raise ConfigError(f"A JSON Web Key Set has a list of at most {SIGNING_KEYS_MAX} keys")
    keys = []
    for member in members:
        algorithms = _algorithms_of(member)
        if not algorithms:
            continue
        name = member.get("kid")
        try:
            key = jwk.import_key(member)
        except (JoseError, ValueError, TypeError, AttributeError):
            continue
        keys.append(SigningKey(name if isinstance(name, str) else None, algorithms, key))
    if not keys:
        raise ConfigError("The JSON Web Key Set has no key that can verify signatures")
    return keys


def _algorithms_of(member: Any) -> frozenset[str]:
    """The algorithms that a member of a key set can verify; none for symmetric keys, short ones and keys of another use."""
    if not isinstance(member, dict) or member.get("use", "sig") != "sig":
        return frozenset()
    kind, curve, algorithm = member.get("kty"), member.get("crv"), member.get("alg")
    if kind == "RSA":
        modulus_bits = len(str(member.get("n", ""))) * _BITS_OF_BASE64
        algorithms = _RSA_ALGORITHMS if modulus_bits >= _RSA_BITS_MIN else frozenset()
    elif kind in ("EC", "OKP") and isinstance(curve, str):
        algorithms = _CURVES.get(curve, frozenset())
    else:
        algorithms = frozenset()
    return algorithms if algorithm is None else algorithms & {str(algorithm)}


class Signed(NamedTuple):
    """
    Validates tokens with a signature.

    Attributes:
        keys: of the issuer.
        audiences: one of them must be an audience of the token; None: any audience will do.
        issuer: of the token; None: any issuer will do.
        skew_s: how much the clocks may differ.
        subject_claim: the claim with the name of the user.
        scope_claim: the claim with the scopes.
    """

    keys: SigningKeys
    audiences: Collection[str] | None
    issuer: str | None
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    is_slow: bool = True

    def validate(self, token: str, now_ms: int) -> AcceptedToken:
        header, claims, _ = parts_of(token)
        self._verify(token, header)
        issuer, audience = claims.get("iss"), claims.get("aud")
        if self.issuer is not None and issuer != self.issuer:
            raise TokenError("the token has another issuer")
        audiences = audience if isinstance(audience, list) else [audience]
        is_text = all(isinstance(each, str) for each in audiences)
        if self.audiences is not None and not (is_text and any(each in self.audiences for each in audiences)):
            raise TokenError("the token is for another audience")
        expires_at_ms = self._check_times(claims, now_ms)
        scopes = claims.get(self.scope_claim, [])
        scopes = [scopes] if isinstance(scopes, str) else scopes
        if isinstance(scopes, list):
            texts = [trim(scope) for scope in scopes if isinstance(scope, str)]
            if len(texts) < len(scopes) or not all(texts) or len(set(texts)) < len(texts):
                raise TokenError(f"the claim {self.scope_claim} has a blank or a repeated scope")
        subject = claims.get(self.subject_claim)
        if not isinstance(claims.get("jti", ""), str):
            raise TokenError("the claim jti is no text")
        if not isinstance(subject, str) or not trim(subject):
            raise TokenError(f"the claim {self.subject_claim} names no user")
        return AcceptedToken(trim(subject), expires_at_ms)

    def _verify(self, token: str, header: Claims) -> None:
        from joserfc import jws
        from joserfc.errors import JoseError

        name, algorithm = header.get("kid"), header.get("alg")
        if "crit" in header or not isinstance(algorithm, str) or not isinstance(name, str | None):
            raise TokenError("the header of the token is malformed, or has a critical part that is unknown")
        for key in self.keys.find(name):
            if algorithm in key.algorithms:
                try:
                    jws.deserialize_compact(token, key.key, algorithms=[algorithm])
                except (JoseError, ValueError):
                    continue
                return
        raise TokenError("no key verifies the token")

    def _check_times(self, claims: Claims, now_ms: int) -> int:
        """When the token ends."""
        skew_ms = self.skew_s * 1_000
        expires_at_ms, issued_at_ms, begins_at_ms = (time_of(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_at_ms is None or issued_at_ms is None:
            raise TokenError("the token does not say when it was issued, and when it ends")
        if expires_at_ms < 0 or issued_at_ms < 0:
            raise TokenError("the token is older than all tokens")
        if now_ms - skew_ms >= expires_at_ms:
            raise TokenError("the token has expired")
        if begins_at_ms is not None and begins_at_ms > now_ms + skew_ms:
            raise TokenError("the token is not valid yet")
        if expires_at_ms < max(issued_at_ms, begins_at_ms or 0):
            raise TokenError("the token ends before it begins")
        return expires_at_ms
