"""
The keys of issuers of access tokens, from a file or a server.

A file is read again when it has changed. A server is asked again when its keys are old, and earlier if a token names a key that
they lack; while it does not answer, its last keys count. What was read never reaches a log or an error.

Source: KIP-768; Kafka RefreshingHttpsJwks, JwksFileVerificationKeyResolver.
"""

import logging
import threading
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kohort.broker.configs.sasl_configs import KeySetPlace
from kohort.model.errors import ConfigError
from kohort.model.limits import KEY_SET_BYTES_MAX, UNKNOWN_KEYS_MAX
from kohort.security.sasl.signed_tokens import SigningKey, SigningKeys, read_keys

_log: Final = logging.getLogger("kohort.server")

TIMEOUT_S: Final = 10.0
UNKNOWN_S: Final = 60.0
"""For how long a key is not asked for again that the issuer did not have."""
EARLY_REFRESH_S: Final = 1.0
"""Between two questions for the sake of unknown keys: tokens of strangers may name many."""
_NAME_LENGTH_MAX: Final = 1_000


def open_keys(place: KeySetPlace) -> SigningKeys:
    """
    Read a key set for the first time.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    address = urlsplit(place.url)
    if address.scheme in ("http", "https"):
        return ServedKeys(place)
    if address.scheme == "file":
        return FileKeys(Path(unquote(address.path)))
    raise ConfigError("sasl.oauthbearer.jwks.endpoint.url must be a URL with http, https or file")


class FileKeys:
    """The keys of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = (0, 0)
        """Time and size of the file when it was read."""
        self._keys: list[SigningKey] = []
        try:
            self._read()
        except OSError as error:
            raise ConfigError(f"The key set {path} cannot be read: {error.strerror}") from error

    def find(self, name: str | None) -> Sequence[SigningKey]:
        with self._lock:
            try:
                self._read()
            except (OSError, ConfigError):
                _log.warning(
                    "signing_keys.unreadable path=%r hint=%r", str(self._path), "the keys that were read before count"
                )
        return _named(self._keys, name)

    def _read(self) -> None:
        status = self._path.stat()
        seen = status.st_mtime_ns, status.st_size
        if seen == self._seen:
            return
        self._seen = seen
        with self._path.open("rb") as file:
            self._keys = read_keys(_bounded(file))


class ServedKeys:
    """
    The keys of a server.

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, place: KeySetPlace, clock: Callable[[], float] = monotonic) -> None:
        self._place = place
        self._clock = clock
        self._lock = threading.Lock()
        self._backoff_ms = place.backoff_ms
        self._unknown: dict[str, float] = {}
        """When the server was asked for a key that it does not have; the oldest comes first."""
        self._asked_at = clock()
        try:
            self._keys = read_keys(_fetch(place.url))
        except (OSError, HTTPException) as error:
            raise ConfigError(
                f"The key set of sasl.oauthbearer.jwks.endpoint.url cannot be read: {type(error).__name__}"
            ) from error
        self._old_at = self._asked_at + place.refresh_ms / 1_000

    def find(self, name: str | None) -> Sequence[SigningKey]:
        now = self._clock()
        if now >= self._old_at and self._lock.acquire(blocking=False):
            try:
                self._refresh(now)
            finally:
                self._lock.release()
        known = self._keys
        found = _named(known, name)
        if not found and name is not None:
            with self._lock:
                # Another thread may have asked meanwhile.
                if self._keys is known and self._may_ask_for(name, now):
                    self._refresh(now)
            found = _named(self._keys, name)
        return found

    def _may_ask_for(self, name: str, now: float) -> bool:
        if (
            len(name) > _NAME_LENGTH_MAX
            or now - self._asked_at < EARLY_REFRESH_S
            or now - self._unknown.get(name, now - UNKNOWN_S) < UNKNOWN_S
        ):
            return False
        self._unknown.pop(name, None)
        self._unknown[name] = now
        if len(self._unknown) > UNKNOWN_KEYS_MAX:
            del self._unknown[next(iter(self._unknown))]
        return True

    def _refresh(self, now: float) -> None:
        """Ask the server. The caller holds the lock."""
        self._asked_at = now
        try:
            self._keys = read_keys(_fetch(self._place.url))
        except (OSError, HTTPException, ConfigError) as error:
            _log.warning("signing_keys.unavailable error=%s retry_ms=%d", type(error).__name__, self._backoff_ms)
            self._old_at = now + self._backoff_ms / 1_000
            self._backoff_ms = min(self._backoff_ms * 2, self._place.backoff_max_ms)
        else:
            self._old_at = now + self._place.refresh_ms / 1_000
            self._backoff_ms = self._place.backoff_ms


def _fetch(url: str) -> bytes:
    """Read a URL; a redirection is an error, so that another address than the configured one is never read."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        return _bounded(answer)


def _bounded(file: Any) -> bytes:
    data: bytes = file.read(KEY_SET_BYTES_MAX + 1)
    if len(data) > KEY_SET_BYTES_MAX:
        raise ConfigError(f"A JSON Web Key Set has at most {KEY_SET_BYTES_MAX} bytes")
    return data


def _named(keys: Sequence[SigningKey], name: str | None) -> Sequence[SigningKey]:
    return keys if name is None else [key for key in keys if key.name == name]
