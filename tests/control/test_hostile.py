"""Wrong and hostile use of the control port: a clear error, and the broker lives."""

import asyncio
import json
import re
from typing import Any

import pytest

from kohort.control.operations.every import operations_of
from kohort.control.requests.faults import FaultSpec
from kohort.control.requests.holds import HoldSpec
from kohort.control.server import ControlServer
from kohort.model.errors import ConfigError
from kohort.model.limits import CONTROL_BODY_BYTES_MAX, FAULTS_MAX, HOLDS_MAX
from kohort.server.node import Node
from kohort.wire.apis import ApiKey
from tests.control.controlled import Control, Stage, play
from tests.control.test_faults import committed
from tests.server.clients import play as play_node
from tests.server.clients import with_topic

FAULT = {"api": "OffsetCommit", "error": "NOT_COORDINATOR"}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"apy": "Produce"}, "there is no field 'apy'; did you mean api?"),
    ({"api": "Produc", "observe": True}, "there is no API 'Produc'; did you mean Produce?"),
    ({"api": 999, "observe": True}, "there is no API with the number 999"),
    ({"error": "NOT_A_CODE"}, "there is no error code 'NOT_A_CODE'"),
    ({"error": "NOT_COORDINATR"}, "there is no error code 'NOT_COORDINATR'; did you mean NOT_COORDINATOR?"),
    ({"error": 0}, "NONE is no error: use observe"),
    ({"error": 4711}, "there is no error code 4711"),
    ({}, "a fault has an effect: one of error"),
    ({"error": 1, "silence": True}, "a fault has one effect; these are 2: error, silence"),
    ({"observe": True, "times": 0}, "times must be 1 or more; it is 0"),
    ({"observe": True, "on_call": -1}, "on_call must be 1 or more; it is -1"),
    ({"observe": True, "always": True, "times": 1}, "these triggers exclude each other: times, always"),
    ({"observe": True, "probability": 0.5}, "a probability needs a seed"),
    ({"observe": True, "probability": 2, "seed": 1}, "probability must be from 0 to 1; it is 2.0"),
    ({"observe": True, "seed": 1}, "a seed needs a probability"),
    ({"observe": True, "after": "fault-9"}, "there is no fault 'fault-9' to come after"),
    ({"observe": True, "topic_id": "?"}, "'?' is no topic id: give the 22 characters that Kafka prints, or a UUID"),
    ({"delay": -1}, "delay must be more than 0 and at most 3600 seconds; it is -1.0"),
    ({"truncate": -1}, "truncate must be 0 or more bytes; it is -1"),
    ({"slow": 0}, "slow must be 1 or more bytes a second; it is 0"),
    ({"corrupt": True}, "corrupt needs api Fetch or ShareFetch: other answers have no records"),
    ({"answer": {}}, "an answer needs one api"),
    (
        {"api": "Heartbeat", "answer": {"eror_code": 1}},
        "HeartbeatResponse has no field 'eror_code'; did you mean error_code?",
    ),
    ({"api": "Heartbeat", "answer": {"error_code": "x"}}, "HeartbeatResponse.error_code must be of the type int16"),
    ({"silence": True, "message": "x"}, "message and place belong to an error"),
    ({"disconnect": "later"}, "invalid enum value 'later'"),
    ({"observe": "yes"}, "expected `bool`, got `str`"),
]


def test_wrong_values_are_told_in_a_sentence() -> None:
    async def story(stage: Stage) -> None:
        for spec, sentence in WRONG:
            answer = await stage.control.ask("POST", "/faults", spec)
            assert answer.status == 422, (spec, answer)
            assert answer.body["detail"].startswith(sentence), answer.body["detail"]
            assert answer.headers["content-type"] == "application/problem+json"
            assert (answer.body["status"], answer.body["type"]) == (422, "urn:kohort:problem:invalid")
        assert not stage.kit.all_faults

    play(story)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/faults", b"{", 400),
        ("POST", "/faults", b"\xff", 400),
        ("POST", "/faults", b"[" * 100_000, 422),
        ("POST", "/faults", b'{"api": "Heartbeat", "answer": {"a":' + b"[" * 100_000, 400),
        ("POST", "/faults", b"[]", 422),
        ("POST", "/faults", b"", 400),
        ("POST", "/faults", b" " * (CONTROL_BODY_BYTES_MAX + 1), 413),
        ("GET", "/faults/fault-1-abc", None, 404),
        ("GET", "/nothing", None, 404),
        ("PATCH", "/faults", b"{}", 405),
        ("GET", "/faults?scop=x", None, 422),
        ("GET", "/requests?limit=x", None, 422),
        ("GET", "/requests?limit=-1", None, 422),
        ("GET", "/requests?api=x", None, 422),
        ("GET", "/%00/%ff", None, 404),
        ("POST", "/holds", b'{"lease": -1}', 422),
        ("POST", "/holds", b'{"point": "marker.wrote"}', 422),
        ("POST", "/holds/hold-1-abc/release", b"{}", 404),
    ],
)
def test_wrong_requests_have_a_status(method: str, path: str, body: bytes | None, status: int) -> None:
    async def story(stage: Stage) -> None:
        answer = await stage.control.ask(method, path, body)
        assert (answer.status, answer.body["status"]) == (status, status), answer
        await stage.control.take("GET", "/faults")

    play(story)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    ],
)
def test_what_is_not_http_is_refused(request_bytes: bytes) -> None:
    async def story(stage: Stage) -> None:
        answer = await stage.control.send(request_bytes)
        assert 400 <= answer.status < 500
        await stage.control.take("GET", "/faults")

    play(story)


def test_other_clients_are_served_while_one_sends_half_a_request() -> None:
    async def story(stage: Stage) -> None:
        halves = [await asyncio.open_connection("127.0.0.1", stage.control.port) for _ in range(20)]
        for _, writer in halves:
            writer.write(b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        client = await stage.connect()
        await with_topic(client)
        await stage.control.fault(**FAULT)
        assert await committed(client, 1) == 16
        for _, writer in halves:
            writer.close()

    play(story)


def test_web_pages_and_other_hosts_have_no_access() -> None:
    async def story(stage: Stage) -> None:
        for headers, status in (
            ({"Origin": "http://localhost"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Content-Type": "text/plain"}, 415),
        ):
            answer = await stage.control.ask("POST", "/faults", FAULT, headers)
            assert (answer.status, answer.body["type"]) == (status, "urn:kohort:problem:refused")
        assert not stage.kit.all_faults

    play(story)


def test_a_token_is_needed_where_one_is_set() -> None:
    async def story(node: Node, _connect: Any) -> None:
        server = ControlServer(node)
        await server.start("127.0.0.1", 0, "0123456789abcdef")
        control = Control(server.port)
        refused = await control.ask("GET", "/faults")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "bearer")
        wrong = await control.ask("GET", "/faults", headers={"Authorization": "Bearer 0123456789abcdeF"})
        assert wrong.status == 401
        assert (await control.ask("GET", "/faults", headers={"Authorization": "Bearer 0123456789abcdef"})).status == 200
        await server.close()
        with pytest.raises(ConfigError, match=r"--control-port on 0\.0\.0\.0 lets everyone"):
            await ControlServer(node).start("0.0.0.0", 0, None)

    play_node(story)


def test_no_operation_takes_unknown_fields_parameters_or_huge_bodies() -> None:
    async def story(stage: Stage) -> None:
        operations = operations_of(stage.kit)
        for each in operations:
            path = re.sub(r"{\w+}", "x", each.path)
            answer = await stage.control.ask(each.method, f"{path}?unknwon=1", {} if each.body else None)
            assert (answer.status, answer.body["detail"]) == (422, f"{each.path} has no parameter 'unknwon'")
            huge = await stage.control.ask(each.method, path, b" " * (CONTROL_BODY_BYTES_MAX + 1))
            assert huge.status == 413, each
            if each.body is not None:
                answer = await stage.control.ask(each.method, path, {"unknwon": 1})
                assert (answer.status, answer.body["detail"]) == (422, "there is no field 'unknwon'"), each
        assert sum(each.body is not None for each in operations) > 20

    play(story)


def test_a_scope_with_thousands_of_faults_ends_at_once() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        for number in range(FAULTS_MAX):
            spec = FaultSpec(observe=True, always=True, group=f"g-{number}", scope="a")
            stage.kit.add_fault(spec)
        assert await committed(client, 1) == 0
        ended = await stage.control.take("DELETE", "/scopes/a")
        assert len(ended["faults"]) == FAULTS_MAX
        assert await committed(client, 2) == 0
        (dispatch,) = stage.node.dispatches.values()
        assert dispatch.routes[ApiKey.OFFSET_COMMIT, 9].read_repeated is not None

    play(story)


def test_ten_thousand_faults() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)
        spec = json.dumps({**FAULT, "group": "other"}).encode()
        for _ in range(FAULTS_MAX):
            stage.kit.add_fault(FaultSpec(api="OffsetCommit", error="NOT_COORDINATOR", group="other"))
        full = await stage.control.ask("POST", "/faults", spec)
        assert (full.status, full.body["type"]) == (429, "urn:kohort:problem:too-many")
        assert await committed(client, 1) == 0
        first = next(iter(stage.kit.all_faults))
        await stage.control.take("DELETE", f"/faults/{first}")
        assert (await stage.control.ask("POST", "/faults", spec)).status == 201
        assert (await stage.control.ask("GET", f"/faults/{first}")).status == 404
        assert len((await stage.control.take("GET", "/faults"))["faults"]) == FAULTS_MAX

    play(story)


def test_holds_are_bounded() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(HOLDS_MAX):
            stage.kit.add_hold(HoldSpec(api="Produce"))
        assert (await stage.control.ask("POST", "/holds", {"api": "Produce"})).status == 429

    play(story)


def test_a_handle_of_another_run_is_told_as_such() -> None:
    async def story(stage: Stage) -> None:
        for path in ("/faults/fault-1-abcdef", "/holds/hold-1-abcdef"):
            answer = await stage.control.ask("GET", path)
            assert answer.status == 404
            assert "it belongs to another run of the broker" in answer.body["detail"]

    play(story)


def test_a_wait_ends_when_its_client_goes() -> None:
    async def story(stage: Stage) -> None:
        fault = await stage.control.fault(**FAULT)
        _, writer = await asyncio.open_connection("127.0.0.1", stage.control.port)
        writer.write(f"GET /faults/{fault}?wait=1&timeout=600 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while not stage.kit.faults_changed._waiting:
            await asyncio.sleep(0)
        writer.close()
        while stage.kit.faults_changed._waiting:
            await asyncio.sleep(0)

    play(story)


def test_a_connection_takes_several_requests() -> None:
    async def story(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.control.port)
        one = b"GET /faults HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(one + one)
        await reader.readuntil(b'{"faults":[]}')
        await reader.readuntil(b'{"faults":[]}')
        writer.write(one)
        await reader.readuntil(b'{"faults":[]}')
        writer.close()

    play(story)


def test_two_tests_share_a_broker() -> None:
    """Each sees the faults of its own client only, and ends what it made."""

    async def story(stage: Stage) -> None:
        client = await stage.connect()
        await with_topic(client)

        async def one(name: str) -> None:
            for _ in range(20):
                fault = await stage.control.fault(**FAULT, group=name, scope=name, always=True)
                assert await stage.control.hits(fault) == 0
                assert fault in (await stage.control.take("DELETE", f"/scopes/{name}"))["faults"]

        await asyncio.gather(one("a"), one("b"))
        assert await committed(client, 1) == 0
        assert all(each.is_removed for each in stage.kit.all_faults.values())

    play(story)
