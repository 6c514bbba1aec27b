"""
TLS and SASL settings of a connection, by the names of Kafka's client configurations.

| name                                      | meaning                                                                     |
|-------------------------------------------|-----------------------------------------------------------------------------|
| `security.protocol`                       | `PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`                  |
| `ssl.truststore.location`                 | a PEM file with trusted certificates; default: those of the system          |
| `ssl.keystore.location`                   | a PEM file with the client's certificate and key, for mutual TLS            |
| `ssl.key.password`                        | the password of that key                                                    |
| `ssl.endpoint.identification.algorithm`   | `https` (default): verify the host name; empty: accept any name             |
| `sasl.mechanism`                          | `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`                                 |
| `sasl.username`, `sasl.password`          | the credentials                                                             |
| `sasl.jaas.config`                        | the same in JAAS form: `... username="u" password="p";`                     |

Java key stores (JKS, PKCS12), Kerberos and OAUTHBEARER are not supported.

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
from kohort.model.numbers import is_number
from kohort.model.properties import parse_properties

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_HASHES)
_ITERATIONS_MAX = 1_000_000
SUPPORTED_CONFIGS = {
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
"""Sends a SASL message to the broker and returns the answer."""


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and SASL settings. `repr()` shows no password."""

    is_encrypted: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    truststore: str | None = None
    keystore: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> Self:
        """
        Read the settings from client configurations. Names outside `SUPPORTED_CONFIGS` are ignored.

        Raises:
            ConfigError: a value is invalid or not supported, or credentials are missing.
        """
        protocol = configs.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        for store in ("truststore", "keystore"):
            if configs.get(f"ssl.{store}.type", "PEM").upper() != "PEM":
                raise ConfigError(f"ssl.{store}.type: only PEM files are supported, not Java key stores")
        mechanism, username, password = _credentials(configs) if protocol.startswith("SASL") else (None, "", "")
        return cls(
            is_encrypted=protocol.endswith("SSL"),
            mechanism=mechanism,
            username=username,
            password=password,
            truststore=configs.get("ssl.truststore.location"),
            keystore=configs.get("ssl.keystore.location"),
            key_password=configs.get("ssl.key.password"),
            verify_hostname=configs.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def ssl_context(self) -> ssl.SSLContext:
        """
        Make the context for TLS.

        Raises:
            ConfigError: a file cannot be read, or contains no certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.truststore)
            if self.keystore is not None:
                context.load_cert_chain(self.keystore, password=self.key_password or "")
        except (OSError, ssl.SSLError) as exc:
            names = " or ".join(name for name in (self.truststore, self.keystore) if name)
            raise ConfigError(f"{names} cannot be used for TLS; both must be PEM files: {exc}") from exc
        context.check_hostname = self.verify_hostname
        return context

    def authenticate(self, exchange: Exchange) -> None:
        """
        Authenticate with SASL, after SaslHandshake has agreed on the mechanism.

        Raises:
            ConfigError: the broker cannot prove that it knows the password (SCRAM), or breaks the protocol.
        """
        if self.mechanism == "PLAIN":
            exchange(f"\0{self.username}\0{self.password}".encode())
        elif self.mechanism is not None:
            _scram(_HASHES[self.mechanism], self.username, self.password, exchange, secrets.token_urlsafe(24))


PLAINTEXT = Security()


def read_properties(path: Path) -> dict[str, str]:
    """
    Read a Java properties file, as Kafka's tools take with `--command-config`.

    Each line is `name=value`. Lines that start with # or ! are comments; a backslash at the end continues a line.

    Raises:
        ConfigError: the file cannot be read, or a line is not `name=value`.
    """
    try:
        return parse_properties(path.read_text("utf-8"), is_strict=True)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}") from exc
    except ValueError as exc:
        raise ConfigError(f"{path}, {exc}") from exc


def _credentials(configs: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = configs.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism or 'empty'}")
    fields = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _JAAS.findall(configs.get("sasl.jaas.config", ""))}
    username, password = (configs.get(f"sasl.{name}", fields.get(name)) for name in ("username", "password"))
    if username is None or password is None:
        raise ConfigError("SASL needs sasl.username and sasl.password, or both in sasl.jaas.config")
    return mechanism, username, password


def _scram(algorithm: str, username: str, password: str, exchange: Exchange, nonce: str) -> None:
    """Run the client side of SCRAM without channel binding, and check the server's signature."""
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = exchange(f"n,,{bare}".encode()).decode()
    fields = _fields(first)
    iterations = fields.get("i", "")
    if not fields.get("r", "").startswith(nonce) or not is_number(iterations, 1, _ITERATIONS_MAX) or "s" not in fields:
        raise ConfigError("the broker does not follow the SCRAM protocol")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(fields["s"]), int(iterations))
    final = f"c=biws,r={fields['r']}"
    signed = f"{bare},{first},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    verdict = _fields(exchange(f"{final},p={proof}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(base64.b64decode(verdict.get("v", "")), expected):
        raise ConfigError(
            "the broker cannot prove that it knows the password: it may not be the broker that it claims to be"
        )


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
