"""Black holes: what a client hears that has asked before."""

import asyncio
from typing import Any

from kohort.model.limits import MUTED_BYTES_MAX
from kohort.server.connections.muted import Muted
from kohort.wire.apis import ApiKey
from tests.control.controlled import Stage, play
from tests.control.test_events import produced
from tests.control.test_points import fetch, records
from tests.control.test_states import begun
from tests.server.clients import Client


def address(client: Client) -> str:
    return "{}:{}".format(*client.writer.get_extra_info("sockname"))


async def hears_nothing(stage: Stage, client: Client) -> None:
    """The answer of the control port comes after what the brokers have sent."""
    await stage.control.take("GET", "/faults")
    assert not client.reader._buffer  # type: ignore[attr-defined]


async def waiting(stage: Stage, client: Client) -> None:
    client.send(ApiKey.FETCH, 11, fetch(60_000))
    while not stage.node.broker.fetches.delayed:
        await asyncio.sleep(0)


def test_a_client_hears_no_answer_to_what_it_has_asked_before() -> None:
    async def story(stage: Stage) -> None:
        other, client = await begun(stage), await stage.connect()
        await waiting(stage, client)
        assert await produced(other, 1) == 0
        hole = await stage.control.fault(black_hole=True, connection=address(client))
        assert not stage.node.broker.fetches.delayed
        client.send(ApiKey.FETCH, 11, fetch(0))
        await stage.control.take("GET", f"/faults/{hole}?wait=1&timeout=5")
        await hears_nothing(stage, client)
        assert await produced(other) == 0
        await stage.control.take("DELETE", f"/faults/{hole}")
        assert records((await client.receive(ApiKey.FETCH, 11))[1]) == {0: 0}
        assert records((await client.receive(ApiKey.FETCH, 11))[1])[0] > 0

    play(story)


def test_a_connection_hears_when_the_last_black_hole_is_gone() -> None:
    async def story(stage: Stage) -> None:
        other, client = await begun(stage), await stage.connect()
        await waiting(stage, client)
        holes = [await stage.control.fault(black_hole=True, connection=address(client)) for _ in range(2)]
        await stage.control.take("DELETE", f"/faults/{holes[0]}")
        assert await produced(other) == 0
        await hears_nothing(stage, client)
        await stage.control.take("DELETE", f"/faults/{holes[1]}")
        await client.receive(ApiKey.FETCH, 11)

    play(story)


def test_other_clients_and_faults_about_contents_are_as_before() -> None:
    async def story(stage: Stage) -> None:
        await begun(stage)
        client = await stage.connect()
        for spec in ({"connection": "127.0.0.1:1"}, {"topic": "t"}, {"api": "Produce"}, {"times": 1}):
            await waiting(stage, client)
            hole = await stage.control.fault(**{"connection": address(client), "black_hole": True, **spec})
            await client.receive(ApiKey.FETCH, 11)
            await stage.control.take("DELETE", f"/faults/{hole}")

    play(story)


class Kept(asyncio.Transport):
    """The socket."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: Any) -> None:
        raise AssertionError(data)


def test_a_connection_with_too_many_answers_is_aborted() -> None:
    socket = Kept()
    muted = Muted(socket)
    muted.write(b"x" * MUTED_BYTES_MAX)
    was_aborted = socket.is_aborted
    muted.write(b"x")
    assert (was_aborted, socket.is_aborted) == (False, True)
    assert muted.release() is socket
