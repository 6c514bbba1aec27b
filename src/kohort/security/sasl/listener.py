"""The objects that the connections of one listener share for their authentication."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kohort.model.errors import ConfigError
from kohort.security.credentials import SCRAM_HASHES, Credentials
from kohort.security.sasl.access_tokens import TokenValidator
from kohort.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, Exchange
from kohort.security.sasl.oauthbearer import OAuthBearerExchange
from kohort.security.sasl.plain import PlainExchange
from kohort.security.sasl.scram import ScramExchange, ScramUsers

RECEIVE_BYTES: Final = 524_288
FAILURE_DELAY_MS: Final = 100


class SaslConfig(NamedTuple):
    """
    The configuration of a listener that authenticates its clients. `repr()` shows no password.

    Attributes:
        mechanisms: the enabled ones.
        users: names and passwords of PLAIN that the listener has itself (`sasl.jaas.config`).
        frame_bytes_max: a frame before the authentication is complete (`sasl.server.max.receive.size`).
        failure_delay_ms: before a failing answer is sent, and the connection is closed
            (`connection.failed.authentication.delay.ms`).
        session_ms: by mechanism, after which time a client must authenticate itself again; 0 or absent: never
            (`connections.max.reauth.ms`).
        tokens: validates access tokens of OAUTHBEARER.
    """

    mechanisms: tuple[str, ...]
    users: Mapping[str, str] = {}
    frame_bytes_max: int = RECEIVE_BYTES
    failure_delay_ms: int = FAILURE_DELAY_MS
    session_ms: Mapping[str, int] = {}
    tokens: TokenValidator | None = None

    def __repr__(self) -> str:
        return f"SaslConfig(mechanisms={self.mechanisms})"


class SaslListener:
    """
    Makes the exchanges of a listener.

    Args:
        credentials: of the broker; asked at each authentication.
        scram_users: of all listeners.

    Raises:
        ConfigError: no mechanism is enabled, or one is unknown.
    """

    def __init__(self, config: SaslConfig, credentials: Credentials, scram_users: ScramUsers) -> None:
        self.config = config
        self._credentials = credentials
        self._scram_users = scram_users
        self._exchanges: dict[str, Callable[[], Exchange]] = {
            mechanism: self._maker(mechanism, config) for mechanism in config.mechanisms
        }
        if not self._exchanges:
            raise ConfigError("A listener with SASL needs sasl.enabled.mechanisms")

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an exchange of an enabled mechanism."""
        return self._exchanges[mechanism]()

    def _maker(self, mechanism: str, config: SaslConfig) -> Callable[[], Exchange]:
        if mechanism == PLAIN:
            return lambda: PlainExchange(self._password)
        if mechanism in SCRAM_HASHES:
            return lambda: ScramExchange(mechanism, self._scram_users)
        if mechanism == OAUTHBEARER and config.tokens is not None:
            validator = config.tokens
            return lambda: OAuthBearerExchange(validator)
        if mechanism == GSSAPI:
            raise ConfigError(
                "GSSAPI (Kerberos) is not supported: set sasl.enabled.mechanisms to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
                "OAUTHBEARER"
            )
        raise ConfigError(f"sasl.enabled.mechanisms: there is no mechanism {mechanism!r}")

    def _password(self, user: str) -> str | None:
        return self.config.users.get(user) or self._credentials.password(user)
