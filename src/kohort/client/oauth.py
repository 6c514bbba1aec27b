"""
Tokens of OAUTHBEARER: from an endpoint with the client credentials grant, from a file, as they are, or unsigned.

An endpoint is the one that the configuration names: redirects and proxies are not followed, and nothing of an answer is put
into an error.

Source: KIP-255, KIP-768, KIP-1139; RFC 6749, section 4.4; Kafka HttpJwtRetriever, ClientCredentialsRequestFormatter,
FileJwtRetriever, OAuthBearerUnsecuredLoginCallbackHandler.
"""

import json
import re
import ssl
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from kohort.model.errors import ConfigError
from kohort.security.jaas import LoginModule

PREFIX: Final = "sasl.oauthbearer."
ENDPOINT: Final = f"{PREFIX}token.endpoint.url"
TOKEN: Final = f"{PREFIX}token"
_CLIENT_ID: Final = f"{PREFIX}client.credentials.client.id"
_CLIENT_SECRET: Final = f"{PREFIX}client.credentials.client.secret"
_SCOPE: Final = f"{PREFIX}scope"
_HEADER_URLENCODE: Final = f"{PREFIX}header.urlencode"
HANDLER: Final = "sasl.login.callback.handler.class"
CONFIGS: Final = frozenset((ENDPOINT, TOKEN, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, _HEADER_URLENCODE, HANDLER))
"""The client configurations that this module reads."""

_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_UNSECURED: Final = "unsecuredLoginStringClaim_sub"
_EXTENSION: Final = "extension_"
_EXTENSION_NAME: Final = re.compile(r"(?!auth$)[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""Source: RFC 6750, section 2.1."""
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0
_UNSECURED_LIFE_S: Final = 3_600
_USED_SHARE: Final = 0.8
"""The share of its life after which a token is not used for another login. Source: `sasl.login.refresh.window.factor`."""

_known: dict["Tokens", tuple[str, float]] = {}
"""The last token of each endpoint in this process, and until when it is used, by the wall clock."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """
    Where the token of a login comes from. `repr()` shows no secret.

    Attributes:
        endpoint: an http or https URL, or a file URL.
        token: a token as it is.
        subject: of an unsigned token, which is made here.
        header_is_urlencoded: whether id and secret are URL-encoded before they become the header of basic authentication.
        extensions: of the login, names and values.
    """

    endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    token: str = field(default="", repr=False)
    subject: str = ""
    header_is_urlencoded: bool = False
    extensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, configs: Mapping[str, str], login: LoginModule | None) -> Self:
        """
        Read the settings from client configurations and from the options of `sasl.jaas.config`.

        Raises:
            ConfigError: no source is named, or a value is invalid. The message has no secret.
        """
        options = {} if login is None else login.options
        handler = configs.get(HANDLER, "")
        if handler and handler.rpartition(".")[2] not in _HANDLERS:
            raise ConfigError(f"{HANDLER} can only be one of Kafka's own: {' or '.join(_HANDLERS)}")
        found = cls(
            endpoint=configs.get(ENDPOINT, ""),
            client_id=configs.get(_CLIENT_ID) or options.get("clientId", ""),
            client_secret=configs.get(_CLIENT_SECRET) or options.get("clientSecret", ""),
            scope=configs.get(_SCOPE) or options.get("scope", ""),
            token=configs.get(TOKEN, ""),
            subject=options.get(_UNSECURED, ""),
            header_is_urlencoded=configs.get(_HEADER_URLENCODE, "").lower() == "true",
            extensions=tuple(
                (name.removeprefix(_EXTENSION), value)
                for name, value in sorted(options.items())
                if name.startswith(_EXTENSION)
            ),
        )
        found._check()
        return found

    def _check(self) -> None:
        if sum(map(bool, (self.endpoint, self.token, self.subject))) != 1:
            raise ConfigError(
                f"OAUTHBEARER needs one source of its token: {ENDPOINT} (an URL of http, https or file), {TOKEN}, or "
                f"{_UNSECURED} in sasl.jaas.config for an unsigned one"
            )
        if self.endpoint:
            _check_endpoint(self.endpoint)
        if _is_http(self.endpoint) and not (self.client_id and self.client_secret):
            raise ConfigError(f"{ENDPOINT} needs {_CLIENT_ID} and {_CLIENT_SECRET}")
        if self.token and not _TOKEN.fullmatch(self.token):
            raise ConfigError(f"{TOKEN} is not a token: it has characters that no token has")
        for name, value in self.extensions:
            if not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigError(
                    f"{_EXTENSION}{name} in sasl.jaas.config is not an extension: a name has letters, a value printable ones"
                )

    def current(self, context: Callable[[], ssl.SSLContext]) -> str:
        """
        Return a token. One of an endpoint is used again while it is fresh.

        Args:
            context: makes the TLS context of an https endpoint.

        Raises:
            ConfigError: there is none. The message has nothing of a file's or an endpoint's text.
        """
        now_s = time.time()
        if self.token:
            return self.token
        if self.subject:
            return _unsecured(self.subject, now_s)
        token, used_until_s = _known.get(self, ("", 0.0))
        if now_s < used_until_s:
            return token
        token = _requested(self, context) if _is_http(self.endpoint) else _of_file(self.endpoint)
        if not _TOKEN.fullmatch(token):
            raise ConfigError(f"{_shown(self.endpoint)} has no token")
        if _is_http(self.endpoint):
            _known[self] = (token, now_s + _USED_SHARE * (_end_of(token, now_s) - now_s))
        return token

    def forget(self) -> None:
        """Use the last token no more, because a broker has refused it."""
        _known.pop(self, None)


def _check_endpoint(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https", "file") and not parts.username and not parts.password
        is_usable = (
            is_usable and (bool(parts.path) if parts.scheme == "file" else bool(parts.hostname)) and parts.port != 0
        )
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError(f"{ENDPOINT} must be an URL of http, https or file, without a user")


def _is_http(url: str) -> bool:
    return url.lower().startswith(("http:", "https:"))


def _shown(url: str) -> str:
    """The URL without its query, which may have a secret."""
    return url.partition("?")[0]


def _of_file(url: str) -> str:
    path = Path(unquote(urlsplit(url).path))
    try:
        with path.open("rb") as file:
            return file.read(_ANSWER_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _requested(source: Tokens, context: Callable[[], ssl.SSLContext]) -> str:
    """Ask an endpoint, by POST and with basic authentication."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # imported late: few logins need it

    parts = urlsplit(source.endpoint)
    assert parts.hostname is not None, "checked"
    encode = quote_plus if source.header_is_urlencoded else str
    user = f"{encode(source.client_id)}:{encode(source.client_secret)}"
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {b64encode(user.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = urlencode({"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {}))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = (
        HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context())
        if parts.scheme == "https"
        else HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    )
    where = _shown(source.endpoint)
    try:
        connection.request("POST", target, body, headers)
        response = connection.getresponse()
        text = response.read(_ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        raise ConfigError(f"{where} gives no token: {type(error).__name__}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise ConfigError(f"{where} gives no token: it answers with the status {response.status}")
    try:
        answer = json.loads(text)
        token = answer["access_token"]
    except (ValueError, LookupError, TypeError, RecursionError):
        token = None
    return token if isinstance(token, str) else ""


def _unsecured(subject: str, now_s: float) -> str:
    """An unsigned token, which only a broker for development accepts."""
    claims = {"sub": subject, "iat": int(now_s), "exp": int(now_s) + _UNSECURED_LIFE_S}
    header, payload = (_encoded(part) for part in ({"alg": "none"}, claims))
    return f"{header}.{payload}."


def _encoded(part: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).decode().rstrip("=")


def _end_of(token: str, now_s: float) -> float:
    """When a token says that it ends; now if it does not say so."""
    try:
        payload = token.split(".")[1]
        end_s = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return float(end_s) if isinstance(end_s, int | float) else now_s
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return now_s
