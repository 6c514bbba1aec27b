"""
A topic is deleted under a consumer.

The consumer tells of it by a message that is an error. An application that skips everything but records waits for ever, and
looks healthy.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka.admin import AdminClient
from faults.clients import BUG, SECONDS_MAX, consumer

from kohort.testing import Scope

Look = Callable[[Message], str | None]
OF_MISSING_TOPICS = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


def at_errors(message: Message) -> str | None:
    error = message.error()
    return str(error) if error is not None and error.code() in OF_MISSING_TOPICS else None


def at_records_only(_message: Message) -> str | None:
    return None


def alarm(reader: Consumer, look: Look) -> str | None:
    """The first alarm within some seconds."""
    for _ in range(30):
        message = reader.poll(0.05)
        if message is not None and (found := look(message)) is not None:
            return found
    return None


@pytest.mark.parametrize("look", [at_errors, pytest.param(at_records_only, marks=BUG)])
def test_somebody_is_told(kohort: Scope, look: Look) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("workers")
    kohort.write(topic, "order 1")
    settings = {"topic_metadata_refresh_interval_ms": 200, "topic_metadata_propagation_max_ms": 200}
    reader = consumer(kohort.bootstrap, group, allow_auto_create_topics=False, **settings)
    reader.subscribe([topic])
    assert reader.poll(SECONDS_MAX).value() == b"order 1"
    admin = AdminClient({"bootstrap.servers": kohort.bootstrap})
    (deleted,) = admin.delete_topics([topic]).values()
    deleted.result(SECONDS_MAX)
    told = alarm(reader, look)
    reader.close()
    assert told is not None
