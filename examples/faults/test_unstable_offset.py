"""
An offset whose transaction has not ended.

A processor has sent its output and its offsets, and its transaction is being committed. Another one that takes over the
partition has to wait for that. One that reads uncommitted data gets the old offset at once and processes the records again.
"""

from threading import Thread

import pytest
from confluent_kafka import TopicPartition
from faults.clients import BUG, SECONDS_MAX, consumer, polled, producer

from kohort.testing import Scope


def process(bootstrap: str, source: str, target: str, name: str, isolation: str) -> None:
    """Copy what comes within two seconds to another topic, exactly once."""
    reader = consumer(bootstrap, source, isolation_level=isolation)
    reader.assign([TopicPartition(source, 0)])
    sender = producer(bootstrap, transactional_id=f"{source}-{name}", client_id=name)
    sender.init_transactions(SECONDS_MAX)
    for message in polled(reader, seconds=2):
        sender.begin_transaction()
        sender.produce(target, message.value())
        offsets = [TopicPartition(source, 0, message.offset() + 1)]
        sender.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), SECONDS_MAX)
        sender.commit_transaction(SECONDS_MAX)
    reader.close()


@pytest.mark.parametrize("isolation", ["read_committed", pytest.param("read_uncommitted", marks=BUG)])
def test_an_order_is_processed_once(kohort: Scope, isolation: str) -> None:
    source, target = kohort.topic("orders"), kohort.topic("bills")
    kohort.write(source, "order 1")
    ending = kohort.hold(api="EndTxn", client_id="first")
    first, second = (
        Thread(target=process, args=(kohort.bootstrap, source, target, name, isolation)) for name in ("first", "second")
    )
    first.start()
    ending.wait()
    asked = kohort.fault(api="OffsetFetch", group=source, observe=True)
    second.start()
    asked.wait(2 if isolation == "read_committed" else 1)
    ending.release()
    first.join(SECONDS_MAX)
    second.join(SECONDS_MAX)
    assert kohort.values(target, committed=True) == ["order 1"]
