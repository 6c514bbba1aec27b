"""Random access rules and random requests: a live Apache Kafka and Kohort decide alike, and blank the same fields."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from kohort.testing.kafka import UnavailableKafkaError
from tests.broker.access.beside_kafka import KafkaSide, KohortSide, codes
from tests.broker.access.matrix import different
from tests.broker.access.random_requests import acls, request
from tests.conftest import LONG, NIGHTLY

pytestmark = NIGHTLY

SETS = 600 if LONG else 50
"""Sets of rules."""
REQUESTS = 40
"""Requests with each of them: 24 000 in the long run."""


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSide]:
    try:
        side = KafkaSide(tmp_path_factory.mktemp("kafka"))
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    yield side
    side.stop()


def test_random_decisions_are_those_of_kafka(kafka: KafkaSide, rng: Random) -> None:
    kohort = KohortSide()
    found: Counter[int] = Counter()
    for _ in range(SETS):
        rules = acls(rng)
        kafka.use(rules)
        kohort.use(rules)
        for _ in range(REQUESTS):
            asked = request(rng)
            theirs, ours = kafka.answer(asked), kohort.answer(asked)
            found.update(codes(theirs))
            difference = None if theirs == ours else different(theirs, ours, {}, "")
            assert difference is None, f"{asked} with {rules}: {difference}\nKafka: {theirs}\nKohort: {ours}"
    assert {0, 29, 30, 31, 53} <= found.keys(), "nothing was decided"
