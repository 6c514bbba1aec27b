"""
A rebalance begins during a commit.

The commit is refused, because the group assigns its partitions anew. That is no failure of the consumer: it joins again,
begins at the committed offset and commits later. An application that takes every error of a commit for fatal ends at each
deployment.
"""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from faults.clients import BUG, consumer, polled

from kohort.testing import Scope

IsFatal = Callable[[KafkaError], bool]
OF_REBALANCES = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)


def unless_it_is_a_rebalance(error: KafkaError) -> bool:
    return error.code() not in OF_REBALANCES


def always(_error: KafkaError) -> bool:
    return True


def work(bootstrap: str, topic: str, group: str, is_fatal: IsFatal) -> None:
    """Process until the record "end" is committed, or a fatal error."""
    reader = consumer(bootstrap, group, session_timeout_ms=6000, heartbeat_interval_ms=100)
    reader.subscribe([topic])
    for message in polled(reader):
        try:
            reader.commit(message, asynchronous=False)
        except KafkaException as raised:
            if is_fatal(raised.args[0]):
                break
        else:
            if message.value() == b"end":
                break
    reader.close()


@pytest.mark.parametrize("is_fatal", [unless_it_is_a_rebalance, pytest.param(always, marks=BUG)])
def test_all_records_are_committed(kohort: Scope, is_fatal: IsFatal) -> None:
    topic, group = kohort.topic("orders"), kohort.unique("workers")
    kohort.write(topic, "order 1", "order 2", "end")
    refused = kohort.fault(api="OffsetCommit", group=group, error="REBALANCE_IN_PROGRESS", on_call=2)
    rebalance = kohort.fault(api="Heartbeat", group=group, error="REBALANCE_IN_PROGRESS", after_fault=refused.id)
    work(kohort.bootstrap, topic, group, is_fatal)
    assert refused.hits == 1
    kohort.wait_group(group, topic=topic, offset=3, timeout=1), f"{rebalance.hits} rebalances"
