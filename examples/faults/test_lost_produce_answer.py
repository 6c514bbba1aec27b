"""
Duplicates after a lost answer of Produce.

The broker has written the batch, and its answer is lost. The producer cannot know that and sends the batch again. An
idempotent producer numbers its batches, so that the broker recognises the second one; any other producer writes the records
twice.
"""

import pytest
from faults.clients import BUG, SECONDS_MAX, producer

from kohort.testing import Scope


def publish(bootstrap: str, topic: str, *, is_idempotent: bool) -> None:
    sender = producer(bootstrap, enable_idempotence=is_idempotent)
    sender.produce(topic, "order 1")
    assert sender.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize("is_idempotent", [True, pytest.param(False, marks=BUG)])
def test_an_order_is_written_once(kohort: Scope, *, is_idempotent: bool) -> None:
    topic = kohort.topic("orders")
    lost = kohort.fault(api="Produce", topic=topic, disconnect="after")
    publish(kohort.bootstrap, topic, is_idempotent=is_idempotent)
    assert lost.hits == 1
    assert kohort.values(topic, committed=True) == ["order 1"]
