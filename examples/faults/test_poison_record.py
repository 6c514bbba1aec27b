"""
A record that nobody can read.

An application that dies of it is started again, reads it again, and never gets past it. The record belongs to another topic,
with the reason, and its offset is committed as usual.
"""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Message, Producer
from faults.clients import BUG, SECONDS_MAX, consumer, polled, producer

from kohort.testing import Scope

Refuse = Callable[[Producer, str, Message, ValueError], None]


def put_aside(sender: Producer, topic: str, message: Message, error: ValueError) -> None:
    sender.produce(topic, message.value(), headers={"error": str(error)})
    assert sender.flush(SECONDS_MAX) == 0


def die(_sender: Producer, _topic: str, _message: Message, error: ValueError) -> None:
    raise error


def work(bootstrap: str, topic: str, dead_letters: str, refuse: Refuse) -> list[int]:
    """The amounts of orders, up to the last one."""
    amounts: list[int] = []
    sender = producer(bootstrap)
    reader = consumer(bootstrap, topic, session_timeout_ms=6_000)
    reader.subscribe([topic])
    try:
        for message in polled(reader, until=lambda: 3 in amounts):
            try:
                amounts.append(json.loads(message.value())["amount"])
            except ValueError as error:
                refuse(sender, dead_letters, message, error)
            reader.commit(message, asynchronous=False)
    finally:
        reader.close()
    return amounts


def supervised(bootstrap: str, topic: str, dead_letters: str, refuse: Refuse) -> list[int]:
    """What starts the application again when it has died."""
    for _ in range(3):
        try:
            return work(bootstrap, topic, dead_letters, refuse)
        except ValueError:
            continue
    return []


@pytest.mark.parametrize("refuse", [put_aside, pytest.param(die, marks=BUG)])
def test_the_orders_behind_it_are_processed(kohort: Scope, refuse: Refuse) -> None:
    topic, dead_letters = kohort.topic("orders"), kohort.topic("dead-letters")
    kohort.write(topic, '{"amount": 1}', '{"amount": ', '{"amount": 3}')
    assert supervised(kohort.bootstrap, topic, dead_letters, refuse) == [1, 3]
    assert kohort.values(dead_letters, committed=True) == ['{"amount": ']
