"""The HTTP endpoint of the exporter: what monitoring systems ask, and what hostile clients hold."""

import gzip
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kohort import scrape
from kohort.model.errors import ConfigError
from kohort.pipeline.exporter import endpoint as endpoint_module
from kohort.pipeline.exporter.endpoint import Endpoint
from kohort.pipeline.exporter.exporter import Exporter
from kohort.scrape import Family
from tests.clients.waiting import wait_until
from tests.pipeline.sources.growing import GrowingLog

HOST = "127.0.0.1"
PATIENCE_S = 60.0


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    GrowingLog(tmp_path, "orders")
    GrowingLog(tmp_path).commits(9)
    found = Exporter(str(tmp_path))
    found.poll()
    return found


@pytest.fixture
def endpoint(exporter: Exporter) -> Iterator[Endpoint]:
    found = Endpoint(exporter, HOST, 0, interval_s=1000.0)
    found.start()
    yield found
    found.stop()


def ask(endpoint: Endpoint, path: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    request = Request(f"http://{HOST}:{endpoint.port}{path}", method=method, headers=headers)
    try:
        with urlopen(request, timeout=PATIENCE_S) as response:
            body = response.read()
            return response.status, gzip.decompress(body) if response.headers["Content-Encoding"] else body
    except HTTPError as exc:
        return exc.code, exc.read()


def names(text: bytes) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text.decode())}


def test_every_path(endpoint: Endpoint, exporter: Exporter) -> None:
    status, text = ask(endpoint, "/metrics")
    assert status == 200
    assert "kohort_exporter_up" in names(text)
    assert ask(endpoint, "/metrics", **{"Accept-Encoding": "gzip"}) == (200, text)
    assert ask(endpoint, "/") == (200, text)
    assert ask(endpoint, "/metrics", method="HEAD") == (200, b"")
    for path in ("/health", "/healthz", "/-/healthy"):
        assert ask(endpoint, path) == (200, b'{"status": "ok"}\n')
    for path in ("/ready", "/readyz", "/-/ready"):
        assert ask(endpoint, path) == (200, b'{"status": "ready"}\n')
    assert ask(endpoint, "/favicon.ico")[0] == 404
    assert ask(endpoint, "/metrics", method="POST")[0] == 405
    before = exporter.snapshot
    exporter.poll()
    assert exporter.snapshot is not before
    assert ask(endpoint, "/metrics")[1] != text


def test_it_is_not_ready_if_the_source_does_not_answer(endpoint: Endpoint, exporter: Exporter, tmp_path: Path) -> None:
    (tmp_path / "__consumer_offsets-0").rename(tmp_path.parent / "moved")
    (tmp_path / "orders-0").rename(tmp_path.parent / "moved too")
    tmp_path.rmdir()
    exporter.poll()
    status, text = ask(endpoint, "/ready")
    assert status == 503
    assert b"is not a directory" in text
    assert ask(endpoint, "/health")[0] == 200
    assert b"\nkohort_exporter_up 0.0\n" in ask(endpoint, "/metrics")[1]


def test_the_text_is_made_once_for_all_scrapers_of_a_poll(
    endpoint: Endpoint, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(families: Iterable[Family]) -> list[bytes]:
        made.append(families)
        return [b"text\n"]

    monkeypatch.setattr(endpoint_module, "text_of", counted)
    for headers in ({}, {"Accept-Encoding": "gzip"}, {}):
        assert ask(endpoint, "/metrics", **headers) == (200, b"text\n")
    assert len(made) == 1
    exporter.poll()
    ask(endpoint, "/metrics")
    assert len(made) == 2


def test_connections_that_send_nothing_are_bounded(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "SCRAPERS_MAX", 3)
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((HOST, endpoint.port), PATIENCE_S)) for _ in range(3)]
        for one in idle:
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
        # The server accepts in the order of arrival.
        assert ask(endpoint, "/health") == (503, b"There are too many scrapers.\n")
    wait_until(lambda: ask(endpoint, "/health")[0] == 200, what="the end of the idle connections")


def test_answers_that_nobody_takes_are_bounded(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, exporter: Exporter
) -> None:
    monkeypatch.setattr(endpoint_module, "text_of", lambda _: [b"x" * (16 << 20)])
    monkeypatch.setattr(scrape, "SCRAPE_BYTES_MAX", 24 << 20)
    exporter.poll()
    with socket.create_connection((HOST, endpoint.port), PATIENCE_S) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert slow.recv(1)
        # Scrapers of one poll share its text.
        assert ask(endpoint, "/metrics")[0] == 200
        exporter.poll()
        status, text = ask(endpoint, "/metrics")
        assert (status, text) == (503, b"Other scrapers have not taken their answers yet.\n")
        assert ask(endpoint, "/health")[0] == 200
    wait_until(lambda: ask(endpoint, "/metrics")[0] == 200, what="the end of the slow connection")


def test_an_address_that_cannot_be_had(endpoint: Endpoint, exporter: Exporter) -> None:
    with pytest.raises(ConfigError, match=rf"{HOST}:{endpoint.port} cannot be listened at: Address already in use"):
        Endpoint(exporter, HOST, endpoint.port, interval_s=1.0)
    with pytest.raises(ConfigError, match=r"nohost.invalid:0 cannot be listened at: "):
        Endpoint(exporter, "nohost.invalid", 0, interval_s=1.0)


def test_metrics_deny_by_default_where_other_machines_reach_them(exporter: Exporter) -> None:
    """CVE-2026-82266 and CVE-2025-61673: see `tests/security/test_http_access.py`."""
    token = "a-token-of-the-test"
    for host, set_token, headers, status in (
        (HOST, None, {"Origin": "http://a.example"}, 403),
        (HOST, token, {}, 401),
        ("0.0.0.0", None, {}, 401),
        ("0.0.0.0", token, {}, 401),
        ("0.0.0.0", token, {"Authorization": f"Bearer {token}"}, 200),
    ):
        endpoint = Endpoint(exporter, host, 0, interval_s=1000.0, token=set_token)
        endpoint.start()
        assert ask(endpoint, "/metrics", **headers)[0] == status
        assert ask(endpoint, "/health")[0] == 200
        endpoint.stop()
