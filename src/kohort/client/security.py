"""
TLS and SASL settings of a connection, by the names of Kafka's client configurations.

| name                                      | meaning                                                                     |
|-------------------------------------------|-----------------------------------------------------------------------------|
| `security.protocol`                       | `PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`                  |
| `ssl.truststore.location`                 | a PEM file with trusted certificates; default: those of the system          |
| `ssl.keystore.location`                   | a PEM file with the client's certificate and key, for mutual TLS            |
| `ssl.truststore.certificates`             | the trusted certificates themselves, in PEM, instead of a file              |
| `ssl.keystore.key`                        | the key itself, and `ssl.keystore.certificate.chain` its certificates       |
| `ssl.key.password`                        | the password of that key                                                    |
| `ssl.endpoint.identification.algorithm`   | `https` (default): verify the host name; empty: accept any name             |
| `sasl.mechanism`                          | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`                  |
| `sasl.username`, `sasl.password`          | the credentials of PLAIN and SCRAM                                          |
| `sasl.jaas.config`                        | the same in JAAS form: `MODULE required username="u" password="p";`.        |
|                                           | With `tokenauth="true"` they are id and HMAC of a delegation token.         |
| `sasl.oauthbearer.token.endpoint.url`     | where tokens are requested (http, https), or the file with the token        |
| `sasl.oauthbearer.client.credentials.`    | the credentials for that endpoint; `clientId` and `clientSecret` in         |
| `client.id`, `client.secret`              | `sasl.jaas.config` are the same                                             |
| `sasl.oauthbearer.scope`                  | of the token that is requested                                              |
| `sasl.oauthbearer.header.urlencode`       | whether these credentials are URL-encoded in the header                     |
| `sasl.oauthbearer.token`                  | a token as it is; a name of Kohort's own                                    |
| `sasl.login.callback.handler.class`       | accepted with the names of Kafka's own handlers, and not needed             |

Extensions of a login are options `extension_NAME` of `sasl.jaas.config`, and `unsecuredLoginStringClaim_sub` there makes an
unsigned token, as in Kafka. Java key stores (JKS, PKCS12) and Kerberos are not supported.

Source: Kafka SaslConfigs, SslConfigs; KIP-651 (PEM).
"""

import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Self

from kohort.client.oauth import CONFIGS, Tokens
from kohort.client.sasl import Exchange, oauthbearer, plain, scram
from kohort.model.errors import ConfigError
from kohort.model.properties import parse_properties
from kohort.security.credentials import SCRAM_HASHES
from kohort.security.jaas import parse_jaas
from kohort.security.pem import certificates, private_key

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTHBEARER = "OAUTHBEARER"
_TRUSTED = "ssl.truststore.certificates"
_KEY = "ssl.keystore.key"
_CHAIN = "ssl.keystore.certificate.chain"
MECHANISMS = ("PLAIN", *SCRAM_HASHES, _OAUTHBEARER)
SUPPORTED_CONFIGS = {
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    *CONFIGS,
}


@dataclass(frozen=True, slots=True)
class Security:
    """
    TLS and SASL settings. `repr()` shows no password.

    Attributes:
        is_token: the credentials of SCRAM are those of a delegation token.
        tokens: where the tokens of OAUTHBEARER come from.
        truststore, keystore: files in PEM.
        trusted: certificates in PEM instead of the file; `key_pair`: key and certificates likewise.
    """

    is_encrypted: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    truststore: str | None = None
    keystore: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True
    is_token: bool = False
    tokens: Tokens | None = None
    trusted: str | None = None
    key_pair: str | None = field(default=None, repr=False)

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
        return cls(
            is_encrypted=protocol.endswith("SSL"),
            **(_credentials(configs) if protocol.startswith("SASL") else {}),
            truststore=configs.get("ssl.truststore.location"),
            keystore=configs.get("ssl.keystore.location"),
            key_password=configs.get("ssl.key.password"),
            verify_hostname=configs.get("ssl.endpoint.identification.algorithm", "https") != "",
            **_texts(configs),
        )

    def ssl_context(self) -> ssl.SSLContext:
        """
        Make the context for TLS.

        Raises:
            ConfigError: a file cannot be read, or contains no certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.truststore, cadata=self.trusted)
            password = self.key_password or ""
            if self.keystore is not None:
                context.load_cert_chain(self.keystore, password=password)
            elif self.key_pair is not None:
                # The library reads files only. This one is its owner's alone.
                with NamedTemporaryFile(suffix=".pem") as file:
                    file.write(self.key_pair.encode())
                    file.flush()
                    context.load_cert_chain(file.name, password=password)
        except (OSError, ssl.SSLError) as exc:
            texts = ((self.trusted, _TRUSTED), (self.key_pair, _KEY))
            named = (self.truststore, self.keystore, *(name for text, name in texts if text is not None))
            names = " or ".join(name for name in named if name)
            raise ConfigError(f"{names} cannot be used for TLS; it must be PEM: {exc}") from exc
        context.check_hostname = self.verify_hostname
        return context

    def authenticate(self, exchange: Exchange) -> None:
        """
        Authenticate with SASL, after SaslHandshake has agreed on the mechanism.

        Raises:
            ConfigError: the broker refuses, cannot prove that it knows the password (SCRAM), or breaks the protocol; or there
                is no token.
        """
        if self.tokens is not None:
            token = self.tokens.current(self._endpoint_context)
            try:
                oauthbearer(token, dict(self.tokens.extensions), exchange)
            except ConfigError:
                self.tokens.forget()
                raise
        elif self.mechanism == "PLAIN":
            plain(self.username, self.password, exchange)
        elif self.mechanism is not None:
            nonce = secrets.token_urlsafe(24)
            scram(self.mechanism, self.username, self.password, exchange, nonce, is_token=self.is_token)

    def _endpoint_context(self) -> ssl.SSLContext:
        """TLS with an endpoint of tokens trusts the authorities of the system, and those of the broker's listener."""
        context = ssl.create_default_context()
        if self.truststore is not None or self.trusted is not None:
            context.load_verify_locations(self.truststore, cadata=self.trusted)
        return context


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


def _texts(configs: Mapping[str, str]) -> dict[str, Any]:
    """The stores that are texts in the configuration. Lines may end with `\\n`, as in a file of properties."""
    texts = {name: configs[name].replace("\\n", "\n") for name in (_TRUSTED, _KEY, _CHAIN) if name in configs}
    for store, names in (("truststore", {_TRUSTED}), ("keystore", {_KEY, _CHAIN})):
        if names & texts.keys() and f"ssl.{store}.location" in configs:
            raise ConfigError(f"give either ssl.{store}.location or {' and '.join(sorted(names))}")
    if (_KEY in texts) != (_CHAIN in texts):
        raise ConfigError(f"{_KEY} and {_CHAIN} need each other")
    found = {name: _read(name, text, private_key if name == _KEY else certificates) for name, text in texts.items()}
    stores = {"trusted": found.get(_TRUSTED, ""), "key_pair": found.get(_KEY, "") + found.get(_CHAIN, "")}
    return {name: text for name, text in stores.items() if text}


def _read(name: str, text: str, read: Callable[[str], str]) -> str:
    try:
        return read(text)
    except ConfigError as exc:
        raise ConfigError(f"{name} cannot be used: {exc}") from None


def _credentials(configs: Mapping[str, str]) -> dict[str, Any]:
    mechanism = configs.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism or 'empty'}")
    text = configs.get("sasl.jaas.config", "")
    login = parse_jaas(text) if text.strip() else None
    if mechanism == _OAUTHBEARER:
        return {"mechanism": mechanism, "tokens": Tokens.parse(configs, login)}
    options = {} if login is None else login.options
    username, password = (configs.get(f"sasl.{name}", options.get(name)) for name in ("username", "password"))
    if username is None or password is None:
        raise ConfigError("SASL needs sasl.username and sasl.password, or both in sasl.jaas.config")
    is_token = mechanism in SCRAM_HASHES and options.get("tokenauth", "").lower() == "true"
    return {"mechanism": mechanism, "username": username, "password": password, "is_token": is_token}
