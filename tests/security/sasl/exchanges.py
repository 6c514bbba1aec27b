"""A client of an `Authenticator`, in virtual time and without sockets."""

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.security.credentials import ScramCredential, Token
from kohort.security.sasl.authenticator import Authenticator, Step
from kohort.security.sasl.listener import SaslConfig, SaslListener
from kohort.security.sasl.scram import ScramUsers
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import response_reader

SECRETS = {"alice": "alice-secret", "bob": "bob-secret"}


class Users:
    """Credentials in memory."""

    def __init__(
        self,
        passwords: Mapping[str, str] = SECRETS,
        scram: Mapping[tuple[str, str], ScramCredential | str] | None = None,
        tokens: Mapping[str, Token] | None = None,
    ) -> None:
        self.passwords = dict(passwords)
        self.scram_credentials = dict(scram or {})
        self.tokens = dict(tokens or {})

    def password(self, user: str) -> str | None:
        return self.passwords.get(user)

    def scram(self, user: str, mechanism: str) -> ScramCredential | str | None:
        return self.scram_credentials.get((user, mechanism))

    def users_with_password(self) -> Iterable[str]:
        return sorted({user for user, _ in self.scram_credentials})

    def token(self, token_id: str) -> Token | None:
        return self.tokens.get(token_id)


def listener(known: Users | None = None, *, number: int = 0, **config: Any) -> SaslListener:
    """A listener that enables PLAIN unless `config` says otherwise; all its random numbers are `number`."""
    config.setdefault("mechanisms", ("PLAIN",))
    users = known or Users()
    return SaslListener(SaslConfig(**config), users, ScramUsers(users, lambda bits: number % (1 << bits)))


def answer_versions(frame: bytes) -> bytes:
    """An answer of the API layer without any API."""
    _, version, correlation_id, _, _ = read_request_header(frame)
    return response_encoder(ApiKey.API_VERSIONS, version)(correlation_id, m.ApiVersionsResponse())


def authenticate_frame(token: bytes) -> bytes:
    """A SaslAuthenticate request without its size."""
    request = m.SaslAuthenticateRequest(auth_bytes=token)
    return request_encoder(ApiKey.SASL_AUTHENTICATE, 2)(1, "test", request)[4:]


class Client:
    """The client's side of one connection; the time passes when the test says so."""

    def __init__(self, shared: SaslListener, now_ms: int = 1_000_000) -> None:
        self.authenticator = Authenticator(shared, answer_versions)
        self.now_ms = now_ms
        self._correlation_id = 0

    def send_frame(self, frame: bytes) -> Step:
        """Send a frame without its size; work is done at once."""
        step = self.authenticator.receive(frame, self.now_ms)
        while step.work is not None:
            step = self.authenticator.resume(step.work(), self.now_ms)
        return step

    def send(self, api: ApiKey, version: int, request: Any) -> Step:
        self._correlation_id += 1
        return self.send_frame(request_encoder(api, version)(self._correlation_id, "test", request)[4:])

    def shake_hands(self, mechanism: str, version: int = 1) -> Step:
        return self.send(ApiKey.SASL_HANDSHAKE, version, m.SaslHandshakeRequest(mechanism=mechanism))

    def authenticate(self, token: bytes, version: int = 2) -> Step:
        return self.send(ApiKey.SASL_AUTHENTICATE, version, m.SaslAuthenticateRequest(auth_bytes=token))


def read(step: Step, api: ApiKey = ApiKey.SASL_AUTHENTICATE, version: int = 2) -> Any:
    """The response in a step's answer."""
    frame = step.answer
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    _, body = read_response_header(frame[4:], api, version)
    return response_reader(api, version)(frame[4:], body)
