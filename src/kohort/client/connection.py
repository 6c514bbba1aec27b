"""
A blocking connection to a broker: one question, one answer, no threads.

Every connection asks once which versions its broker serves (ApiVersions); a request then goes out in the newest version that
both sides know. What comes from the network is read behind the same guards and bounds that the server uses. A listener that
wants TLS or SASL closes a connection that does not know, and the error says so.
"""

import socket
import ssl
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from kohort.client.addresses import Address
from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.frames import FRAME_BYTES_MAX, FrameReader

CLIENT_ID = "kohort-cli"
HINT = "a listener with TLS or SASL wants to be told how to connect: --command-config FILE"
TIMEOUT_S = 10.0

_CHUNK_BYTES = 1 << 18


class Versions(NamedTuple):
    """Oldest and newest version of an API."""

    oldest: int
    newest: int


ANY = Versions(0, 1 << 15)


class Connection:
    """One connection to one broker, with what the broker can do. Requests follow each other; nothing is pipelined."""

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
            timeout_s: how long one answer may take.
            frame_bytes_max: the largest answer taken.
            hint: what to tell somebody whose plain connection a broker closes.

        Raises:
            ConfigError: nobody answers there, or not as a broker does; its certificate is not trusted; it does not let us in.
        """
        self.address = address
        self._security = security
        self._client_id = client_id
        self._hint = "" if security.is_encrypted or security.mechanism else f"; {hint}"
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._frames = FrameReader(frame_bytes_max)
        self._socket = self._connect()
        try:
            if security.is_encrypted:
                self._encrypt()
            self.versions = self._ask_versions()
            if security.mechanism is not None:
                self._authenticate(security.mechanism)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, api_key: ApiKey, request: Any, *, within: Versions = ANY) -> Any:
        """
        Send a request, wait for its response.

        Args:
            within: the versions that the caller's fields belong to.

        Raises:
            ConfigError: the broker has no version in common with us, falls silent or closes the connection.
            WireError: the answer is not the protocol.
        """
        return self._exchange(api_key, self.version(api_key, within), request)

    def version(self, api_key: ApiKey, within: Versions = ANY) -> int:
        """The newest version that both sides, and `within`, know. Raises ConfigError if there is none."""
        served = self.versions.get(api_key)
        oldest, newest = max(api_key.oldest, within.oldest), min(api_key.newest_stable, within.newest)
        if served is None:
            raise ConfigError(f"the broker at {self.address} does not serve {api_key.api_name}")
        version = min(served.newest, newest)
        if version < max(served.oldest, oldest):
            raise ConfigError(
                f"the broker at {self.address} serves {api_key.api_name} in versions {served.oldest} to {served.newest},"
                f" and this command speaks {oldest} to {newest}"
            )
        return version

    def close(self) -> None:
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
            raise ConfigError(
                f"no broker answers at {self.address}; is one running? start one with: kohort serve"
            ) from None
        except (OSError, UnicodeError) as exc:
            raise ConfigError(f"{self.address} cannot be reached: {exc}") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _encrypt(self) -> None:
        try:
            self._socket = self._security.context().wrap_socket(self._socket, server_hostname=self.address.host)
        except (OSError, ssl.CertificateError) as exc:
            raise ConfigError(f"no TLS with the broker at {self.address}: {exc}") from exc

    def _authenticate(self, mechanism: str) -> None:
        told = self.ask(
            ApiKey.SASL_HANDSHAKE, messages.SaslHandshakeRequest(mechanism=mechanism), within=Versions(1, 1)
        )
        if told.error_code:
            offered = ", ".join(told.mechanisms) or "none"
            raise ConfigError(f"the broker at {self.address} does not offer {mechanism}; it has {offered}")
        self._security.authenticate(self._exchange_token)

    def _exchange_token(self, auth_bytes: bytes) -> bytes:
        told = self.ask(ApiKey.SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(auth_bytes=auth_bytes))
        if told.error_code:
            reason = told.error_message or error_name(told.error_code)
            raise ConfigError(f"the broker at {self.address} does not let us in: {reason}")
        return bytes(told.auth_bytes)

    def _ask_versions(self) -> dict[int, Versions]:
        """
        What the broker serves. One that does not know our version of ApiVersions says so in version 0, with the versions of
        ApiVersions itself (KIP-511); then we ask again.
        """
        api = ApiKey.API_VERSIONS
        request = messages.ApiVersionsRequest(client_software_name=self._client_id, client_software_version="0")
        version = api.newest
        response = self._exchange(api, version, request)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = min(version - 1, max((key.max_version for key in response.api_keys), default=0))
            response = self._exchange(api, version, request)
        if response.error_code:
            raise ConfigError(f"the broker at {self.address} refuses ApiVersions: {error_name(response.error_code)}")
        return {key.api_key: Versions(key.min_version, key.max_version) for key in response.api_keys}

    def _exchange(self, api_key: ApiKey, version: int, request: Any) -> Any:
        from kohort.wire.encoders import request_encoder  # late: `--help` needs no codec

        self._correlation_id += 1
        try:
            self._socket.sendall(request_encoder(api_key, version)(self._correlation_id, self._client_id, request))
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
        """The next frame. Raises OSError, of which TimeoutError is one."""
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
    """Kafka's name of an error code, or the number where we know none."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


def refusal(code: int, what: str, message: str | None = None) -> CoordinatorError:
    """An error code in a response, as an error whose text is a sentence."""
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    return CoordinatorError(known, f"{what}: {message or 'the cluster refused'} ({error_name(code)})")
