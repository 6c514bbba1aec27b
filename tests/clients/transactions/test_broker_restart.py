"""A broker that is killed by SIGKILL in the middle of a transaction and started again: the client goes on."""

from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from tests.clients.conftest import new_topic
from tests.clients.transactions.conftest import Broker
from tests.clients.transactions.consumers import Read, write_end
from tests.clients.transactions.producers import CLIENTS, Factory, opened
from tests.clients.transactions.test_offsets import committed_offset

PARTITIONS = 2


def test_transactions_outlive_the_broker(
    own_broker: Broker, producers: Mapping[str, Factory], readers: Mapping[str, Read], group: str
) -> None:
    """Each client has a transaction with records and an offset open while the broker is killed, twice."""
    topics = {client: new_topic(own_broker.bootstrap, PARTITIONS, {}) for client in CLIENTS}
    with ExitStack() as stack:
        opened_by = {
            client: stack.enter_context(opened(producers[client], own_broker.bootstrap, f"id-{client}"))
            for client in CLIENTS
        }
        for kill in range(2):
            for client, producer in opened_by.items():
                producer.begin()
                producer.send(topics[client], 0, f"before-{kill}")
                producer.send_offset(topics[client], 0, 10 * kill, group)
            own_broker.kill()
            own_broker.start()
            for client, producer in opened_by.items():
                producer.send(topics[client], 0, f"after-{kill}")
                producer.send(topics[client], 1, f"after-{kill}")
                if kill:
                    producer.abort()
                else:
                    producer.commit()
    for client, topic in topics.items():
        write_end(own_broker.bootstrap, topic, *range(PARTITIONS))
        read = readers[client]
        assert read(own_broker.bootstrap, topic, 0, "read_committed") == ["before-0", "after-0"], client
        assert read(own_broker.bootstrap, topic, 1, "read_committed") == ["after-0"], client
        assert committed_offset(own_broker, group, topic, stable=True) == (0, 0), client


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_a_transaction_without_its_producer_is_aborted_after_a_restart(
    own_broker: Broker, producers: Mapping[str, Factory], readers: Mapping[str, Read], client: str
) -> None:
    """The coordinator loads the transaction from its log, and its timeout still counts."""
    topic = new_topic(own_broker.bootstrap, 1, {})
    with opened(producers[client], own_broker.bootstrap, "id", 1_000) as producer:
        producer.begin()
        producer.send(topic, 0, "for too long")
        own_broker.kill()
    own_broker.start()
    write_end(own_broker.bootstrap, topic, 0)
    assert readers[client](own_broker.bootstrap, topic, 0, "read_committed") == []
