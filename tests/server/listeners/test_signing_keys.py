"""The keys of issuers, read from a file and from a server."""

import logging
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kohort.broker.configs.sasl_configs import KeySetPlace
from kohort.model.errors import ConfigError
from kohort.model.limits import KEY_SET_BYTES_MAX, UNKNOWN_KEYS_MAX
from kohort.security.sasl.signed_tokens import SigningKeys
from kohort.server.listeners.signing_keys import ServedKeys, open_keys
from tests.security.sasl.tokens import key_set, private_key

SECRET = b'{"keys": "do-not-show-this"}'
ONE, TWO = key_set(private_key("one")), key_set(private_key("two"))


class Issuer:
    """A server of a key set on a free port; counts its answers."""

    def __init__(self) -> None:
        self.text = ONE
        self.status = 200
        self.location = ""
        self.asked: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self.send_response(issuer.status)
                self.send_header("Content-Length", str(len(issuer.text)))
                if issuer.location:
                    self.send_header("Location", issuer.location)
                self.end_headers()
                self.wfile.write(issuer.text)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    thread = Thread(target=issuer.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()
    thread.join()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def place(url: str) -> KeySetPlace:
    return KeySetPlace(url, refresh_ms=3_600_000, backoff_ms=100, backoff_max_ms=250)


def names(keys: SigningKeys, name: str | None = None) -> list[str | None]:
    return [key.name for key in keys.find(name)]


# -- a file -----------------------------------------------------------------------------------------------------


def test_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "key set.json"
    path.write_bytes(ONE)
    keys = open_keys(place(path.as_uri()))
    assert names(keys) == ["one"]
    path.write_bytes(TWO)
    os.utime(path, ns=(1, 1))
    assert (names(keys, "one"), names(keys, "two")) == ([], ["two"])
    with caplog.at_level(logging.WARNING, "kohort.server"):
        path.write_bytes(SECRET)
        os.utime(path, ns=(2, 2))
        assert names(keys) == ["two"]
        path.unlink()
        assert names(keys) == ["two"]
    assert "signing_keys.unreadable" in caplog.text
    assert "do-not-show" not in caplog.text


def test_cve_2025_27817_content_of_a_file_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    with pytest.raises(ConfigError) as raised:
        open_keys(place(path.as_uri()))
    assert "do-not-show" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        open_keys(place((tmp_path / "missing").as_uri()))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/keys", "/etc/passwd", "data:,x", "jar:file:/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="http, https or file"):
        open_keys(place(url))


def test_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b" " * (KEY_SET_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="at most"):
        open_keys(place(path.as_uri()))


# -- a server ---------------------------------------------------------------------------------------------------


def test_server_is_asked_again_when_its_keys_are_old(issuer: Issuer) -> None:
    clock = Clock()
    keys = ServedKeys(place(issuer.url), clock)
    issuer.text = TWO
    clock.now += 3_599
    assert names(keys) == ["one"]
    clock.now += 1
    assert names(keys) == ["two"]
    assert len(issuer.asked) == 2


def test_unknown_key_asks_early_and_once_a_minute(issuer: Issuer) -> None:
    clock = Clock()
    keys = ServedKeys(place(issuer.url), clock)
    clock.now += 2
    issuer.text = TWO
    assert names(keys, "two") == ["two"]
    for seconds, asked in ((2, 3), (2, 3), (55, 3), (4, 4)):
        clock.now += seconds
        assert names(keys, "three") == []
        assert len(issuer.asked) == asked


def test_many_unknown_keys_ask_once_a_second(issuer: Issuer) -> None:
    clock = Clock()
    keys = ServedKeys(place(issuer.url), clock)
    for number in range(100):
        clock.now += 0.1
        keys.find(str(number))
    keys.find("x" * 1_001)
    assert 8 <= len(issuer.asked) <= 11


def test_memory_of_unknown_keys_is_bounded(issuer: Issuer) -> None:
    clock = Clock()
    keys = ServedKeys(place(issuer.url), clock)
    for number in range(UNKNOWN_KEYS_MAX + 1):
        clock.now += 1
        keys.find(str(number))
    before = len(issuer.asked)
    clock.now += 1
    keys.find("1")
    assert len(issuer.asked) == before
    keys.find("0")
    assert len(issuer.asked) == before + 1


@pytest.mark.parametrize("trouble", ["status", "content", "size", "redirection"])
def test_last_keys_count_while_the_server_does_not_answer(
    trouble: str, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keys = ServedKeys(place(issuer.url), clock)
    match trouble:
        case "status":
            issuer.status = 500
        case "content":
            issuer.text = SECRET
        case "size":
            issuer.text = b" " * (KEY_SET_BYTES_MAX + 1)
        case "redirection":
            issuer.status, issuer.location, issuer.text = 302, f"{issuer.url}/elsewhere", TWO
    clock.now += 3_600
    asked = []
    with caplog.at_level(logging.WARNING, "kohort.server"):
        for seconds in (0, 0.05, 0.06, 0.11, 0.1, 0.24, 0.02, 0.24, 0.02):
            clock.now += seconds
            assert names(keys) == ["one"]
            asked.append(len(issuer.asked))
    assert asked == [2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert set(issuer.asked) == {"/keys"}
    assert "do-not-show" not in caplog.text
    issuer.status, issuer.location, issuer.text = 200, "", TWO
    clock.now += 1
    assert names(keys) == ["two"]


def test_start_without_the_server(issuer: Issuer) -> None:
    issuer.status = 404
    with pytest.raises(ConfigError, match="cannot be read: HTTPError"):
        open_keys(place(issuer.url))
    with pytest.raises(ConfigError, match="cannot be read: URLError"):
        open_keys(place("http://127.0.0.1:1/keys"))
