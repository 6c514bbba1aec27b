"""
Many quick rounds of SIGKILL while a broker produces, commits, rolls segments, checkpoints and cleans.

Segments, indexes and intervals are so small that all of it happens several times a second, so a kill meets each of them. A life
is a data directory; each has its rounds, and several may be run at once: `make crash ROUNDS=1000`.
"""

import os
from pathlib import Path
from random import Random

import pytest

from kohort.broker.configs.definitions import BROKER_KEYS
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.conftest import LONG
from tests.crash.connection import Connection
from tests.crash.writers import RETENTION, TOPIC, TOPIC_PARTITIONS, Ledger, Writers, await_coordinators, check

ROUNDS = int(os.environ.get("KOHORT_CRASH_ROUNDS", "200" if LONG else "4"))
ROUNDS_PER_LIFE = 25
ACKNOWLEDGEMENTS = (1, 400)
"""The kill comes somewhere in between."""
SETTINGS = {
    "log.index.interval.bytes": "300",
    "log.index.size.max.bytes": "48",
    "offsets.topic.num.partitions": "3",
    "log.flush.offset.checkpoint.interval.ms": "40",
    "log.cleaner.backoff.ms": "20",
}

pytestmark = pytest.mark.timeout(7_200 if LONG or ROUNDS > ROUNDS_PER_LIFE else 900)


@pytest.mark.parametrize("life", range(-(-ROUNDS // ROUNDS_PER_LIFE)))
def test_a_life_of_kills(base: Path, life: int, rng: Random) -> None:
    ledger = Ledger()
    settings = {key: value for key, value in SETTINGS.items() if BROKER_KEYS[key].has_effect}
    flush = "os" if life % 4 == 3 else "commit"
    with ServedKohort(base, {**RETENTION, **settings}, flush=flush) as broker:
        create_topic(broker)
        await_coordinators(broker)
        for number in range(min(ROUNDS - life * ROUNDS_PER_LIFE, ROUNDS_PER_LIFE)):
            # The first round is long enough to roll segments.
            acknowledgements = rng.randint(*ACKNOWLEDGEMENTS) if number else ACKNOWLEDGEMENTS[1]
            Writers(ledger, broker.port, acknowledgements=acknowledgements).run_until_killed(broker)
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)
        broker.stop()
    assert len(list((base / "data").glob(f"{TOPIC}-*/*.log"))) > TOPIC_PARTITIONS, "segments were rolled"


def create_topic(broker: ServedKohort) -> None:
    topic = messages.CreateTopicsRequestCreatableTopic(
        name=TOPIC, num_partitions=TOPIC_PARTITIONS, replication_factor=1
    )
    with Connection(broker.port) as connection:
        request = messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        assert connection.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0
