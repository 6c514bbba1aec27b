"""Requests of a login: what the testing kit has of them, and what still ends them. `test_effects.py` tries each effect."""

import asyncio
import struct
from contextlib import suppress
from typing import Any

import pytest

from kohort.control.requests.faults import FaultSpec
from kohort.control.requests.filters import Filter
from kohort.control.requests.holds import HoldSpec
from kohort.model.errors import ErrorCode
from kohort.model.limits import HELD_LOGIN_BYTES_MAX
from kohort.server.listeners.pending import PendingConnections
from kohort.server.listeners.sasl_connection import SaslConnection
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from tests.control.controlled import Stage, play
from tests.control.test_effects import HANDSHAKE, LOGINS, SESSIONS, TOKEN, VERSIONS
from tests.security.sasl.exchanges import Users
from tests.server.clients import Client
from tests.server.listeners.test_sasl import login_between_requests

METADATA = m.MetadataRequest(topics=())
ALICE = "User:alice"


async def shaken(stage: Stage) -> Client:
    client = await stage.connect()
    assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
    return client


async def logged_in(stage: Stage) -> Client:
    client = await shaken(stage)
    assert (await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)).error_code == 0
    return client


@pytest.mark.parametrize("configs", [LOGINS, SESSIONS], ids=["login", "session"])
@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_a_refused_login_has_not_happened_and_its_connection_ends(api: ApiKey, configs: dict[str, str]) -> None:
    async def story(stage: Stage) -> None:
        is_again = configs is SESSIONS
        client = await logged_in(stage) if is_again else await stage.connect()
        before = stage.node._logins.successes
        fault = stage.kit.add_fault(FaultSpec(api=api.api_name, error="SASL_AUTHENTICATION_FAILED", message="changed"))
        answer = await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        if api is ApiKey.SASL_AUTHENTICATE:
            assert answer.error_code == 0
            answer = await client.ask(api, 2, TOKEN)
            assert answer.error_message == "changed"
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()
        logins = stage.node._logins
        assert (fault.hits, logins.successes) == (1, before)
        assert (logins.failures, logins.repeated_failures) == ((0, 1) if is_again else (1, 0))

    play(story, configs=configs)


def test_versions_that_are_refused_may_be_asked_again() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.connect()
        stage.kit.add_fault(FaultSpec(api="ApiVersions", error="UNSUPPORTED_VERSION"))
        assert (await client.ask(ApiKey.API_VERSIONS, 3, VERSIONS)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.ask(ApiKey.API_VERSIONS, 3, VERSIONS)).error_code == 0
        assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
        assert stage.node.dispatches[1].routes[ApiKey.API_VERSIONS, 3].requests == 1

    play(story, configs=LOGINS)


def test_a_login_whose_answer_is_wrong_has_happened() -> None:
    async def story(stage: Stage) -> None:
        client = await shaken(stage)
        stage.kit.add_fault(FaultSpec(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED", after=True))
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (await client.ask(ApiKey.METADATA, 12, METADATA)).brokers
        assert stage.node._logins.successes == 1

    play(story, configs=LOGINS)


def test_a_wrong_password_is_answered_as_without_the_kit() -> None:
    async def story(stage: Stage) -> None:
        stage.kit.keep_journal(is_on=True)
        client = await shaken(stage)
        wrong = m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0guessed")
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, wrong)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await client.is_closed()
        assert stage.node._logins.failures == 1
        _, entry = stage.kit.journal.matching(Filter())
        assert (entry.outcome, entry.errors) == ("answered", ["SASL_AUTHENTICATION_FAILED"])

    play(story, configs=LOGINS | {"connection.failed.authentication.delay.ms": "1"})


def test_a_request_before_the_login_has_no_user() -> None:
    async def story(stage: Stage) -> None:
        faults = [
            stage.kit.add_fault(FaultSpec(api="SaslAuthenticate", principal=each, observe=True))
            for each in (ALICE, "User:ANONYMOUS")
        ]
        client = await logged_in(stage)
        assert [each.hits for each in faults] == [0, 0]
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        assert [each.hits for each in faults] == [1, 0]

    play(story, configs=SESSIONS)


def test_the_journal_has_the_login_without_its_secrets() -> None:
    async def story(stage: Stage) -> None:
        stage.kit.keep_journal(is_on=True)
        client = await stage.connect()
        await client.ask(ApiKey.API_VERSIONS, 3, VERSIONS)
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        await client.ask(ApiKey.METADATA, 12, METADATA)
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        entries = list(stage.kit.journal.matching(Filter()))
        assert [(each.api, each.principal, each.outcome) for each in entries] == [
            ("ApiVersions", "", "answered"),
            ("SaslHandshake", "", "answered"),
            ("SaslAuthenticate", "", "answered"),
            ("Metadata", ALICE, "answered"),
            ("SaslHandshake", ALICE, "answered"),
            ("SaslAuthenticate", ALICE, "answered"),
        ]
        port = client.writer.get_extra_info("sockname")[1]
        assert {(each.connection, each.client_id, each.listener) for each in entries} == {
            (f"127.0.0.1:{port}", "test", "SASL_PLAINTEXT")
        }
        assert not any(b"alice-secret" in bytes(each.request) for each in entries)

    play(story, configs=SESSIONS)


@pytest.mark.parametrize("at", ["request", "reply"])
@pytest.mark.parametrize("api", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_requests_behind_a_held_one_keep_their_order(api: ApiKey, at: Any) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_in(stage)
        hold = stage.kit.add_hold(HoldSpec(api=api.api_name, at=at))
        client.writer.write(login_between_requests(3))
        while not hold.waiting:
            await asyncio.sleep(0)
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 3
        stage.kit.release(hold)
        assert (await client.receive(ApiKey.SASL_HANDSHAKE, 1))[1].error_code == 0
        assert (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))[1].error_code == 0
        assert (await client.receive(ApiKey.METADATA, 12))[0] == 6

    play(story, configs=SESSIONS)


def test_a_clock_that_goes_back_while_a_session_is_authenticated_again_ends_it() -> None:
    """The handshake began a re-authentication when it came, and would come too early a moment later."""

    async def story(stage: Stage) -> None:
        logins = stage.node._logins
        client = await logged_in(stage)
        assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
        assert (await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)).error_code == 0
        now_ms = logins.now_ms()
        times = [now_ms + 10_000, now_ms]
        logins.now_ms = lambda: times.pop(0) if len(times) > 1 else times[0]
        client.send(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        assert await client.is_closed()

    play(story, configs=SESSIONS)


def test_a_login_on_another_thread_is_held_too() -> None:
    """SCRAM derives the credential of a password there."""

    async def story(stage: Stage) -> None:
        stage.node._logins.scram_users._credentials = Users({}, {("alice", "SCRAM-SHA-256"): "a password"})
        hold = stage.kit.add_hold(HoldSpec(api="SaslAuthenticate", at="reply"))
        client = await stage.connect()
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        client.send(ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"))
        while not hold.waiting:
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.frame()
        stage.kit.release(hold)
        answer = (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))[1]
        assert answer.auth_bytes.startswith(b"r=nonce")

    play(story, configs=LOGINS | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})


def test_bare_tokens_meet_no_fault() -> None:
    """After a handshake of version 0 a token has no header, and is no request."""

    async def story(stage: Stage) -> None:
        fault = stage.kit.add_fault(FaultSpec(disconnect="before", api=["SaslAuthenticate", "ApiVersions"]))
        client = await stage.connect()
        await client.ask(ApiKey.SASL_HANDSHAKE, 0, HANDSHAKE)
        client.writer.write(struct.pack(">i", len(TOKEN.auth_bytes)) + TOKEN.auth_bytes)
        assert await client.frame() == b""
        assert (await client.ask(ApiKey.METADATA, 12, METADATA)).brokers
        other = await stage.connect()
        await other.ask(ApiKey.SASL_HANDSHAKE, 0, HANDSHAKE)
        other.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        assert await other.is_closed()
        assert fault.hits == 0

    play(story, configs=LOGINS)


@pytest.mark.parametrize("effect", [{"silence": True}, {"black_hole": True}, {"delay": 3_600.0}])
def test_the_bounds_of_unfinished_logins_hold(effect: dict[str, Any]) -> None:
    async def story(stage: Stage) -> None:
        stage.kit.add_fault(FaultSpec(api="SaslAuthenticate", always=not effect.get("black_hole"), **effect))
        stage.node._logins.pending = PendingConnections(count_max=1)
        first = await shaken(stage)
        first.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        second = await shaken(stage)
        assert await first.is_closed()
        second.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        second.writer.write(b"x" * (HELD_LOGIN_BYTES_MAX + 1_024))
        with suppress(ConnectionResetError):
            assert await second.is_closed()
        assert stage.node._logins.failures == 1
        third = await shaken(stage)
        third.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        assert await third.is_closed()
        assert not stage.kit._silent

    play(story, configs=LOGINS | {"connections.max.idle.ms": "200"})


def test_the_end_of_a_client_ends_what_is_held_of_it() -> None:
    async def story(stage: Stage) -> None:
        client = await shaken(stage)
        hold = stage.kit.add_hold(HoldSpec(api="SaslAuthenticate"))
        stage.kit.add_fault(FaultSpec(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED"))
        client.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        while not hold.waiting:
            await asyncio.sleep(0)
        client.writer.close()
        while stage.node._connections.open:
            await asyncio.sleep(0)
        stage.kit.release(hold)
        logins = stage.node._logins
        assert (logins.successes, logins.failures, len(logins.pending)) == (0, 0, 0)

    play(story, configs=LOGINS)


def test_a_throttled_login_is_read_again_after_the_time() -> None:
    async def story(stage: Stage) -> None:
        connections = stage.node._connections
        ends: list[Any] = []

        def call_later(_seconds: float, end: Any) -> asyncio.TimerHandle:
            ends.append(end)
            return asyncio.get_running_loop().call_later(3_600, end)

        connections.call_later = call_later
        stage.kit.add_fault(FaultSpec(api="SaslHandshake", throttle=3_600.0))
        client = await shaken(stage)
        (connection,) = connections.open
        assert isinstance(connection, SaslConnection)
        connection.data_received(request_encoder(ApiKey.SASL_AUTHENTICATE, 2)(2, "test", TOKEN))
        assert stage.node._logins.successes == 0
        (end,) = ends
        end()
        assert (await client.receive(ApiKey.SASL_AUTHENTICATE, 2))[1].error_code == 0

    play(story, configs=LOGINS)


def test_a_throttled_login_is_no_longer_counted_after_its_end() -> None:
    async def story(stage: Stage) -> None:
        stage.kit.add_fault(FaultSpec(api="SaslHandshake", throttle=3_600.0))
        client = await shaken(stage)
        connections = stage.node._connections
        assert connections.throttled == 1
        client.writer.write(b"x" * 2)
        client.writer.transport.abort()
        connection = next(iter(connections.open))
        connection.abort()
        while connections.throttled:
            await asyncio.sleep(0)

    play(story, configs=LOGINS)


def test_frames_that_are_no_requests_of_a_login_are_refused_as_without_the_kit() -> None:
    async def story(stage: Stage) -> None:
        stage.kit.keep_journal(is_on=True)
        fault = stage.kit.add_fault(FaultSpec(observe=True, api=["Metadata", "SaslHandshake"]))
        client = await stage.connect()
        client.send(ApiKey.METADATA, 12, METADATA)
        assert await client.is_closed()
        client = await stage.connect()
        client.send(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)
        assert await client.is_closed()
        (entry,) = stage.kit.journal.matching(Filter())
        assert (entry.api, entry.outcome) == ("SaslAuthenticate", "closed")
        frames = (
            b"",
            b"\0\x12",
            b"\0\x11\0\x01\0\0\0\1",
            b"\0\x11\0\x09\0\0\0\1\xff\xff",
            b"\0\x03\0\0\0\0\0\1\xff\xff",
        )
        for frame in frames:
            client = await stage.connect()
            client.writer.write(struct.pack(">i", len(frame)) + frame)
            assert await client.is_closed()
        assert (fault.hits, stage.node._logins.failures) == (0, 2 + len(frames))
        newer = await stage.connect()
        newer.writer.write(struct.pack(">ihhi", 11, 18, 99, 7) + b"\xff\xff\0")
        assert (await newer.receive(ApiKey.API_VERSIONS, 0))[1].error_code == ErrorCode.UNSUPPORTED_VERSION

    play(story, configs=LOGINS)
