"""
The authentication of one connection, as a state machine: frames in, steps out.

| state         | takes                                                       | then                                  |
|---------------|-------------------------------------------------------------|---------------------------------------|
| VERSIONS      | ApiVersions; an unknown version or an invalid name          | HANDSHAKE; stays                      |
|               | SaslHandshake                                               | AUTHENTICATE                          |
| HANDSHAKE     | SaslHandshake                                               | AUTHENTICATE                          |
| AUTHENTICATE  | SaslAuthenticate; a bare token after a handshake of version 0 | stays until the exchange is complete |
| COMPLETE      | everything; SaslHandshake may begin a re-authentication     | AUTHENTICATE                          |
| OTHER         | nothing: a re-authentication asked for another mechanism    | closed                                |
| CLOSED        | nothing                                                     |                                       |

Source: KIP-43, KIP-152, KIP-368; Kafka SaslServerAuthenticator, KafkaChannel.maybeBeginServerReauthentication,
serverAuthenticationSessionExpired.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from kohort.model.errors import ErrorCode, WireError
from kohort.model.principals import Principal
from kohort.security.sasl.listener import SaslListener
from kohort.security.sasl.mechanism import Answer, AuthenticationError, Exchange, Identity, Work
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader

REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""Between the starts of two re-authentications of a connection."""
REFUSAL_LENGTH_MAX: Final = 300
"""Characters of a refusal in the log: it may repeat a long name of the client."""


class State(Enum):
    """The frames that a connection may send next."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    OTHER = auto()
    CLOSED = auto()


class Step(NamedTuple):
    """
    The next work of the connection after a frame.

    Attributes:
        answer: bytes to send, with their size; empty if there are none.
        delay_ms: the answer is sent, and the connection closed, after this time. Nothing is read meanwhile.
        closes: the connection is closed after the answer.
        passes: the frame is an ordinary request, which the API layer answers.
        work: runs on another thread, and does not raise; `Authenticator.resume` takes its result. Nothing is read meanwhile.
        principal: the authentication is complete; the user.
        session_ends_at_ms: of a completed authentication; None if the session does not end.
        refusal: why the connection is closed, for the log: without a secret, with the text of the client.
    """

    answer: bytes = b""
    delay_ms: int = 0
    closes: bool = False
    passes: bool = False
    work: Callable[[], Any] | None = None
    principal: Principal | None = None
    session_ends_at_ms: int | None = None
    refusal: str = ""


class Authenticator:
    """
    The broker's side of SASL on one connection.

    The connection gives it every frame until a step has a principal. Afterwards it gives it SaslHandshake requests, and, if the
    session ends, every other frame: in each case when all requests before it are answered.

    Args:
        answer_versions: the API layer's answer to a frame with ApiVersions; raises `WireError`.
    """

    def __init__(self, listener: SaslListener, answer_versions: Callable[[bytes], bytes]) -> None:
        self._listener = listener
        self._answer_versions = answer_versions
        self._state = State.VERSIONS
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._is_bare = True
        """Whether tokens come without the header of a request."""
        self._asked = (0, 0)
        """Version and correlation id of the SaslAuthenticate request that is to be answered."""
        self._then: Callable[[Any, int], Answer] | None = None
        self._principal: Principal | None = None
        self._session_ends_at_ms: int | None = None
        self._reauthenticated_at_ms: int | None = None

    @property
    def is_bare(self) -> bool:
        """Whether the next frame is a token without the header of a request."""
        return self._is_bare and self._state is State.AUTHENTICATE

    def receive(self, frame: bytes, now_ms: int) -> Step:
        """Take a frame, without its size."""
        try:
            match self._state:
                case State.VERSIONS | State.HANDSHAKE:
                    return self._begin(frame)
                case State.AUTHENTICATE:
                    return self._authenticate(frame, now_ms)
                case State.COMPLETE:
                    return self._go_on(frame, now_ms)
                case State.OTHER:
                    return self._close("the mechanism of a session cannot change", is_delayed=True)
                case State.CLOSED:
                    return Step(closes=True)
        except WireError as error:
            return self._close(str(error))

    def resume(self, result: Any, now_ms: int) -> Step:
        """Take the result of the last step's work."""
        then, self._then = self._then, None
        assert then is not None, "the last step has work"
        return self._take(lambda: then(result, now_ms), now_ms)

    def refuse_size(self) -> Step:
        """Refuse a frame with a negative size, or of more than `SaslConfig.frame_bytes_max` bytes; its body is not read."""
        return self._close("a frame is too large", is_delayed=True)

    # -- states ------------------------------------------------------------------------------------------------

    def _begin(self, frame: bytes) -> Step:
        api_key, version, correlation_id, _, body = read_request_header(frame)
        if api_key == ApiKey.API_VERSIONS and self._state is State.VERSIONS:
            answer = self._answer_versions(frame)
            if answer[8:10] == b"\0\0":
                self._state = State.HANDSHAKE
            return Step(answer)
        if api_key != ApiKey.SASL_HANDSHAKE:
            return self._close(f"{API_KEYS[api_key].api_name} before the authentication")
        return self._shake_hands(frame, version, correlation_id, body)

    def _shake_hands(self, frame: bytes, version: int, correlation_id: int, body: int) -> Step:
        mechanism: str = request_reader(ApiKey.SASL_HANDSHAKE, version)(frame, body).mechanism
        mechanisms = self._listener.config.mechanisms
        error_code = ErrorCode.NONE if mechanism in mechanisms else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = response_encoder(ApiKey.SASL_HANDSHAKE, version)(
            correlation_id, m.SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms)
        )
        if error_code:
            return self._close(f"the mechanism {mechanism!r} is not enabled", answer, is_delayed=True)
        self._is_bare = version == 0
        if self._principal is not None and mechanism != self._mechanism:
            self._state = State.OTHER
        else:
            self._mechanism = mechanism
            self._exchange = self._listener.exchange(mechanism)
            self._state = State.AUTHENTICATE
        return Step(answer)

    def _authenticate(self, frame: bytes, now_ms: int) -> Step:
        token = frame
        if not self._is_bare:
            api_key, version, correlation_id, _, body = read_request_header(frame)
            if api_key != ApiKey.SASL_AUTHENTICATE:
                name = API_KEYS[api_key].api_name
                answer = _illegal_state(API_KEYS[api_key], version, correlation_id)
                return self._close(f"{name} during the authentication", answer, is_delayed=True)
            self._asked = version, correlation_id
            token = request_reader(ApiKey.SASL_AUTHENTICATE, version)(frame, body).auth_bytes
        exchange = self._exchange
        assert exchange is not None, "an exchange begins with the handshake"
        return self._take(lambda: exchange.respond(token, now_ms), now_ms)

    def passes(self, frame: bytes, now_ms: int) -> bool:
        """Whether a frame of an authenticated client is an ordinary request."""
        ends_at_ms = self._session_ends_at_ms
        return ends_at_ms is None or not (now_ms >= ends_at_ms or self._begins_again(frame, now_ms))

    def _begins_again(self, frame: bytes, now_ms: int) -> bool:
        last = self._reauthenticated_at_ms
        return frame[:2] == b"\0\x11" and (last is None or now_ms - last >= REAUTHENTICATION_INTERVAL_MS)

    def _go_on(self, frame: bytes, now_ms: int) -> Step:
        if self.passes(frame, now_ms):
            return Step(passes=True)
        if not self._begins_again(frame, now_ms):
            return self._close("the session has ended")
        self._reauthenticated_at_ms = now_ms
        _, version, correlation_id, _, body = read_request_header(frame)
        return self._shake_hands(frame, version, correlation_id, body)

    # -- exchanges ---------------------------------------------------------------------------------------------

    def _take(self, respond: Callable[[], Answer | Work], now_ms: int) -> Step:
        """Take the next message of the mechanism, or the end of its exchange."""
        try:
            answer = respond()
            if isinstance(answer, Work):
                self._then = answer.then
                return Step(work=answer.run)
            if answer.identity is None:
                return Step(self._encode(answer.token, 0))
            return self._complete(answer.token, answer.identity, now_ms)
        except AuthenticationError as error:
            return self._fail(error)

    def _complete(self, token: bytes, identity: Identity, now_ms: int) -> Step:
        """The only place where a user is authenticated."""
        former, principal = self._principal, identity.principal
        if former is not None and former[:2] != principal[:2]:
            raise AuthenticationError(
                "Cannot change principals during re-authentication from "
                f"{former.type}.{former.name}: {principal.type}.{principal.name}"
            )
        lifetimes = [each for each in (self._listener.config.session_ms.get(self._mechanism, 0),) if each > 0]
        if identity.expires_at_ms is not None:
            lifetimes.append(max(identity.expires_at_ms - now_ms, 0))
        self._session_ends_at_ms = now_ms + min(lifetimes) if lifetimes else None
        self._principal = principal
        self._state = State.COMPLETE
        self._exchange = None
        answer = self._encode(token, min(lifetimes, default=0))
        return Step(answer, principal=principal, session_ends_at_ms=self._session_ends_at_ms)

    def _fail(self, error: AuthenticationError) -> Step:
        kind = "authentication" if self._principal is None else "re-authentication"
        text = error.message or (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        refusal = f"{text}: {error.reason}" if error.reason else text
        if self._is_bare:
            return self._close(refusal, is_delayed=error.message is not None)
        version, correlation_id = self._asked
        answer = response_encoder(ApiKey.SASL_AUTHENTICATE, version)(
            correlation_id,
            m.SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text),
        )
        return self._close(refusal, answer, is_delayed=True)

    def _encode(self, token: bytes, lifetime_ms: int) -> bytes:
        if self._is_bare:
            return len(token).to_bytes(4, "big") + token
        version, correlation_id = self._asked
        return response_encoder(ApiKey.SASL_AUTHENTICATE, version)(
            correlation_id,
            m.SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms),
        )

    def _close(self, refusal: str, answer: bytes = b"", *, is_delayed: bool = False) -> Step:
        self._state = State.CLOSED
        self._exchange = None
        delay_ms = self._listener.config.failure_delay_ms if is_delayed else 0
        return Step(answer, delay_ms, closes=True, refusal=refusal[:REFUSAL_LENGTH_MAX])


def _illegal_state(api: ApiKey, version: int, correlation_id: int) -> bytes:
    """The answer to any other request during the exchange. Elements of the request have no answer of their own."""
    response_class = getattr(m, f"{api.api_name}Response")
    has_code = "error_code" in response_class.__struct_fields__
    response = response_class(error_code=ErrorCode.ILLEGAL_SASL_STATE) if has_code else response_class()
    return response_encoder(api, version)(correlation_id, response)
