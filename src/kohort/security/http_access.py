"""
Who may use a port that speaks HTTP: metrics of the broker and of the exporter, and ports that change something.

On a loopback address everyone on the machine may, but no web page: its browser tells another host, or an origin. Elsewhere a
token is needed, and without one nobody may. A missing token is a wrong token.

Source: RFC 6750; Prometheus `authorization` of a scrape configuration.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kohort.model.errors import ConfigError

VARIABLE: Final = "KOHORT_METRICS_TOKEN"
CONTROL_VARIABLE: Final = "KOHORT_CONTROL_TOKEN"
TOKEN_LENGTH_MIN: Final = 16
_LOCAL_HOST: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.ASCII | re.IGNORECASE)
_SCHEME: Final = "bearer "
_JSON: Final = "application/json"
_BY_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

Headers = Mapping[str, Sequence[str]]
"""The values of each header, by its name in lower case."""


class Refusal(NamedTuple):
    """The answer to whoever may not."""

    status: int
    sentence: str


class HttpAccess:
    """
    Args:
        token: None if there is none.
        is_local: whether only this machine reaches the port.
    """

    def __init__(self, token: str | None, *, is_local: bool) -> None:
        self._token = None if token is None else token.encode()
        self._is_local = is_local

    def __repr__(self) -> str:
        return f"HttpAccess(is_local={self._is_local})"

    def refusal(self, headers: Headers, *, is_change: bool = False) -> Refusal | None:
        """
        Why a request is refused; None if it is not.

        Args:
            is_change: the request changes something, so that its content must be JSON, which no form of a web page sends.
        """
        if headers.get("origin") or set(headers.get("sec-fetch-site", ())) - {"none", "same-origin"}:
            return Refusal(403, "Web pages have no access.")
        if self._token is None and not self._is_local:
            return Refusal(401, f"A token is needed, and none is set: start the process with {VARIABLE}.")
        if self._token is None and not all(map(_LOCAL_HOST.fullmatch, headers.get("host", ()))):
            return Refusal(403, "The request is for another host than this machine.")
        if self._token is not None and not self._has_token(headers, self._token):
            return Refusal(401, "The header Authorization has no Bearer token, or a wrong one.")
        if is_change and [_media_type(each) for each in headers.get("content-type", ())] != [_JSON]:
            return Refusal(415, f"The content must be {_JSON}.")
        return None

    def _has_token(self, headers: Headers, token: bytes) -> bool:
        """The comparison takes the same time for every token of a length."""
        given = headers.get("authorization", ())
        text = given[0] if len(given) == 1 else ""
        from hmac import compare_digest  # imported late: with it come OpenSSL's hashes

        is_bearer = text[: len(_SCHEME)].lower() == _SCHEME
        is_equal = compare_digest(text[len(_SCHEME) :].strip().encode(), token)
        return is_bearer and is_equal


def is_loopback(host: str) -> bool:
    """Whether only clients on this machine reach a bound address."""
    return host == "::1" or host.startswith(("127.", "::ffff:127."))


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def read_token(file: Path | None, environment: Mapping[str, str], variable: str = VARIABLE) -> str | None:
    """
    Read the token of a file, or of a variable of the environment; None if there is neither.

    Raises:
        ConfigError: the file cannot be read, others may use it, or the token is too short or not ASCII.
    """
    where, token = variable, environment.get(variable)
    if file is not None:
        where = str(file)
        try:
            with file.open(encoding="latin-1") as opened:
                mode = os.fstat(opened.fileno()).st_mode
                token = opened.read(4_096)
        except OSError as error:
            raise ConfigError(f"cannot read the token file {file}: {error.strerror}") from None
        if mode & _BY_OTHERS:
            raise ConfigError(f"everyone on this machine may use the token file {file}: chmod o-rw {file}")
    if token is None:
        return None
    token = token.strip()
    if len(token) < TOKEN_LENGTH_MIN or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(
            f"the token of {where} must be at least {TOKEN_LENGTH_MIN} ASCII characters without blanks; make one with: "
            "openssl rand -hex 32"
        )
    return token
