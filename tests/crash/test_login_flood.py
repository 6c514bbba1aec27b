"""
A flood of frames before the authentication against a served broker, with TLS and with SASL, and a client beside it.

`tests/server/listeners/test_hostile_logins.py` has the bounds one by one.
"""

import asyncio
import random
import sys
from pathlib import Path

from kohort.broker.cluster import Endpoint
from kohort.model.limits import PENDING_BYTES_MAX
from kohort.testing.ports import free_ports
from kohort.testing.served import ServedKohort
from kohort_lab.fuzz import run
from kohort_lab.fuzz.turns import read_longest
from tests.conftest import LONG
from tests.security.certificates import Authority, key_store
from tests.server.clients import Client
from tests.server.listeners.test_hostile_logins import BYTES_OF_CONNECTION_MAX, attack, frames
from tests.server.listeners.test_sasl import PLAIN, authenticate, is_served

FRAMES = 100_000 if LONG else 3_000
AT_ONCE = 100
TURN_SECONDS_MAX = 0.02 if LONG else run.TURN_SECONDS_MAX
"""
The most processor time of the event loop that a request of another client may wait. In the short version most of the longest
turn is the first use of code, which takes machines very different times.
"""
MEMORY_MAX = PENDING_BYTES_MAX + AT_ONCE * BYTES_OF_CONNECTION_MAX + 16 * 1024 * 1024
"""By how much the broker may grow: what unauthenticated connections hold, and the code and the threads of their first ones."""


def test_a_flood_before_the_authentication_holds_up_nobody(tmp_path: Path) -> None:
    ports = free_ports(2)
    sasl, tls = (Endpoint("127.0.0.1", port) for port in ports)
    stores = key_store(Authority().store(tmp_path / "store.pem"))
    properties = PLAIN | {f"listener.name.ssl.{key}": text for key, text in stores.items()}
    properties["listeners"] = f"SASL_PLAINTEXT://127.0.0.1:{sasl.port},SSL://127.0.0.1:{tls.port}"
    turns = tmp_path / "turns"
    command = (sys.executable, "-m", "kohort_lab.fuzz.turns", str(turns))

    async def flood(chance: random.Random) -> None:
        client = Client(*await asyncio.open_connection(*sasl))
        assert (await authenticate(client)).error_code == 0
        sent = 0
        while sent < FRAMES:
            attacks = [attack(chance.choice((sasl, tls)), frames(chance)) for _ in range(AT_ONCE)]
            await asyncio.gather(*attacks)
            sent += AT_ONCE
            assert await is_served(client)
        client.writer.close()

    with ServedKohort(tmp_path / "broker", properties, command=command) as broker:
        before = broker.peak_bytes
        asyncio.run(flood(random.Random(str(tmp_path))))
        after, longest = broker.peak_bytes, read_longest(turns)
    assert before is None or after is None or after - before < MEMORY_MAX
    assert longest is not None
    assert longest < TURN_SECONDS_MAX
