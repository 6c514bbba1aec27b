"""
One worker of a share group with librdkafka, in a process of its own, which a test may ask to end (SIGTERM) or kill.

Prints a line of JSON for each record before it is acknowledged, `{"read": [partition, offset, value, deliveries]}`, and for
each one whose acknowledgement the broker has confirmed, `{"done": value}`.

    share_worker.py BOOTSTRAP GROUP TOPIC
"""

import json
import signal
import sys
from types import FrameType
from typing import Any

from confluent_kafka import Message, ShareConsumer

_is_asked = False


def _ask(_number: int, _frame: FrameType | None) -> None:
    global _is_asked
    _is_asked = True


def say(fact: str, value: Any) -> None:
    print(json.dumps({fact: value}), flush=True)


def text_of(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


def main() -> None:
    signal.signal(signal.SIGTERM, _ask)
    bootstrap, group, topic = sys.argv[1:]
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit", "log_level": 0}
    )
    consumer.subscribe([topic])
    while not _is_asked:
        read = [message for message in consumer.poll(0.2) if message.error() is None]
        for message in read:
            say("read", [message.partition(), message.offset(), text_of(message), message.delivery_count()])
            consumer.acknowledge(message)
        outcomes = consumer.commit_sync(60.0) if read else {}
        failed = {(where.topic, where.partition) for where, error in outcomes.items() if error is not None}
        for message in read:
            if (message.topic(), message.partition()) not in failed:
                say("done", text_of(message))
    consumer.close()


if __name__ == "__main__":
    main()
