"""
A member of a consumer group (KIP-848) is fenced while it owns partitions.

Its partitions are lost: they may belong to another member already, and a commit for them is refused. A callback that commits,
which is right for partitions that are revoked, raises, and ends the application.
"""

from collections.abc import Callable
from threading import Thread

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from faults.clients import BUG, SECONDS_MAX, consumer, polled

from kohort.testing import Broker

OnLost = Callable[[Consumer, list[TopicPartition]], None] | None


def forget(_reader: Consumer, _partitions: list[TopicPartition]) -> None:
    """Right: what was read from these partitions belongs to others now."""


class CommitRefusedError(Exception):
    """What the application makes of it."""


class Application:
    """Processes until the record "end"; commits there, and when partitions are given back."""

    def __init__(self, bootstrap: str, on_lost: OnLost) -> None:
        self._processed = ""
        self._callbacks = {"on_revoke": self._commit} | ({"on_lost": on_lost} if on_lost else {})
        self._reader = consumer(bootstrap, "workers", group_protocol="consumer")

    def run(self) -> None:
        self._reader.subscribe(["orders"], **self._callbacks)
        try:
            for message in polled(self._reader, until=lambda: self._processed == "end"):
                self._processed = message.value().decode()
            self._commit(self._reader, [])
        except CommitRefusedError:
            pass  # The application has ended, and nobody starts it again.
        self._processed = ""
        self._reader.close()

    def _commit(self, reader: Consumer, _partitions: list[TopicPartition]) -> None:
        try:
            if self._processed:
                reader.commit(asynchronous=False)
        except KafkaException as refused:
            raise CommitRefusedError(str(refused)) from None


@pytest.mark.kohort(configs={"group.consumer.session.timeout.ms": 400})
@pytest.mark.parametrize("on_lost", [forget, pytest.param(None, marks=BUG)])
def test_the_application_survives(kohort_broker: Broker, on_lost: OnLost) -> None:
    kohort_broker.create_topic("orders")
    kohort_broker.write("orders", "order 1")
    application = Thread(target=Application(kohort_broker.bootstrap, on_lost).run)
    application.start()
    kohort_broker.wait_group("workers", stable=True, topic="orders")
    kohort_broker.requests(api="Fetch", wait=2)
    silence = kohort_broker.hold(api="ConsumerGroupHeartbeat")
    kohort_broker.wait_group("workers", empty=True)
    silence.release()
    kohort_broker.write("orders", "end")
    application.join(SECONDS_MAX)
    kohort_broker.wait_group("workers", topic="orders", offset=2, timeout=1)
