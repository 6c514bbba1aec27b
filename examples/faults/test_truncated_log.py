"""
A committed offset is out of range.

While the application was down, the records behind its committed offset were removed, by retention or by the loss of a leader.
With `auto.offset.reset=latest` it skips everything that was written meanwhile, and nothing fails.
"""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from faults.clients import BUG, SECONDS_MAX, consumer, polled

from kohort.testing import Scope


def work(bootstrap: str, topic: str, group: str, reset: str, count: int) -> list[str]:
    """Process so many records, and commit."""
    found: list[str] = []
    reader = consumer(bootstrap, group, auto_offset_reset=reset)
    reader.subscribe([topic])
    for message in polled(reader, until=lambda: len(found) == count, seconds=2):
        found.append(message.value().decode())
        reader.commit(message, asynchronous=False)
    reader.close()
    return found


@pytest.mark.parametrize("reset", ["earliest", pytest.param("latest", marks=BUG)])
def test_what_was_written_while_the_application_was_down_is_processed(kohort: Scope, reset: str) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("workers")
    kohort.write(topic, "order 1", "order 2", "order 3")
    assert work(kohort.bootstrap, topic, group, "earliest", 1) == ["order 1"]
    admin = AdminClient({"bootstrap.servers": kohort.bootstrap})
    (removed,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    removed.result(SECONDS_MAX)
    assert work(kohort.bootstrap, topic, group, reset, 1) == ["order 3"]
