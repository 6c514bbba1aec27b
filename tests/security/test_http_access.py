"""
Ports that speak HTTP deny by default.

CVE-2026-82266 and CVE-2025-61673: an administration port took anyone, and a request without the header skipped the check.
CVE-2026-105949: a path with more segments passed the rules; paths are compared as a whole (`tests/server/metrics`).
"""

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.security.http_access import VARIABLE, Headers, HttpAccess, is_loopback, read_token

TOKEN = "0123456789abcdef"
RIGHT = {"authorization": [f"Bearer {TOKEN}"]}

# fmt: off
REQUESTS: list[tuple[str | None, bool, Headers, int]] = [  # token, is_local; headers; status, 0 if the request is not refused
    (None,  True,  {},                                                  0),
    (None,  True,  {"host": ["localhost:9404"]},                        0),
    (None,  True,  {"host": ["LOCALHOST"]},                             0),
    (None,  True,  {"host": ["127.0.0.1:1"]},                           0),
    (None,  True,  {"host": ["127.9.9.9"]},                             0),
    (None,  True,  {"host": ["[::1]:9404"]},                            0),
    (None,  True,  {"host": ["rebound.example:9404"]},                  403),
    (None,  True,  {"host": ["localhost.example"]},                     403),
    (None,  True,  {"host": ["127.0.0.1.example"]},                     403),
    (None,  True,  {"host": ["127.0.0.1", "rebound.example"]},          403),
    (None,  True,  {"host": ["[::1].example"]},                         403),
    (None,  True,  {"host": ["::1"]},                                   403),
    (None,  True,  {"host": ["localhost:x"]},                           403),
    (None,  True,  {"host": [""]},                                      403),
    (None,  True,  {"origin": ["http://localhost"]},                    403),
    (None,  True,  {"origin": ["null"]},                                403),
    (None,  True,  {"sec-fetch-site": ["cross-site"]},                  403),
    (None,  True,  {"sec-fetch-site": ["none"]},                        0),
    (None,  False, {},                                                  401),
    (None,  False, {"host": ["localhost"]},                             401),
    (None,  False, RIGHT,                                               401),
    (TOKEN, False, RIGHT,                                               0),
    (TOKEN, True,  RIGHT,                                               0),
    (TOKEN, True,  {},                                                  401),
    (TOKEN, False, {},                                                  401),
    (TOKEN, False, {"authorization": [f"bearer  {TOKEN} "]},            0),
    (TOKEN, False, {"authorization": [TOKEN]},                          401),
    (TOKEN, False, {"authorization": [f"Basic {TOKEN}"]},               401),
    (TOKEN, False, {"authorization": [""]},                             401),
    (TOKEN, False, {"authorization": ["Bearer "]},                      401),
    (TOKEN, False, {"authorization": [f"Bearer {TOKEN}0"]},             401),
    (TOKEN, False, {"authorization": [f"Bearer {TOKEN[:-1]}"]},         401),
    (TOKEN, False, {"authorization": [f"Bearer {TOKEN.upper()}"]},      401),
    (TOKEN, False, {"authorization": ["Bearer \xe9\u65e5"]},            401),
    (TOKEN, False, {"authorization": [f"Bearer {TOKEN}"] * 2},          401),
    (TOKEN, False, {**RIGHT, "host": ["any.example"]},                  0),
    (TOKEN, False, {**RIGHT, "origin": ["http://any.example"]},         403),
]
# fmt: on


@pytest.mark.parametrize(("token", "is_local", "headers", "status"), REQUESTS)
def test_cve_2026_82266_and_cve_2025_61673(token: str | None, is_local: bool, headers: Headers, status: int) -> None:
    access = HttpAccess(token, is_local=is_local)
    refusal = access.refusal(headers)
    assert (refusal.status if refusal else 0) == status
    assert TOKEN not in repr(access)
    assert refusal is None or TOKEN not in refusal.sentence


def test_cve_2021_38153_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if there is none: a missing token is a wrong one."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    access = HttpAccess(TOKEN, is_local=False)
    for headers in (RIGHT, {}, {"authorization": ["Bearer x"]}, {"authorization": [f"Basic {TOKEN}"]}):
        access.refusal(headers)
    assert [given for given, _ in compared] == [TOKEN.encode(), b"", b"x", TOKEN.encode()[1:]]
    assert {expected for _, expected in compared} == {TOKEN.encode()}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ([], 415),
        (["text/plain"], 415),
        (["application/x-www-form-urlencoded"], 415),
        (["multipart/form-data; a=application/json"], 415),
        (["application/json", "text/plain"], 415),
        (["application/json"], 0),
        (["Application/JSON; charset=utf-8"], 0),
    ],
)
def test_what_changes_something_is_json(content: list[str], status: int) -> None:
    refusal = HttpAccess(None, is_local=True).refusal({"content-type": content}, is_change=True)
    assert (refusal.status if refusal else 0) == status
    assert HttpAccess(None, is_local=True).refusal({"content-type": content}) is None


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_addresses(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-of-the-file\n")
    file.chmod(0o600)
    assert read_token(None, {}) is None
    assert read_token(None, {VARIABLE: TOKEN}) == TOKEN
    assert read_token(file, {VARIABLE: TOKEN}) == f"{TOKEN}-of-the-file"
    for text in ("short-secret", "0123456789 abcdef", "\u00fc" * 16, ""):
        with pytest.raises(ConfigError, match=r"must be at least 16 ASCII characters.*openssl rand -hex 32") as raised:
            read_token(None, {VARIABLE: text})
        assert not text or text not in str(raised.value)
    file.chmod(0o604)
    with pytest.raises(ConfigError, match="everyone on this machine may use the token file"):
        read_token(file, {})
    with pytest.raises(ConfigError, match="cannot read the token file"):
        read_token(tmp_path / "absent", {})
