"""
A static member is replaced.

A deployment starts a new instance with the same `group.instance.id` before the old one has ended. The old one is fenced, and
has to end. If it begins again, it fences the new one, and so on: both are busy with joining.
"""

from collections.abc import Callable
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError
from faults.clients import BUG, SECONDS_MAX, consumer

from kohort.testing import Scope

Work = Callable[[Callable[[], Consumer], Event], None]


def work(begin: Callable[[], Consumer], stop: Event) -> None:
    reader = begin()
    while not stop.is_set():
        message = reader.poll(0.05)
        if message is not None and message.error() is not None and message.error().code() == KafkaError._FATAL:
            break
    reader.close()


def work_in_any_case(begin: Callable[[], Consumer], stop: Event) -> None:
    """The bug: whoever is fenced begins again."""
    while not stop.is_set():
        work(begin, stop)


@pytest.mark.parametrize("application", [work, pytest.param(work_in_any_case, marks=BUG)])
def test_the_old_instance_ends(kohort: Scope, application: Work) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("workers")
    stop = Event()

    def begin(name: str) -> Consumer:
        reader = consumer(
            kohort.bootstrap, group, group_instance_id="worker-1", client_id=name, heartbeat_interval_ms=50
        )
        reader.subscribe([topic])
        return reader

    old, new = (Thread(target=application, args=(lambda name=name: begin(name), stop)) for name in ("old", "new"))
    old.start()
    kohort.requests(api="SyncGroup", client_id="old", wait=1)
    new.start()
    kohort.requests(api="SyncGroup", client_id="new", wait=1)
    old.join(1)
    is_ended = not old.is_alive()
    stop.set()
    old.join(SECONDS_MAX)
    new.join(SECONDS_MAX)
    assert is_ended
