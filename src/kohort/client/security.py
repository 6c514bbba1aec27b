"""
How to connect to a cluster, in the names of Kafka's client configurations.

| name                                      | meaning                                                                     |
|-------------------------------------------|-----------------------------------------------------------------------------|
| `security.protocol`                       | `PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`                  |
| `ssl.truststore.location`                 | a PEM file with the certificates to trust; default: those of the system     |
| `ssl.keystore.location`                   | a PEM file with our certificate and its key, where the broker asks for one  |
| `ssl.key.password`                        | of that key                                                                 |
| `ssl.endpoint.identification.algorithm`   | `https` (default), or empty: any name in the broker's certificate           |
| `sasl.mechanism`                          | `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`                                 |
| `sasl.username`, `sasl.password`          | who we are                                                                  |
| `sasl.jaas.config`                        | the same as Kafka's tools have it: `... username="u" password="p";`         |

Java key stores (JKS, PKCS12), Kerberos and OAUTHBEARER are refused.

Source: Kafka SaslConfigs, SslConfigs; KIP-651 (PEM); RFC 5802, RFC 7677 (SCRAM); RFC 4616 (PLAIN).
"""

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kohort.model.errors import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_HASHES)
_ITERATIONS_MAX = 1_000_000
KNOWN = {
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
}
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

Exchange = Callable[[bytes], bytes]
"""Hands a SASL message to the broker and returns its answer."""


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection needs before the first request. Its text shows no password."""

    is_encrypted: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    trusted: str | None = None
    own_certificate: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_name: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """
        Out of configurations by name; those of `KNOWN` alone have a meaning here.

        Raises:
            ConfigError: a configuration cannot be, or one is missing.
        """
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"security.protocol is one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        for store in ("truststore", "keystore"):
            if given.get(f"ssl.{store}.type", "PEM").upper() != "PEM":
                raise ConfigError(f"ssl.{store}.type: only PEM files can be read here, not Java's key stores")
        mechanism, username, password = _who(given) if protocol.startswith("SASL") else (None, "", "")
        return cls(
            is_encrypted=protocol.endswith("SSL"),
            mechanism=mechanism,
            username=username,
            password=password,
            trusted=given.get("ssl.truststore.location"),
            own_certificate=given.get("ssl.keystore.location"),
            key_password=given.get("ssl.key.password"),
            checks_name=given.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def context(self) -> ssl.SSLContext:
        """
        For TLS.

        Raises:
            ConfigError: a file cannot be read, or holds no certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.trusted)
            if self.own_certificate is not None:
                context.load_cert_chain(self.own_certificate, password=self.key_password or "")
        except (OSError, ssl.SSLError) as exc:
            names = " or ".join(name for name in (self.trusted, self.own_certificate) if name)
            raise ConfigError(f"{names} cannot be used for TLS (PEM files are wanted): {exc}") from exc
        context.check_hostname = self.checks_name
        return context

    def authenticate(self, exchange: Exchange) -> None:
        """
        Tell the broker who we are, after it has agreed to the mechanism.

        Raises:
            ConfigError: the broker does not know the password either.
        """
        if self.mechanism == "PLAIN":
            exchange(f"\0{self.username}\0{self.password}".encode())
        elif self.mechanism is not None:
            _scram(_HASHES[self.mechanism], self.username, self.password, exchange, secrets.token_urlsafe(24))


PLAINTEXT = Security()


def read_properties(path: Path) -> dict[str, str]:
    """
    A file as Kafka's tools take it with `--command-config`: a name and a value a line, comments behind # or !.

    Raises:
        ConfigError: it cannot be read, or a line is something else.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    given: dict[str, str] = {}
    for number, line in enumerate(re.sub(r"\\\n[ \t]*", "", "\n".join(lines)).splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{path}, line {number}: {text!r} is no name=value")
        given[name.strip()] = value.strip()
    return given


def _who(given: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism is one of {', '.join(MECHANISMS)}, not {mechanism or 'nothing'}")
    told = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(given.get("sasl.jaas.config", ""))}
    username, password = (given.get(f"sasl.{name}", told.get(name)) for name in ("username", "password"))
    if username is None or password is None:
        raise ConfigError("SASL needs sasl.username and sasl.password, or both in sasl.jaas.config")
    return mechanism, username, password


def _scram(algorithm: str, username: str, password: str, exchange: Exchange, nonce: str) -> None:
    """The client's part of SCRAM, without channel binding. The broker has to prove itself, too."""
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = exchange(f"n,,{bare}".encode()).decode()
    told = _fields(first)
    iterations = int(told["i"]) if told.get("i", "").isdecimal() else 0
    if not told.get("r", "").startswith(nonce) or not 0 < iterations <= _ITERATIONS_MAX or "s" not in told:
        raise ConfigError("the broker does not answer SCRAM as it should")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(told["s"]), iterations)
    final = f"c=biws,r={told['r']}"
    signed = f"{bare},{first},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    verdict = _fields(exchange(f"{final},p={proof}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(base64.b64decode(verdict.get("v", "")), expected):
        raise ConfigError("the broker does not know the password: it is not the one it says it is")


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
