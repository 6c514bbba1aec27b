"""The client of the control port: values, problems, waits, and what is no control port."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kohort.client.control import ControlClient, ControlError, WaitTimeoutError
from kohort.testing import Broker

TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: Broker) -> ControlClient:
    return ControlClient(broker.control)


def test_a_value_is_sent_and_comes_back(client: ControlClient) -> None:
    added = client.post("faults", body={"api": "Fetch", "observe": True, "topic": 'a/b?c="ö"'})
    assert client.get("faults", added["id"]) == added
    assert added["spec"]["topic"] == 'a/b?c="ö"'
    client.delete("faults", added["id"])
    assert client.get("faults", added["id"])["is_removed"]


def test_a_url_is_an_address_too(broker: Broker) -> None:
    assert "faults" in ControlClient(f"http://{broker.control}/").get("faults", scope=None)


def test_a_problem_is_an_error_with_its_sentence(client: ControlClient) -> None:
    with pytest.raises(ControlError, match=r"there is no API 'OffsetComit'; did you mean OffsetCommit\?") as raised:
        client.post("faults", body={"api": "OffsetComit", "error": 5})
    assert (raised.value.status, raised.value.kind) == (422, "invalid")
    with pytest.raises(ControlError, match=r"fault 'a/\.\./b'") as raised:
        client.get("faults", "a/../b")
    assert (raised.value.status, raised.value.kind) == (404, "not-found")


def test_a_wait_without_success_has_the_state(client: ControlClient) -> None:
    added = client.post("faults", body={"api": "Fetch", "observe": True})
    with pytest.raises(WaitTimeoutError, match="has 0 hits and not 1") as raised:
        client.get("faults", added["id"], wait=1, timeout=0.01)
    assert raised.value.state == added


def test_an_answer_that_is_no_answer(client: ControlClient) -> None:
    class Strange(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            status, content = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    answers = [(200, b"<html>"), (500, b""), (502, json.dumps(["?"]).encode())]
    with HTTPServer(("127.0.0.1", 0), Strange) as server:
        threading.Thread(target=server.serve_forever).start()
        strange = ControlClient(f"127.0.0.1:{server.server_port}", TOKEN)
        for status, sentence in ((200, "the answer is no JSON: b'<html>'"), (500, "status 500"), (502, "status 502")):
            with pytest.raises(ControlError, match=sentence) as raised:
                strange.get("faults")
            assert raised.value.status == status
        server.shutdown()
    with pytest.raises(ControlError, match=r"no control port answers at 127\.0\.0\.1:") as raised:
        strange.get("faults")
    assert (raised.value.status, raised.value.kind) == (0, "no-answer")


def test_the_token_is_not_shown() -> None:
    assert repr(ControlClient("127.0.0.1:9192", TOKEN)) == "ControlClient('127.0.0.1:9192')"


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:port", ":9192", "[::1", "http://"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ControlError, match="the address of a control port is HOST:PORT"):
        ControlClient(address)
