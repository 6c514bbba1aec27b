"""Transactions of each client: commit, abort, fencing and timeouts, read by each client."""

from collections.abc import Mapping

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.transactions.conftest import Broker, MakeTopic
from tests.clients.transactions.consumers import (
    ISOLATIONS,
    Read,
    high_watermark,
    last_stable_offset,
    write_end,
)
from tests.clients.transactions.producers import (
    CLIENTS,
    Factory,
    RefusedError,
    TransactionalProducer,
    opened,
)
from tests.clients.waiting import PATIENCE_S, wait_until

TIMEOUT_MS = 1_000
PAIRS = list(zip(CLIENTS, (*CLIENTS[1:], CLIENTS[0]), strict=True))


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_reads_committed_records_only(
    broker: Broker,
    make_topic: MakeTopic,
    producers: Mapping[str, Factory],
    readers: Mapping[str, Read],
    transactional_id: str,
    client: str,
) -> None:
    """Two partitions in every transaction. A reader of uncommitted records gets aborted ones, too."""
    topic = make_topic(2)
    with opened(producers[client], broker.bootstrap, transactional_id) as producer:
        for outcome in ("commit-1", "abort-2", "commit-3", "abort-4", "commit-5"):
            producer.begin()
            for partition in (0, 1):
                producer.send(topic, partition, f"{outcome}-a")
                producer.send(topic, partition, f"{outcome}-b")
            if outcome.startswith("commit"):
                producer.commit()
            else:
                producer.abort()
    write_end(broker.bootstrap, topic, 0, 1)
    committed = [f"commit-{number}-{name}" for number in (1, 3, 5) for name in "ab"]
    for reader, read in readers.items():
        for partition in (0, 1):
            found = {isolation: read(broker.bootstrap, topic, partition, isolation) for isolation in ISOLATIONS}
            assert found["read_committed"] == committed, reader
            assert [each for each in found["read_uncommitted"] if each in committed] == committed, reader
            assert {each[:7] for each in found["read_uncommitted"]} == {
                *("commit-", "abort-2", "abort-4"),
            }, reader


@pytest.mark.parametrize("client", CLIENTS)
def test_an_open_transaction_holds_back_later_records(
    broker: Broker,
    make_topic: MakeTopic,
    producers: Mapping[str, Factory],
    readers: Mapping[str, Read],
    transactional_id: str,
    client: str,
) -> None:
    topic = make_topic()
    with opened(producers[client], broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, "first")
        producer.commit()
        producer.begin()
        producer.send(topic, 0, "open")
        write_end(broker.bootstrap, topic, 0)
        # The first record and its marker are below the open transaction.
        assert last_stable_offset(broker.bootstrap, topic) == 2
        assert high_watermark(broker.bootstrap, topic) == 4
        assert readers[client](broker.bootstrap, topic, 0, "read_uncommitted") == ["first", "open"]
        producer.commit()
    wait_until(lambda: last_stable_offset(broker.bootstrap, topic) == 5, what="the marker is written")
    for reader, read in readers.items():
        assert read(broker.bootstrap, topic, 0, "read_committed") == ["first", "open"], reader


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_second_producer_fences_the_first(
    broker: Broker,
    make_topic: MakeTopic,
    producers: Mapping[str, Factory],
    readers: Mapping[str, Read],
    transactional_id: str,
    first: str,
    second: str,
) -> None:
    """The second one aborts the open transaction of the first, whose next record is refused."""
    topic = make_topic()
    with opened(producers[first], broker.bootstrap, transactional_id) as old:
        old.begin()
        old.send(topic, 0, "of the first")
        with opened(producers[second], broker.bootstrap, transactional_id) as new:
            with pytest.raises(RefusedError):
                _send_and_commit(old, topic)
            new.begin()
            new.send(topic, 0, "of the second")
            new.commit()
    write_end(broker.bootstrap, topic, 0)
    for reader, read in readers.items():
        found = read(broker.bootstrap, topic, 0, "read_committed")
        assert found == ["of the second"], reader


def _send_and_commit(producer: TransactionalProducer, topic: str) -> None:
    producer.send(topic, 0, "too late")
    producer.commit()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_that_takes_too_long_is_aborted(
    broker: Broker,
    make_topic: MakeTopic,
    producers: Mapping[str, Factory],
    readers: Mapping[str, Read],
    transactional_id: str,
    client: str,
) -> None:
    topic = make_topic()
    with opened(producers[client], broker.bootstrap, transactional_id, TIMEOUT_MS) as producer:
        producer.begin()
        producer.send(topic, 0, "for too long")
        wait_until(lambda: last_stable_offset(broker.bootstrap, topic) == 2, what="the coordinator aborts it")
        with pytest.raises(RefusedError):
            _send_and_commit(producer, topic)
    with opened(producers[client], broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, "in time")
        producer.commit()
    write_end(broker.bootstrap, topic, 0)
    assert readers[client](broker.bootstrap, topic, 0, "read_committed") == ["in time"]


def test_a_deleted_topic_does_not_hold_up_its_transaction(
    broker: Broker, make_topic: MakeTopic, producers: Mapping[str, Factory], readers: Mapping[str, Read]
) -> None:
    deleted, kept = make_topic(), make_topic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with opened(producers["librdkafka"], broker.bootstrap, f"id-of-{kept}") as producer:
        producer.begin()
        producer.send(deleted, 0, "lost")
        producer.send(kept, 0, "kept")
        admin.delete_topics([deleted])[deleted].result(PATIENCE_S)
        producer.commit()
        producer.begin()
        producer.send(kept, 0, "next")
        producer.commit()
    write_end(broker.bootstrap, kept, 0)
    assert readers["librdkafka"](broker.bootstrap, kept, 0, "read_committed") == ["kept", "next"]
