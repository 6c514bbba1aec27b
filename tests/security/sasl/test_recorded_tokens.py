"""The recorded requests about delegation tokens, made again: codes and principals as recorded, times by their distance."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kohort.model.principals import ANONYMOUS, Principal
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import request_reader, response_reader
from tests.security.sasl.recorded import TOKEN, Api, Player, Row, recording, users_of

_ROWS = recording()[1]
_CREATE = [name for name, row in _ROWS.items() if row["id"].startswith("CreateDelegationToken")]
_CHANGE = [name for name, row in _ROWS.items() if row["id"].startswith(("RenewDelegation", "ExpireDelegation"))]
BOB = Principal("bob")
HOUR_MS = 3_600_000
"""The longest life of the tokens that are renewed and ended."""


@pytest.fixture
def api() -> Api:
    return Api(delegation_token_secret_key="secret-key-of-the-tests")


def exchanges(row: Row) -> Iterator[tuple[bytes, bytes]]:
    """Requests and answers, without their sizes."""
    steps = [bytes.fromhex(step["hex"])[4:] for step in row["steps"]]
    yield from zip(steps[::2], steps[1::2], strict=True)


def decoded(frame: bytes, asked: bytes) -> Any:
    """A response to a request."""
    api_key, version, *_ = read_request_header(asked)
    return response_reader(api_key, version)(frame, read_response_header(frame, api_key, version)[1])


def ask(api: Api, who: Principal, api_key: ApiKey, request: Any) -> Any:
    version = API_KEYS[api_key].newest_stable
    frame = request_encoder(api_key, version)(1, "test", request)[4:]
    return decoded(api.answer(frame, who)[4:], frame)


def token_of_bob(api: Api, max_ms: int = HOUR_MS) -> bytes:
    """A new token; its HMAC."""
    request = m.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=max_ms)
    return bytes(ask(api, BOB, ApiKey.CREATE_DELEGATION_TOKEN, request).hmac)


@pytest.mark.parametrize("name", _CREATE)
def test_creation(name: str, api: Api) -> None:
    row = _ROWS[name]
    *_, (asked, recorded_frame) = exchanges(row)
    recorded = decoded(recorded_frame, asked)
    answer = decoded(api.answer(asked, Principal("admin"))[4:], asked)
    now_ms = api.harness.node.clock.now_ms()
    for field in ("error_code", "principal_type", "principal_name"):
        assert getattr(answer, field) == getattr(recorded, field)
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", "admin")
    if recorded.error_code:
        assert (answer.expiry_timestamp_ms, answer.max_timestamp_ms, answer.token_id, answer.hmac) == (-1, -1, "", b"")
        return
    issued_ms = recorded.issue_timestamp_ms
    assert answer.issue_timestamp_ms == now_ms
    assert answer.expiry_timestamp_ms - now_ms == recorded.expiry_timestamp_ms - issued_ms
    assert answer.max_timestamp_ms - now_ms == recorded.max_timestamp_ms - issued_ms
    assert (len(answer.token_id), len(answer.hmac)) == (len(recorded.token_id), len(recorded.hmac))


@pytest.mark.parametrize("name", _CHANGE)
def test_renewal_and_end(name: str, api: Api) -> None:
    """The recorded tokens live for an hour at most, and were made up to a second before."""
    row = _ROWS[name]
    *_, (asked, recorded_frame) = exchanges(row)
    recorded = decoded(recorded_frame, asked)
    api_key, version, *_, body = read_request_header(asked)
    hmac = token_of_bob(api)
    if "expired" in name:
        ending = m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=0)
        assert ask(api, BOB, ApiKey.EXPIRE_DELEGATION_TOKEN, ending).error_code == 0
        api.harness.node.advance(1)
    request = request_reader(api_key, version)(asked, body)
    asked = asked.replace(request.hmac, hmac)
    answer = decoded(api.answer(asked, BOB)[4:], asked)
    assert answer.error_code == recorded.error_code
    relative: Mapping[str, int] = row.get("relative") or {}
    if "expiry from now, seconds" in relative:
        life_ms = answer.expiry_timestamp_ms - api.harness.node.clock.now_ms()
        # 3599 s is the rest of an hour that had begun.
        assert round(life_ms / 1_000) in (
            relative["expiry from now, seconds"],
            relative["expiry from now, seconds"] + 1,
        )
    elif recorded.error_code:
        assert answer.expiry_timestamp_ms == recorded.expiry_timestamp_ms


def test_tokens_on_a_listener_without_authentication(api: Api) -> None:
    for asked, recorded in exchanges(_ROWS["PLAINTEXT: tokens on PLAINTEXT"]):
        assert api.answer(asked, ANONYMOUS)[4:].hex() == recorded.hex()


def test_session_of_a_token_may_not_ask_for_tokens(api: Api) -> None:
    row = _ROWS["SASL_PLAINTEXT: token may not ask for tokens"]
    player = Player(row, users_of(row), api)
    for asked, recorded in exchanges(row):
        answer, is_closed, _ = player.receive(asked)
        assert not is_closed
        assert answer[4:].hex() == recorded.hex()
    assert TOKEN in str(row["steps"][2])
