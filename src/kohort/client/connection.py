"""
A blocking connection to a broker: one request, one response, no threads.

Each connection starts with ApiVersions; later requests use the newest version that both sides support. Responses are read
with the size limits and guards of the server. A listener with TLS or SASL closes a plaintext connection; the error then names
the option that is missing.
"""

import math
import socket
import ssl
import struct
import time
from contextlib import suppress
from typing import Any, NamedTuple, Self

from kohort.client.addresses import Address
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX, FrameReader

CLIENT_ID = "kohort-cli"
HINT = "if the listener uses TLS or SASL, give its settings with --command-config FILE"
TIMEOUT_S = 10.0

_CHUNK_BYTES = 1 << 18
_SESSION_SHARE = 0.85
"""The share of a session after which the client authenticates itself again. Source: Kafka SaslClientAuthenticator."""


class Versions(NamedTuple):
    """Oldest and newest version of an API."""

    oldest: int
    newest: int


ANY = Versions(0, 1 << 15)


class RefusedError(ConfigError):
    """Nobody listens at an address."""


class Connection:
    """
    A connection to one broker. Requests are not pipelined.

    Attributes:
        address: the broker's address.
        versions: the API versions that the broker supports, by API key.
    """

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        security: Security = PLAINTEXT,
        *,
        client_id: str = CLIENT_ID,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        hint: str = HINT,
    ) -> None:
        """
        Args:
            timeout_s: the longest time for one response.
            frame_bytes_max: the largest response accepted.
            hint: added to the error when a broker closes a plaintext connection.

        Raises:
            ConfigError: no connection, no ApiVersions response, an untrusted certificate, or failed authentication.
        """
        self.address = address
        self._security = security
        self._client_id = client_id
        self._hint = "" if security.is_encrypted or security.mechanism else f"; {hint}"
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._frames = FrameReader(frame_bytes_max)
        self._session_ms = 0
        self._authenticates_at_s = math.inf
        self._socket = self._connect()
        try:
            if security.is_encrypted:
                self._encrypt()
            self.versions = self._ask_versions()
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, api_key: ApiKey, request: Any, *, within: Versions = ANY) -> Any:
        """
        Send a request and return its response.

        Args:
            within: the versions that have the fields of `request`.

        Raises:
            ConfigError: no common version, a timeout, or a closed connection.
            WireError: the response cannot be decoded.
        """
        if time.monotonic() >= self._authenticates_at_s:
            self._authenticate()
        return self._exchange(api_key, self.version(api_key, within), request)

    def version(self, api_key: ApiKey, within: Versions = ANY) -> int:
        """Return the newest version of an API that both sides support, within `within`. Raises ConfigError if there is none."""
        served = self.versions.get(api_key)
        oldest, newest = max(api_key.oldest, within.oldest), min(api_key.newest_stable, within.newest)
        if served is None:
            raise ConfigError(f"the broker at {self.address} does not support {api_key.api_name}")
        version = min(served.newest, newest)
        if version < max(served.oldest, oldest):
            raise ConfigError(
                f"the broker at {self.address} supports {api_key.api_name} versions {served.oldest} to {served.newest};"
                f" this command needs {oldest} to {newest}"
            )
        return version

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError):
            self._socket.close()

    def _connect(self) -> socket.socket:
        try:
            connection = socket.create_connection(self.address, timeout=self._timeout_s)
        except TimeoutError:
            raise ConfigError(f"nothing answers at {self.address} within {self._timeout_s:g} s") from None
        except socket.gaierror as exc:
            raise ConfigError(f"there is no host called {self.address.host} ({exc.strerror})") from None
        except ConnectionRefusedError:
            raise RefusedError(
                f"no broker answers at {self.address}; is it running? Start one with: kohort serve"
            ) from None
        except (OSError, UnicodeError) as exc:
            raise ConfigError(f"{self.address} cannot be reached: {exc}") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _encrypt(self) -> None:
        try:
            self._socket = self._security.ssl_context().wrap_socket(self._socket, server_hostname=self.address.host)
        except (OSError, ssl.CertificateError) as exc:
            raise ConfigError(f"no TLS with the broker at {self.address}: {exc}") from exc

    def _authenticate(self) -> None:
        """Log in, and again before the session ends (KIP-368)."""
        mechanism = self._security.mechanism
        if mechanism is None:
            return
        began_s = time.monotonic()
        handshake = ApiKey.SASL_HANDSHAKE
        request = messages.SaslHandshakeRequest(mechanism=mechanism)
        response = self._exchange(handshake, self.version(handshake, Versions(1, 1)), request)
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise ConfigError(f"the broker at {self.address} does not offer {mechanism}; it has {offered}")
        if response.error_code:
            name = error_name(response.error_code)
            raise ConfigError(f"the broker at {self.address} refused the authentication: {name}")
        self._session_ms = 0
        self._security.authenticate(self._exchange_token)
        self._authenticates_at_s = math.inf
        if self._session_ms > 0:
            self._authenticates_at_s = began_s + _SESSION_SHARE * self._session_ms / 1_000

    def _exchange_token(self, auth_bytes: bytes) -> bytes:
        api = ApiKey.SASL_AUTHENTICATE
        request = messages.SaslAuthenticateRequest(auth_bytes=auth_bytes)
        response = self._exchange(api, self.version(api), request)
        if response.error_code:
            reason = response.error_message or error_name(response.error_code)
            raise ConfigError(f"the broker at {self.address} refused the authentication: {reason}")
        self._session_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    def _ask_versions(self) -> dict[int, Versions]:
        """
        Return the API versions of the broker.

        A broker that does not support this version of ApiVersions answers in version 0 with the versions it does support
        (KIP-511). The request is then repeated in one of these.
        """
        api = ApiKey.API_VERSIONS
        request = messages.ApiVersionsRequest(client_software_name=self._client_id, client_software_version="0")
        version = api.newest_stable
        response = self._exchange(api, version, request)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = min(version - 1, max((key.max_version for key in response.api_keys), default=0))
            response = self._exchange(api, version, request)
        if response.error_code:
            raise ConfigError(f"the broker at {self.address} refuses ApiVersions: {error_name(response.error_code)}")
        return {key.api_key: Versions(key.min_version, key.max_version) for key in response.api_keys}

    def _exchange(self, api_key: ApiKey, version: int, request: Any) -> Any:
        from kohort.wire.encoders import request_encoder  # imported late: `--help` needs no codec

        self._correlation_id += 1
        try:
            encoded = request_encoder(api_key, version)(self._correlation_id, self._client_id, request)
        except (struct.error, OverflowError) as error:
            raise ConfigError(f"a number is too large for {api_key.api_name}: {error}") from None
        try:
            self._socket.sendall(encoded)
            frame = self._receive()
            return self._read(api_key, version, frame)
        except TimeoutError:
            raise ConfigError(
                f"the broker at {self.address} did not answer {api_key.api_name} within {self._timeout_s:g} s"
            ) from None
        except OSError as exc:
            raise self._closed(str(exc)) from None
        except WireError as exc:
            raise WireError(f"{self.address} does not speak Kafka's protocol: {exc}{self._hint}") from exc

    def _read(self, api_key: ApiKey, version: int, frame: bytes) -> Any:
        from kohort.wire.headers import read_response_header
        from kohort.wire.readers import response_reader

        is_downgrade = api_key is ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        if is_downgrade:
            version = 0
        correlation_id, offset = read_response_header(frame, api_key, version)
        if correlation_id != self._correlation_id:
            raise WireError(f"{self.address} answered request {correlation_id} instead of {self._correlation_id}")
        return response_reader(api_key, version)(frame, offset)

    def _receive(self) -> bytes:
        """Return the next frame. Raises OSError, in particular TimeoutError."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                raise self._closed("end of stream")
            for frame in self._frames.feed(chunk):
                return frame

    def _closed(self, reason: str) -> ConfigError:
        return ConfigError(f"the broker at {self.address} closed the connection ({reason}){self._hint}")


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or `error N` for an unknown one."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


def reason(code: int, message: str | None) -> str:
    """Return the broker's message and error code."""
    name = error_name(code)
    return f"{message.rstrip('.')} ({name})" if message else name


def refusal(code: int, what: str, message: str | None = None) -> CoordinatorError:
    """Make an exception out of an error code in a response."""
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    return CoordinatorError(known, f"{what}: {message or 'the cluster refused'} ({error_name(code)})")
