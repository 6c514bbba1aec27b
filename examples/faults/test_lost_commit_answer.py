"""
The answer of a commit is lost.

The offset is committed, and the consumer hears of an error. Whoever takes the error for "not committed" and processes the
batch again charges customers twice. Ask for the committed offset instead, and go on from there.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from faults.clients import BUG, SECONDS_MAX, consumer, polled

from kohort.testing import Scope

Recover = Callable[[Consumer, str], None]


def ask_the_coordinator(reader: Consumer, topic: str) -> None:
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
    reader.seek(TopicPartition(topic, 0, max(found.offset, 0)))


def process_again(reader: Consumer, topic: str) -> None:
    """The bug: the last record, whose commit has failed, comes again."""
    (position,) = reader.position([TopicPartition(topic, 0)])
    reader.seek(TopicPartition(topic, 0, position.offset - 1))


def charge(bootstrap: str, topic: str, group: str, recover: Recover) -> list[str]:
    """Charge two orders, and return what was charged."""
    charged: list[str] = []
    reader = consumer(bootstrap, group)
    reader.subscribe([topic])
    for message in polled(reader, until=lambda: "order 2" in charged):
        charged.append(message.value().decode())
        try:
            reader.commit(message, asynchronous=False)
        except KafkaException:
            recover(reader, topic)
    reader.close()
    return charged


@pytest.mark.parametrize("recover", [ask_the_coordinator, pytest.param(process_again, marks=BUG)])
def test_an_order_is_charged_once(kohort: Scope, recover: Recover) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("charges")
    kohort.write(topic, "order 1", "order 2")
    # The client tries twice again by itself, so three answers have to be lost until the application hears of it.
    lost = kohort.fault(api="OffsetCommit", group=group, error="REQUEST_TIMED_OUT", after=True, times=3)
    charged = charge(kohort.bootstrap, topic, group, recover)
    assert lost.hits == 3
    assert charged == ["order 1", "order 2"]
