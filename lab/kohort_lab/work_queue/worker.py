"""
A worker: a share consumer that takes records and acknowledges each one.

A process of its own, so that it can be killed. It prints an `Event` as a line of JSON for the records of each poll, before they
are acknowledged, and for the outcome of each acknowledgement.

    python -m kohort_lab.work_queue.worker BOOTSTRAP GROUP TOPIC
"""

import random
import signal
import sys
import time
from types import FrameType
from typing import Final

from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from kohort_lab.exactly_once.processor import QUIET, RECONNECT
from kohort_lab.work_queue.verdict import ACCEPTED, READ, REFUSED, REJECTED, RELEASED, Delivery, Event

POLL_SECONDS: Final = 0.2
CALL_SECONDS: Final = 10.0
KINDS: Final = {
    ACCEPTED: AcknowledgeType.ACCEPT,
    RELEASED: AcknowledgeType.RELEASE,
    REJECTED: AcknowledgeType.REJECT,
}
SHARES: Final = (0.9, 0.08, 0.02)
RECORDS_MAX: Final = 50


def delivery_of(message: Message) -> Delivery:
    partition, offset, deliveries = message.partition(), message.offset(), message.delivery_count()
    assert partition is not None
    assert offset is not None
    assert deliveries is not None
    return Delivery(partition, offset, deliveries)


def say(kind: str, since: float, deliveries: list[Delivery]) -> None:
    if deliveries:
        print(Event(kind, since, time.monotonic(), deliveries).to_json(), flush=True)


def acknowledge(consumer: ShareConsumer, messages: list[Message]) -> None:
    """Acknowledge each record in some way, and say what the broker answered."""
    chosen: dict[str, list[Message]] = {kind: [] for kind in KINDS}
    for message in messages:
        (kind,) = random.choices(list(KINDS), SHARES)
        consumer.acknowledge(message, KINDS[kind])
        chosen[kind].append(message)
    since = time.monotonic()
    outcomes = consumer.commit_sync(CALL_SECONDS)
    confirmed = {where.partition for where, error in outcomes.items() if error is None}
    for kind, those in chosen.items():
        say(kind, since, [delivery_of(each) for each in those if each.partition() in confirmed])
    say(REFUSED, since, [delivery_of(each) for each in messages if each.partition() not in confirmed])


def main() -> None:
    """Work until SIGTERM."""
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    bootstrap, group, topic = sys.argv[1:]
    settings = {"share.acknowledgement.mode": "explicit", "max.poll.records": RECORDS_MAX}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings, **RECONNECT, **QUIET})
    consumer.subscribe([topic])
    print(flush=True)  # The worker before may have been killed within a line.
    since = time.monotonic()
    while not stopped:
        messages = [message for message in consumer.poll(POLL_SECONDS) if message.error() is None]
        if messages:
            say(READ, since, [delivery_of(message) for message in messages])
            acknowledge(consumer, messages)
            since = time.monotonic()
    consumer.close()


if __name__ == "__main__":
    main()
