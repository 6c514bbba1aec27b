"""
What a broker has acknowledged it keeps, though it be killed at any moment.

Writers commit offsets and produce with acks=all, some with several requests in flight, until the broker dies of SIGKILL. It
is started again on what it left behind, and asked.
"""

from pathlib import Path
from random import Random

import pytest

from kohort.testing.served import ServedKohort
from tests.conftest import LONG
from tests.crash.writers import RETENTION, Ledger, Writers, await_coordinators, check, create_topic

ROUNDS = 100 if LONG else 3
ACKNOWLEDGEMENTS = (50, 2_500)
"""The kill comes somewhere in between."""
START_SECONDS = (0.02, 0.6)
"""A killed start lives so long: from before the first line of ours to after the end of recovery."""

pytestmark = pytest.mark.timeout(3_600 if LONG else 900)


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_acknowledged_commits_and_records_survive_sigkill(tmp_path: Path, flush: str, rng: Random) -> None:
    ledger = Ledger()
    with ServedKohort(tmp_path, RETENTION, flush=flush) as broker:
        create_topic(broker)
        for _ in range(ROUNDS):
            await_coordinators(broker)
            Writers(ledger, broker.port, acknowledgements=rng.randint(*ACKNOWLEDGEMENTS)).run_until_killed(broker)
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_a_broker_that_is_killed_twice_while_it_recovers_keeps_everything(
    tmp_path: Path, flush: str, rng: Random
) -> None:
    ledger = Ledger()
    with ServedKohort(tmp_path, RETENTION, flush=flush) as broker:
        create_topic(broker)
        for _ in range(max(ROUNDS // 4, 2)):
            await_coordinators(broker)
            Writers(ledger, broker.port, acknowledgements=rng.randint(*ACKNOWLEDGEMENTS)).run_until_killed(broker)
            for _ in range(2):
                broker.spawn()
                assert broker.lives_for(rng.uniform(*START_SECONDS)), broker.log_tail()
                broker.kill()
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)


def test_a_broker_that_is_stopped_after_a_crash_keeps_everything_too(tmp_path: Path) -> None:
    ledger = Ledger()
    with ServedKohort(tmp_path, RETENTION, flush="commit") as broker:
        create_topic(broker)
        await_coordinators(broker)
        Writers(ledger, broker.port, acknowledgements=500).run_until_killed(broker)
        for _ in range(2):
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)
            broker.stop()
        assert not [path for path in (tmp_path / "data" / "journal").glob("*") if path.stat().st_size]
