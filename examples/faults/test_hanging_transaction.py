"""
A hanging transaction blocks readers.

A process dies inside a transaction. Readers of committed records wait behind it until the coordinator aborts it, which takes
as long as `transaction.timeout.ms` says: a minute by default, fifteen at most.
"""

import pytest
from faults.clients import BUG, SECONDS_MAX, producer

from kohort.testing import Scope


def begin_and_die(bootstrap: str, topic: str, transactional_id: str, timeout_ms: int) -> None:
    """What a process leaves behind that dies between two records."""
    settings = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    sender = producer(bootstrap, message_timeout_ms=timeout_ms, **settings)
    sender.init_transactions(SECONDS_MAX)
    sender.begin_transaction()
    sender.produce(topic, "half of an order")
    assert sender.flush(SECONDS_MAX) == 0


@pytest.mark.parametrize("timeout_ms", [1_000, pytest.param(60_000, marks=BUG)])
def test_readers_go_on_within_three_seconds(kohort: Scope, timeout_ms: int) -> None:
    topic, transactional_id = kohort.topic("orders"), kohort.unique("billing")
    # Its last words are lost, too.
    kohort.fault(api="EndTxn", transactional_id=transactional_id, disconnect="before", always=True)
    begin_and_die(kohort.bootstrap, topic, transactional_id, timeout_ms)
    kohort.write(topic, "order 2")
    assert kohort.values(topic, committed=True, wait=1, timeout=3) == ["order 2"]
