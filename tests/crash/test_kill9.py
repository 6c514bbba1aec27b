"""
What a broker has acknowledged it keeps, though it be killed at any moment.

Writers commit offsets and produce with acks=all, some with several requests in flight, until the broker dies of SIGKILL. It
is started again on what it left behind, and asked.
"""

import random
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.crash.broker import Broker
from tests.crash.writers import Ledger, Writers, await_coordinators, check, create_topic

ROUNDS = 100 if LONG else 3
ACKNOWLEDGEMENTS = (50, 2_500)
"""The kill comes somewhere in between."""
START_SECONDS = (0.02, 0.6)
"""A killed start lives so long: from before the first line of ours to after the end of recovery."""

pytestmark = pytest.mark.timeout(3_600 if LONG else 900)


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_acknowledged_commits_and_records_survive_sigkill(tmp_path: Path, flush: str) -> None:
    chance = random.Random(f"kill9 {flush}")
    ledger = Ledger()
    with Broker(tmp_path / "data", flush=flush) as broker:
        broker.start()
        create_topic(broker)
        for _ in range(ROUNDS):
            await_coordinators(broker)
            Writers(ledger, broker.port, acknowledgements=chance.randint(*ACKNOWLEDGEMENTS)).run_until_killed(broker)
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_broker_that_is_killed_twice_while_it_recovers_keeps_everything(tmp_path: Path, flush: str) -> None:
    chance = random.Random(f"recovery {flush}")
    ledger = Ledger()
    with Broker(tmp_path / "data", flush=flush) as broker:
        broker.start()
        create_topic(broker)
        for _ in range(max(ROUNDS // 4, 2)):
            await_coordinators(broker)
            Writers(ledger, broker.port, acknowledgements=chance.randint(*ACKNOWLEDGEMENTS)).run_until_killed(broker)
            for _ in range(2):
                broker.spawn()
                assert broker.lives_for(chance.uniform(*START_SECONDS)), broker.told()
                broker.kill()
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)


def test_a_broker_that_is_stopped_after_a_crash_keeps_everything_too(tmp_path: Path) -> None:
    ledger = Ledger()
    with Broker(tmp_path / "data", flush="commit") as broker:
        broker.start()
        create_topic(broker)
        await_coordinators(broker)
        Writers(ledger, broker.port, acknowledgements=500).run_until_killed(broker)
        for _ in range(2):
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)
            assert broker.stop() == 0
        assert not [path for path in (tmp_path / "data" / "journal").glob("*") if path.stat().st_size]
