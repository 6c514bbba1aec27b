"""
The coordinator of a group moves while a member joins.

Joining then takes longer than usual. A job that takes "no record yet" for "no record at all" ends with success and without
having done anything. What says that there is nothing left is the end of the partition.
"""

from collections.abc import Callable
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaError
from faults.clients import BUG, SECONDS_MAX, consumer

from kohort.testing import Scope

Drain = Callable[[Consumer], list[str]]


def until_the_end_of_the_partition(reader: Consumer) -> list[str]:
    found = []
    deadline = monotonic() + SECONDS_MAX
    while monotonic() < deadline:
        message = reader.poll(0.1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return found
    raise TimeoutError("the end of the partition was not reached")


def until_nothing_comes(reader: Consumer) -> list[str]:
    """The bug: whoever has not joined yet gets no record."""
    found = []
    while (message := reader.poll(0.5)) is not None:
        if message.error() is None:
            found.append(message.value().decode())
    return found


@pytest.mark.parametrize("drain", [until_the_end_of_the_partition, pytest.param(until_nothing_comes, marks=BUG)])
def test_the_job_processes_what_is_there(kohort: Scope, drain: Drain) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("job")
    kohort.write(topic, "order 1", "order 2")
    moved = kohort.fault(api="JoinGroup", group=group, error="NOT_COORDINATOR", delay=0.7)
    reader = consumer(kohort.bootstrap, group, enable_partition_eof=True)
    reader.subscribe([topic])
    found = drain(reader)
    reader.close()
    assert moved.hits > 0
    assert found == ["order 1", "order 2"]
