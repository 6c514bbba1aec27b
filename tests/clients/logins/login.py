"""How a client logs in: the mechanism, and what it shows of itself."""

import json
import ssl
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

MUTUAL_TLS = "mutual TLS"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, MUTUAL_TLS)


@dataclass(frozen=True)
class Login:
    """
    Attributes:
        bootstrap: the listener.
        mechanism: of `MECHANISMS`.
        user: of the certificate, for mutual TLS.
        life_s: of a token; a negative one has ended.
        authority, certificate: files in PEM; the latter has the key, too.
    """

    bootstrap: str
    mechanism: str
    user: str
    password: str = ""
    life_s: int = 600
    authority: Path | None = None
    certificate: Path | None = None

    @property
    def is_tls(self) -> bool:
        return self.mechanism == MUTUAL_TLS

    @property
    def protocol(self) -> str:
        return "SSL" if self.is_tls else "SASL_PLAINTEXT"

    @property
    def ends_s(self) -> float:
        """When the token ends, in seconds since 1970."""
        return time.time() + self.life_s

    def token(self) -> str:
        """An unsigned token, which the listener accepts."""
        claims = {"sub": self.user, "iat": time.time() - 1_000, "exp": self.ends_s}
        return ".".join((*(_encoded(part) for part in ({"alg": "none"}, claims)), ""))

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        assert self.certificate is not None, "it is mutual TLS"
        context.load_cert_chain(self.certificate)
        return context

    def wrong(self) -> Self:
        """The same with a wrong password, or with a token that has ended."""
        return replace(self, password="wrong", life_s=-60)


def _encoded(part: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
