"""
The delegation tokens in the catalog, and the sweep that removes those whose time is over.

A change is decided by the newest state and seen when it is durable. Source: Kafka DelegationTokenControlManager,
DelegationTokenCache, DelegationTokenExpiryManager.
"""

from base64 import b64encode
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import TOKENS, CatalogChange, Setting
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import CallLater
from kohort.broker.tokens.token import Token, secret_of, token_of
from kohort.model.principals import Principal
from kohort.runtime.ports import Clock
from kohort.security.credentials import Token as Login

_SWEEP_CHUNK: Final = 500
"""Tokens that a sweep looks at between two pauses."""
_SWEEP_PAUSE_MS: Final = 5


class Tokens:
    """
    The delegation tokens of the cluster. There are none while `delegation.token.secret.key` is not set.

    Attributes:
        is_enabled: whether the key is set.
    """

    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock, call_later: CallLater) -> None:
        self._catalog = catalog
        self._clock = clock
        self._call_later = call_later
        self._key = config.get_str("delegation.token.secret.key") or ""
        self.is_enabled = bool(self._key)
        self._tokens: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}
        self._made_by: Counter[tuple[str, str]] = Counter()
        if not self.is_enabled:
            return
        for token_id, fields in catalog.settings(TOKENS).items():
            self._put(token_of(token_id, fields))
        catalog.watch_settings(TOKENS, self._on_changes)
        self._interval_ms = config.get_int("delegation.token.expiry.check.interval.ms")
        self._due: deque[str] = deque()
        call_later(self._interval_ms, self._begin_sweep)

    def all(self) -> Iterable[Token]:
        """The tokens in the order in which they were made, expired ones until the next sweep."""
        return self._tokens.values()

    def login(self, token_id: str) -> Login | None:
        """The token of an id, as an authentication needs it; it may be expired."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        return Login(token.owner, token.expires_ms, b64encode(self.secret(token)).decode())

    def secret(self, token: Token) -> bytes:
        """The HMAC of a token."""
        return secret_of(token.token_id, self._key)

    def newest(self, secret: bytes) -> Token | None:
        """The token of an HMAC, as it will be when all changes in progress are durable."""
        token_id = self._ids.get(secret)
        fields = None if token_id is None else self._catalog.newest_settings(TOKENS).get(token_id)
        return None if token_id is None or fields is None else token_of(token_id, fields)

    @property
    def count(self) -> int:
        """How many tokens there will be when all changes in progress are durable."""
        return len(self._catalog.newest_settings(TOKENS))

    def made_by(self, requester: Principal) -> int:
        """How many tokens a user has made."""
        return self._made_by[_user(requester)]

    def _put(self, token: Token) -> None:
        if token.token_id not in self._tokens:
            self._ids[self.secret(token)] = token.token_id
            self._made_by[_user(token.requester)] += 1
        self._tokens[token.token_id] = token

    def _on_changes(self, settings: list[Setting]) -> None:
        for setting in settings:
            if setting.value is not None:
                self._put(token_of(setting.name, setting.value))
                continue
            token = self._tokens.pop(setting.name, None)
            if token is not None:
                del self._ids[self.secret(token)]
                self._made_by -= Counter([_user(token.requester)])  # Forgets users without tokens.

    def _begin_sweep(self) -> None:
        self._due.extend(self._tokens)
        self._sweep_chunk()

    def _sweep_chunk(self) -> None:
        now_ms = self._clock.now_ms()
        newest = self._catalog.newest_settings(TOKENS)
        expired = []
        for _ in range(min(_SWEEP_CHUNK, len(self._due))):
            token_id = self._due.popleft()
            fields = newest.get(token_id)
            if fields is not None and token_of(token_id, fields).is_expired(now_ms):
                expired.append(Setting(TOKENS, token_id, None))
        if expired and self._catalog.is_led:
            # One that cannot be removed, since the log is offline, is found by the next sweep.
            self._catalog.change(CatalogChange(settings=tuple(expired)), lambda _code: None)
        pause_ms, following = (
            (_SWEEP_PAUSE_MS, self._sweep_chunk) if self._due else (self._interval_ms, self._begin_sweep)
        )
        self._call_later(pause_ms, following)


def _user(principal: Principal) -> tuple[str, str]:
    return principal.type, principal.name
