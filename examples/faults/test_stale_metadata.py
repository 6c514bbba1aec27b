"""
A record is lost while a partition moves to another leader.

The producer still sends to the old leader, which refuses. It asks for the new leader and sends again, if the record has time
for that. With a short `message.timeout.ms`, and without a look at the delivery reports, the record is lost without a word.
"""

import pytest
from faults.clients import BUG, SECONDS_MAX, producer

from kohort.testing import Scope


def publish(bootstrap: str, topic: str, **settings: object) -> None:
    sender = producer(bootstrap, **settings)
    sender.produce(topic, "order 1")
    sender.flush(SECONDS_MAX)


PATIENT: dict[str, object] = {}
HASTY: dict[str, object] = {"message_timeout_ms": 50}


@pytest.mark.parametrize("settings", [PATIENT, pytest.param(HASTY, marks=BUG)], ids=["patient", "hasty"])
def test_an_order_survives_a_new_leader(kohort: Scope, settings: dict[str, object]) -> None:
    topic = kohort.topic("orders")
    refusal = kohort.fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    publish(kohort.bootstrap, topic, **settings)
    assert refusal.hits > 0
    assert kohort.values(topic, committed=True) == ["order 1"]
