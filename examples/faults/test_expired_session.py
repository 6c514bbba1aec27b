"""
A record takes longer than a member may be silent.

The member is removed from its group, its commit is refused, and the record comes again, for ever. Work that takes long
belongs to a thread, while the consumer is paused and goes on polling.
"""

from collections.abc import Callable
from threading import Thread
from time import monotonic, sleep

import pytest
from confluent_kafka import Consumer, KafkaException
from faults.clients import BUG, consumer

from kohort.testing import Scope

Process = Callable[[Consumer, Callable[[], None]], None]
SILENCE_MS_MAX = 1_000
WORK_SECONDS = 1.8


def while_polling(reader: Consumer, work: Callable[[], None]) -> None:
    reader.pause(reader.assignment())
    worker = Thread(target=work)
    worker.start()
    while worker.is_alive():
        reader.poll(0.05)
    reader.resume(reader.assignment())


def in_silence(_reader: Consumer, work: Callable[[], None]) -> None:
    work()


def charge(bootstrap: str, topic: str, group: str, process: Process) -> int:
    """How often the order is charged within some seconds."""
    charged = 0
    settings = {"session_timeout_ms": SILENCE_MS_MAX, "max_poll_interval_ms": SILENCE_MS_MAX}
    reader = consumer(bootstrap, group, heartbeat_interval_ms=50, **settings)
    reader.subscribe([topic])
    deadline = monotonic() + 3
    while monotonic() < deadline:
        message = reader.poll(0.05)
        if message is None or message.error() is not None:
            continue
        process(reader, lambda: sleep(WORK_SECONDS))
        charged += 1
        try:
            reader.commit(message, asynchronous=False)
            break
        except KafkaException:
            continue
    reader.close()
    return charged


@pytest.mark.parametrize("process", [while_polling, pytest.param(in_silence, marks=BUG)])
def test_a_long_order_is_charged_once(kohort: Scope, process: Process) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("charges")
    kohort.write(topic, "a long order")
    assert charge(kohort.bootstrap, topic, group, process) == 1
    kohort.wait_group(group, topic=topic, offset=1, timeout=1)
