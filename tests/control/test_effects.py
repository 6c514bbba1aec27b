"""
Each effect on each API that a broker serves, over raw frames.

The requests of a login meet each effect before the login, and in a session whose user is authenticated again.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import msgspec
import pytest

from kohort.control.requests.answers import values_of
from kohort.control.requests.faults import Fault, FaultSpec
from kohort.control.requests.filters import Filter
from kohort.control.requests.holds import HoldSpec
from kohort.model.errors import ErrorCode
from kohort.server.requests.places import CODES
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.control.samples import sample
from tests.server.clients import Client, with_topic

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
"""A code that no handler answers by itself to the samples."""
VERSIONS = m.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
HANDSHAKE = m.SaslHandshakeRequest(mechanism="PLAIN")
TOKEN = m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
LOGINS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    ),
}
SESSIONS = LOGINS | {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "600000"}


def codes(values: Any) -> Iterator[int]:
    if isinstance(values, dict):
        for name, value in values.items():
            if name in CODES:
                yield value
            else:
                yield from codes(value)
    elif isinstance(values, list):
        for each in values:
            yield from codes(each)


class Bench:
    """Asks one request of every API, each time with one fault."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def prepare(self) -> None:
        await with_topic(await self.stage.connect())

    @property
    def topic_id(self) -> UUID:
        topic = self.stage.node.broker.catalog.topic("t")
        assert topic is not None
        return topic.topic_id

    def requests(self) -> Iterator[tuple[ApiKey, int, Any]]:
        for api, (oldest, newest) in self.stage.node.broker.versions.items():
            for version in sorted({oldest, newest}):
                yield api, version, sample(api, version, self.topic_id)

    async def client(self, _api: ApiKey) -> Client:
        """A client that has asked what comes before a request."""
        return await self.stage.connect()

    async def go_on(self, client: Client, _api: ApiKey, _version: int) -> None:
        """Ask what follows a request: its connection is in order."""
        await client.ask(ApiKey.API_VERSIONS, 0, sample(ApiKey.API_VERSIONS, 0, self.topic_id))

    def fault(self, api: ApiKey, **spec: Any) -> Fault:
        return self.stage.kit.add_fault(FaultSpec(api=api.api_name, **spec))

    def remove(self, fault: Fault) -> None:
        self.stage.kit.remove_fault(fault.id)


class LoginBench(Bench):
    """Asks the requests of a login."""

    async def prepare(self) -> None:
        pass

    def requests(self) -> Iterator[tuple[ApiKey, int, Any]]:
        yield ApiKey.API_VERSIONS, 0, VERSIONS
        yield ApiKey.API_VERSIONS, 4, VERSIONS
        for version in range(2):
            yield ApiKey.SASL_HANDSHAKE, version, HANDSHAKE
        for version in range(3):
            yield ApiKey.SASL_AUTHENTICATE, version, TOKEN

    async def client(self, api: ApiKey) -> Client:
        client = await self.stage.connect()
        if api is ApiKey.SASL_AUTHENTICATE:
            await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)
        return client

    async def go_on(self, client: Client, api: ApiKey, version: int) -> None:
        if api is ApiKey.API_VERSIONS:
            assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
        if api is ApiKey.SASL_HANDSHAKE and version == 0:
            token = TOKEN.auth_bytes
            client.writer.write(len(token).to_bytes(4, "big") + token)
            assert await client.frame() == b""
        elif api is not ApiKey.SASL_AUTHENTICATE:
            assert (await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)).error_code == 0
        assert (await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=()))).brokers


class SessionBench(LoginBench):
    """Asks the requests of a login on connections whose users are authenticated."""

    def requests(self) -> Iterator[tuple[ApiKey, int, Any]]:
        return (each for each in super().requests() if each[0] is not ApiKey.API_VERSIONS)

    async def client(self, api: ApiKey) -> Client:
        client = await super().client(ApiKey.SASL_AUTHENTICATE)
        assert (await client.ask(ApiKey.SASL_AUTHENTICATE, 2, TOKEN)).session_lifetime_ms
        if api is ApiKey.SASL_AUTHENTICATE:
            assert (await client.ask(ApiKey.SASL_HANDSHAKE, 1, HANDSHAKE)).error_code == 0
        return client


def on_each(story: Any) -> None:
    """Run a story with every API at its oldest and its newest version, also where the API is part of a login."""
    for bench_class, configs in ((Bench, {}), (LoginBench, LOGINS), (SessionBench, SESSIONS)):
        _on_each(story, bench_class, configs)


def _on_each(story: Any, bench_class: type[Bench], configs: Mapping[str, str]) -> None:
    async def all_of_them(stage: Stage) -> None:
        bench = bench_class(stage)
        await bench.prepare()
        failed = []
        for api, version, request in bench.requests():
            client = await bench.client(api)
            try:
                async with asyncio.timeout(5):
                    await story(bench, client, api, version, request)
            except Exception as error:  # noqa: BLE001 -- all APIs are tried, and each failure is told
                failed.append(f"{bench_class.__name__} {api.api_name} {version}: {type(error).__name__} {error}")
            client.writer.close()
        assert not failed, "\n".join(failed)

    play(all_of_them, configs=configs)


@pytest.mark.parametrize("is_after", [False, True])
def test_error(is_after: bool) -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        fault = bench.fault(api, error=CODE.name, after=is_after)
        answer = values_of(f"{api.api_name}Response", version, await client.ask(api, version, request))
        assert CODE in set(codes(answer)), answer
        assert fault.hits == 1

    on_each(story)


def test_observe() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        fault = bench.fault(api, observe=True)
        await client.ask(api, version, request)
        assert (fault.calls, fault.hits) == (1, 1)
        bench.remove(fault)
        await bench.go_on(client, api, version)

    on_each(story)


@pytest.mark.parametrize("is_after", [False, True])
def test_delay(is_after: bool) -> None:
    """A reply that comes later is one that comes in a later turn; the test counts turns, not time."""

    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        later: list[Any] = []
        bench.stage.kit.call_later = lambda seconds, go: later.append((seconds, go))
        bench.fault(api, delay=7, after=is_after)
        client.send(api, version, request)
        while not later:
            await asyncio.sleep(0)
        ((seconds, go),) = later
        assert seconds == 7
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.frame()
        go()
        await client.receive(api, version)
        await bench.go_on(client, api, version)

    on_each(story)


@pytest.mark.parametrize("is_after", [False, True])
def test_silence(is_after: bool) -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        fault = bench.fault(api, silence=True, after=is_after)
        client.send(api, version, request)
        while not (fault.hits and bench.stage.kit._silent):
            await asyncio.sleep(0)
        client.writer.close()
        while bench.stage.kit._silent:
            await asyncio.sleep(0)
        bench.remove(fault)

    on_each(story)


@pytest.mark.parametrize("when", ["before", "after"])
def test_disconnect(when: str) -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        fault = bench.fault(api, disconnect=when)
        client.send(api, version, request)
        assert await client.is_closed()
        assert fault.hits == 1

    on_each(story)


def test_truncate() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        bench.fault(api, truncate=6)
        client.send(api, version, request)
        assert len(await client.reader.read()) == 6

    on_each(story)


def test_slow() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        pieces = 0

        def later(_seconds: float, go: Any) -> None:
            nonlocal pieces
            pieces += 1
            asyncio.get_running_loop().call_soon(go)

        bench.stage.kit.call_later = later
        bench.fault(api, slow=200)
        answer = await client.ask(api, version, request)
        assert answer is not None
        assert pieces > 1
        await bench.go_on(client, api, version)

    on_each(story)


def test_throttle() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        asked: list[tuple[float, Any]] = []

        def call_later(seconds: float, end: Any) -> asyncio.TimerHandle:
            asked.append((seconds, end))
            return asyncio.get_running_loop().call_later(3_600, end)

        connections = bench.stage.node._connections
        connections.call_later = call_later
        bench.fault(api, throttle=0.25)
        answer = await client.ask(api, version, request)
        values = values_of(f"{api.api_name}Response", version, answer)
        assert values.get("throttle_time_ms", 250) == 250
        ((seconds, end),) = asked
        assert (seconds, connections.throttled) == (0.25, 1)
        end()
        assert connections.throttled == 0
        await bench.go_on(client, api, version)

    on_each(story)


def test_black_hole() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        fault = bench.fault(api, black_hole=True)
        client.send(api, version, request)
        while not fault.hits:
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await client.frame()
        bench.remove(fault)
        await client.receive(api, version)
        await bench.go_on(client, api, version)

    on_each(story)


def test_answer() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        bench.fault(api, answer={})
        await client.ask(api, version, request)

    on_each(story)


@pytest.mark.parametrize("at", ["request", "reply"])
def test_hold(at: str) -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        kit = bench.stage.kit
        hold = kit.add_hold(msgspec.convert({"api": api.api_name, "at": at}, HoldSpec))
        client.send(api, version, request)
        while not hold.waiting:
            await asyncio.sleep(0)
        assert hold.view().held[0].api == api.api_name
        assert kit.release(hold) == 1
        await client.receive(api, version)
        assert hold.is_ended
        await bench.go_on(client, api, version)

    on_each(story)


def test_the_journal_has_every_request_and_its_answer() -> None:
    async def story(bench: Bench, client: Client, api: ApiKey, version: int, request: Any) -> None:
        kit = bench.stage.kit
        kit.keep_journal(is_on=True)
        kit.journal.clear()
        await client.ask(api, version, request)
        (entry,) = kit.journal.matching(Filter(api=api.api_name))
        assert (entry.version, entry.outcome, entry.client_id) == (version, "answered", "test")
        assert entry.response is not None
        assert msgspec.json.decode(entry.request) == values_of(f"{api.api_name}Request", version, request)
        kit.keep_journal(is_on=False)
        await bench.go_on(client, api, version)

    on_each(story)
