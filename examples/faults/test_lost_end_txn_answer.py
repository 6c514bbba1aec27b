"""
The answer of EndTxn is lost.

The transaction is committed, and the producer hears of a timeout. Whoever takes that for a failure and writes the records
again, in a new transaction, writes them twice. The call may be repeated: the coordinator knows what it has done.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from faults.clients import BUG, SECONDS_MAX, producer

from kohort.testing import Scope

Publish = Callable[[str, str, str], None]
COMMIT_SECONDS = 0.3


def publish(bootstrap: str, topic: str, transactional_id: str) -> None:
    sender = _begun(bootstrap, topic, transactional_id)
    while True:
        try:
            sender.commit_transaction(COMMIT_SECONDS)
        except KafkaException as raised:
            if not raised.args[0].retriable():
                raise
        else:
            return


def publish_anew(bootstrap: str, topic: str, transactional_id: str) -> None:
    """The bug: an error of the commit is taken for an aborted transaction."""
    while True:
        sender = _begun(bootstrap, topic, transactional_id)
        try:
            sender.commit_transaction(COMMIT_SECONDS)
        except KafkaException:
            continue
        else:
            return


def _begun(bootstrap: str, topic: str, transactional_id: str) -> Producer:
    sender = producer(bootstrap, transactional_id=transactional_id, socket_timeout_ms=1_000)
    sender.init_transactions(SECONDS_MAX)
    sender.begin_transaction()
    sender.produce(topic, "order 1")
    return sender


@pytest.mark.parametrize("application", [publish, pytest.param(publish_anew, marks=BUG)])
def test_an_order_is_written_once(kohort: Scope, application: Publish) -> None:
    topic, transactional_id = kohort.topic("orders"), kohort.unique("billing")
    lost = kohort.fault(api="EndTxn", transactional_id=transactional_id, silence=True, after=True)
    application(kohort.bootstrap, topic, transactional_id)
    assert lost.hits == 1
    assert kohort.values(topic, committed=True) == ["order 1"]
