"""What the examples have in common: clients of confluent-kafka with settings that suit short tests, and the mark of a bug."""

import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from kohort.testing import WaitTimeoutError

SECONDS_MAX = 20.0
"""No example takes so long; a loop that waits for what never comes ends with it."""
BUG = pytest.mark.xfail(reason="the application has the bug", raises=(AssertionError, WaitTimeoutError), strict=True)
"""The test has to fail with this application: a test that passes with the bug does not find it."""
_SILENT = logging.getLogger("examples.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def producer(bootstrap: str, **settings: object) -> Producer:
    """A producer. Settings are those of librdkafka, with `_` for `.`."""
    return Producer({"bootstrap.servers": bootstrap, **_named(settings)}, logger=_SILENT)


def consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    """A consumer that begins with the oldest record and commits only when it is told to."""
    defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    given = {"bootstrap.servers": bootstrap, "group.id": group, **defaults, **_named(settings)}
    return Consumer(given, logger=_SILENT)


def polled(
    reader: Consumer, until: Callable[[], bool] = lambda: False, seconds: float = SECONDS_MAX
) -> Iterator[Message]:
    """The records that a consumer gets, until something is true or the time is over. Errors are left out."""
    deadline = monotonic() + seconds
    while not until() and monotonic() < deadline:
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            yield message


def _named(settings: dict[str, object]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
