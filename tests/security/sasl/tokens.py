"""Access tokens that a test signs, and the key sets of their issuer."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from joserfc import jwk, jws

from kohort.security.sasl.signed_tokens import SigningKey, read_keys

NOW_S = 1_000
"""The time of a `Client`, in seconds."""
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600, "iss": "https://issuer.test", "aud": "kafka"}


@cache
def private_key(name: str, kind: str = "EC", size: Any = "P-256") -> Any:
    """A key that stays the same during a run."""
    return jwk.generate_key(kind, size, {"kid": name}, private=True)  # type: ignore[call-overload]


def key_set(*keys: Any, **parameters: Any) -> bytes:
    """The public keys, as their issuer serves them."""
    return json.dumps({"keys": [key.as_dict(private=False) | parameters for key in keys]}).encode()


def signed(claims: Mapping[str, Any] = CLAIMS, key: Any = None, **header: Any) -> str:
    """A token, by ES256 and the key `one` unless the arguments say otherwise."""
    key = private_key("one") if key is None else key
    header = {"alg": "ES256", "kid": "one"} | header
    header = {name: value for name, value in header.items() if value is not None}
    return jws.serialize_compact(header, json.dumps(claims).encode(), key, algorithms=[header["alg"]])


def unsecured(claims: Any, header: Any = None, signature: bytes = b"") -> str:
    """A token that anybody can make."""
    parts = (json.dumps({"alg": "none"} if header is None else header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


class Keys:
    """The keys of a set, in memory."""

    def __init__(self, text: bytes | None = None) -> None:
        self.keys = read_keys(key_set(private_key("one")) if text is None else text)

    def find(self, name: str | None) -> Sequence[SigningKey]:
        return [key for key in self.keys if name in (None, key.name)]
