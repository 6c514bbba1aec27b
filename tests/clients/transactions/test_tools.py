"""Apache Kafka's tools for transactions: kafka-transactions.sh, the transactional copier, and the producer's benchmark."""

from collections.abc import Mapping
from uuid import uuid4

from confluent_kafka import Producer

from tests.clients.java_tools import JavaTools
from tests.clients.transactions.conftest import Broker, MakeTopic
from tests.clients.transactions.consumers import Read, last_stable_offset, write_end
from tests.clients.transactions.producers import Factory, opened
from tests.clients.waiting import PATIENCE_S, wait_until

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
RECORDS = 100


def test_an_open_transaction_is_listed_and_described(
    broker: Broker, java: JavaTools, make_topic: MakeTopic, producers: Mapping[str, Factory], transactional_id: str
) -> None:
    topic = make_topic(2)
    words = ("--bootstrap-server", broker.bootstrap)
    with opened(producers["java"], broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 1, "open")
        listed = {row[0]: row for row in _rows(java.run(TRANSACTIONS, *words, "list"))}
        assert listed[transactional_id][3] == "Ongoing"
        described = _rows(java.run(TRANSACTIONS, *words, "describe", "--transactional-id", transactional_id))
        assert (described[0][4], described[0][-1]) == ("Ongoing", f"{topic}-1")
        where = ("--topic", topic, "--partition", "1")
        (of_partition,) = _rows(java.run(TRANSACTIONS, *words, "describe-producers", *where))
        assert of_partition[0] == described[0][2]
        producer.commit()
    wait_until(lambda: last_stable_offset(broker.bootstrap, topic, 1) == 2, what="the commit marker")

    def has_ended() -> bool:
        (described,) = _rows(java.run(TRANSACTIONS, *words, "describe", "--transactional-id", transactional_id))
        return described[4] == "CompleteCommit"

    wait_until(has_ended, what="the end of the transaction")


def _rows(output: str) -> list[list[str]]:
    """The rows of a table without its heading."""
    return [line.split() for line in output.splitlines() if line.strip()][1:]


def test_the_copier_of_kafkas_own_system_tests(
    broker: Broker, java: JavaTools, make_topic: MakeTopic, readers: Mapping[str, Read], group: str
) -> None:
    """It consumes, produces, and commits its offsets in transactions, some of which it aborts at random."""
    source, sink = make_topic(), make_topic()
    values = [str(number) for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(source, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    java.run(
        COPIER,
        *("--broker-list", broker.bootstrap, "--transactional-id", f"copier-{uuid4().hex[:8]}"),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", sink, "--consumer-group", group),
        *("--transaction-size", "10", "--max-messages", str(RECORDS), "--enable-random-aborts"),
    )
    write_end(broker.bootstrap, sink, 0)
    assert readers["java"](broker.bootstrap, sink, 0, "read_committed") == values


def test_the_benchmark_of_the_transactional_producer(broker: Broker, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    load = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    printed = java.run(
        PERFORMANCE,
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, *load),
        *("--transactional-id", f"performance-{topic}", "--transaction-duration-ms", "50"),
    )
    assert "2000 records sent" in printed
