"""
A zombie producer.

An instance stops for a while inside a transaction: a long garbage collection, a frozen machine. Another one takes over its
transactional id and does its work. The first one then finds itself fenced. It has to end; if it begins again it undoes the
fence, and everything is written twice.
"""

from collections.abc import Callable
from threading import Thread

import pytest
from confluent_kafka import KafkaException
from faults.clients import BUG, SECONDS_MAX, producer

from kohort.testing import Scope

Publish = Callable[..., None]


def publish(bootstrap: str, topic: str, transactional_id: str, name: str) -> None:
    sender = producer(bootstrap, transactional_id=transactional_id, client_id=name)
    sender.init_transactions(SECONDS_MAX)
    sender.begin_transaction()
    sender.produce(topic, "order 1")
    sender.commit_transaction(SECONDS_MAX)


def publish_or_end(*arguments: str) -> None:
    try:
        publish(*arguments)
    except KafkaException as raised:
        if not raised.args[0].fatal():
            raise


def publish_in_any_case(*arguments: str) -> None:
    """The bug: whoever is fenced begins again."""
    try:
        publish(*arguments)
    except KafkaException:
        publish(*arguments)


@pytest.mark.parametrize("application", [publish_or_end, pytest.param(publish_in_any_case, marks=BUG)])
def test_an_order_is_written_once(kohort: Scope, application: Publish) -> None:
    topic, transactional_id = kohort.topic("orders"), kohort.unique("billing")
    stopped = kohort.hold(api="EndTxn", client_id="first", times=1)
    first = Thread(target=application, args=(kohort.bootstrap, topic, transactional_id, "first"))
    first.start()
    stopped.wait()
    application(kohort.bootstrap, topic, transactional_id, "second")
    stopped.release()
    first.join(SECONDS_MAX)
    assert kohort.values(topic, committed=True) == ["order 1"]
