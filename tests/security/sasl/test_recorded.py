"""
The recorded exchanges, played again: the same bytes, closed when Kafka closes, and after a delay when Kafka delays.

ApiVersions is compared by its error code, because the player has no coordinators. Where Kohort differs on purpose, the
difference is asserted, too.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kohort.model.errors import WireError
from kohort.security.sasl.listener import RECEIVE_BYTES
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.frames import FrameReader
from kohort.wire.readers import response_reader
from tests.security.sasl.exchanges import Users
from tests.security.sasl.recorded import (
    SHA_256,
    SHORT_TOKEN,
    Api,
    Player,
    Row,
    credential,
    recording,
    token_text,
    users_of,
)
from tests.security.sasl.scram_client import final

_ROWS = recording()[1]
_OF_TOKENS = (
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "token may not ask",
    "tokens on",
)
_CUT = "SCRAM-SHA-256 nonce of 20 000 characters"
"""Its messages are not recorded in full; `test_scram.py` has such a nonce."""
PLAYED = [name for name, row in _ROWS.items() if not row["id"].startswith((*_OF_TOKENS, _CUT))]

# What happens before a turn of the client: time passes, or somebody changes the users.
SESSION_END_MS = 4_000
TIMES = {
    "re-authentication after the session's end": 2,
    "re-authentication a request after the session's end": 3,
    "re-authentication with SaslAuthenticate 0": 3,
    "re-authentication raw tokens": 3,
    "token expires while connected": 4,
    "OAUTHBEARER jwks session ends": 3,
}
"""The turn before which more time passes than the session lasts."""


def _change(users: Users) -> None:
    users.scram_credentials["changing", SHA_256] = credential("sally", SHA_256)


def _delete(user: str) -> Callable[[Users], Any]:
    return lambda users: users.scram_credentials.pop((user, SHA_256))


CHANGES: Mapping[str, tuple[int, Callable[[Users], Any]]] = {
    "SCRAM-SHA-256 credential changed between the messages": (2, _change),
    "SCRAM-SHA-256 credential deleted between the messages": (2, _delete("gone")),
    "SCRAM-SHA-256 credential deleted while connected": (3, _delete("gone")),
    "re-authentication SCRAM, credential deleted": (4, _delete("brief")),
    "token removed while connected": (3, lambda users: users.tokens.clear()),
}

# What Kohort does otherwise, at which turn.
CHALLENGED = "a user that does not exist is asked for a proof, like any other"
REFUSED = "answered with 58 after the delay"
DIFFERENCES = {
    "SCRAM-SHA-256 unknown user": (1, CHALLENGED),
    "SCRAM-SHA-512 unknown user": (1, CHALLENGED),
    "SCRAM-SHA-512 user without that mechanism": (1, CHALLENGED),
    "SCRAM-SHA-256 after deletion": (1, CHALLENGED),
    "re-authentication SCRAM, credential deleted": (5, CHALLENGED),
    "token unknown id": (1, CHALLENGED),
    "token without tokenauth": (1, CHALLENGED),
    "token tokenauth=false": (1, CHALLENGED),
    "token of a user with a password": (1, CHALLENGED),
    "token removed": (1, CHALLENGED),
    "SCRAM-SHA-256 reserved m=": (1, REFUSED),
    "SCRAM-SHA-256 final: channel of y,,": (2, REFUSED),
    "SCRAM-SHA-256 final: channel of another header": (2, REFUSED),
    "SCRAM-SHA-256 final: channel empty": (2, REFUSED),
    "SCRAM-SHA-256 final: proof of 31 bytes": (2, REFUSED),
    "SCRAM-SHA-256 final: proof of 33 bytes": (2, REFUSED),
    "SCRAM-SHA-256 final: proof empty": (2, REFUSED),
    "OAUTHBEARER oauth scheme Basic": (1, REFUSED),
    "re-authentication by an unknown mechanism": (2, "answered with 33 after the delay"),
}


@pytest.mark.parametrize("name", PLAYED)
def test_exchange(name: str) -> None:
    row = _ROWS[name]
    player = Player(row, users_of(row), Api())
    difference = DIFFERENCES.get(row["id"])
    for turn, (sent, answers) in enumerate(_turns(row["steps"])):
        if TIMES.get(row["id"]) == turn:
            player.now_ms += SESSION_END_MS
        if row["id"] in CHANGES and CHANGES[row["id"]][0] == turn:
            CHANGES[row["id"]][1](player.users)
        data = _whole(sent)
        expected = b"".join(bytes.fromhex(each.get("hex", "")) for each in answers)
        if turn == 2 and f"n={SHORT_TOKEN}," in token_text(row["steps"][2]):
            data, expected = _with_other_secret(row, expected)
        seen, is_closed, is_delayed = _play(player, data)
        if difference is not None and difference[0] == turn:
            _check_difference(difference[1], seen, is_closed, is_delayed)
            return
        if _is_list_of_apis(sent, answers):
            assert seen[8:10] == expected[8:10], "the error code of ApiVersions"
        elif any("order of a user's mechanisms" in each.get("variable", ()) for each in answers):
            assert _descriptions(seen) == _descriptions(expected)
        else:
            assert seen.hex() == expected.hex()
        delays = [each["delayed"] for each in answers if "delayed" in each]
        assert is_closed == any("closed" in each or each.get("delayed") for each in answers)
        if delays:
            assert is_delayed == any(delays)


def _play(player: Player, data: bytes) -> tuple[bytes, bool, bool]:
    """Send bytes; what comes back, and whether the connection is closed, and after the delay."""
    reader = FrameReader(RECEIVE_BYTES)
    seen = b""
    try:
        frames = reader.feed(data)
    except WireError:
        assert player.authenticator is not None
        step = player.authenticator.refuse_size()
        return step.answer, step.closes, step.delay_ms > 0
    for frame in frames:
        answer, is_closed, is_delayed = player.receive(frame)
        seen += answer
        if is_closed:
            return seen, True, is_delayed
    return seen, False, False


def _turns(steps: list[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """What the client sends, and what comes back until it sends again."""
    begins = [index for index, step in enumerate(steps) if step["dir"] == "client"]
    for begin, end in zip(begins, [*begins[1:], len(steps)], strict=True):
        yield steps[begin], steps[begin + 1 : end]


def _whole(sent: Mapping[str, Any]) -> bytes:
    """The bytes of a step. A long one is recorded in part: one byte is repeated, and the section of tags is empty."""
    data = bytes.fromhex(str(sent["hex"]).removesuffix("..."))
    rest = int(sent.get("bytes", len(data))) - len(data)
    return data + data[-1:] * (rest - 1) + b"\0" * min(rest, 1)


def _is_list_of_apis(sent: Mapping[str, Any], answers: list[Mapping[str, Any]]) -> bool:
    says = sent["says"]
    return isinstance(says, dict) and says.get("api") == "ApiVersions" and any("hex" in each for each in answers)


def _descriptions(frame: bytes) -> list[tuple[str, int, list[tuple[int, int]]]]:
    response: Any = response_reader(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)(frame, 9)
    return [
        (each.user, each.error_code, sorted((info.mechanism, info.iterations) for info in each.credential_infos))
        for each in response.results
    ]


def _with_other_secret(row: Row, expected: bytes) -> tuple[bytes, bytes]:
    """The client's last message, and the server's, for a token whose secret is not recorded."""
    client_first, server_first = token_text(row["steps"][2]), token_text(row["steps"][3])
    mine, answer = final(SHA_256, "not recorded", client_first, server_first)
    request = m.SaslAuthenticateRequest(auth_bytes=mine.encode())
    frame: bytes = request_encoder(ApiKey.SASL_AUTHENTICATE, 2)(3, "probe", request)
    recorded = token_text(row["steps"][5])
    assert recorded
    return frame, expected.replace(recorded.encode(), answer.encode())


def _check_difference(kind: str, seen: bytes, is_closed: bool, is_delayed: bool) -> None:
    if kind == CHALLENGED:
        assert not is_closed
        assert seen[9:11] == b"\0\0"
        assert b"r=fyko+d2lbbFgONRv9qkxdawL" in seen
    elif kind == REFUSED:
        assert is_closed
        assert is_delayed
        assert seen[9:11] == b"\0\x3a"
    else:
        assert is_closed
        assert is_delayed
        assert seen[8:10] == b"\0\x21"
