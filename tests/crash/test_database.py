"""A broker whose logs are in a database: SIGKILL of the broker, and crashes of the database under it."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.crash.writers import RETENTION, Ledger, Writers, await_coordinators, check, create_topic
from tests.storage.database import Database

ACKNOWLEDGEMENTS = (50, 1_500)
SMALL = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "offsets.commit.timeout.ms": "60000",  # a database on a busy machine may take seconds to start
}
QUICK = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made.make_store()
    made.close()


def crash(database: Database, ledger: Ledger) -> None:
    """Crash the database in the middle of the writes, and start it again."""
    wait_until(lambda: ledger.acknowledged >= ACKNOWLEDGEMENTS[0], what="writes")
    database.stop(signal.SIGQUIT)
    database.start()


def test_acknowledged_commits_and_records_survive_crashes_of_broker_and_database(
    tmp_path: Path, database: Database, rng: Random
) -> None:
    ledger = Ledger()
    with ServedKohort(tmp_path, RETENTION | SMALL, store=database.url) as broker:
        create_topic(broker)
        for crashes_database in (False, True):
            await_coordinators(broker)
            wanted = rng.randint(2 * ACKNOWLEDGEMENTS[0], ACKNOWLEDGEMENTS[1])
            writers = Writers(ledger, broker.port, acknowledgements=wanted)
            ledger.acknowledged = 0
            beside = threading.Thread(target=crash, args=(database, ledger))
            if crashes_database:
                beside.start()
            writers.run_until_killed(broker)
            if crashes_database:
                beside.join(PATIENCE_S)
            broker.start()
            await_coordinators(broker)
            check(ledger, broker)
    assert kohort("store", "verify", database.url).stdout.endswith(": 0 problems\n")


def test_a_client_goes_on_while_the_database_restarts(tmp_path: Path, database: Database) -> None:
    """Produce, group, commit, transaction."""
    with ServedKohort(tmp_path, SMALL | QUICK, store=database.url) as broker:
        common = {"bootstrap.servers": broker.bootstrap}
        producer = Producer({**common, "transactional.id": "tx"})
        producer.init_transactions(PATIENCE_S)
        consumer = Consumer(
            {
                **common,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["orders"])
        found: list[bytes | None] = []
        for number in range(3):
            producer.begin_transaction()
            producer.produce("orders", value=b"%d" % number)
            if number == 1:
                producer.flush(PATIENCE_S)
                database.stop(signal.SIGQUIT)
                database.start()
            if number == 2:
                producer.abort_transaction(PATIENCE_S)
                continue
            producer.commit_transaction(PATIENCE_S)
            while len(found) <= number:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                found.append(message.value())
            consumer.commit(asynchronous=False)
        assert found == [b"0", b"1"]
        (committed,) = consumer.committed([TopicPartition("orders", 0)], PATIENCE_S)
        assert committed.offset == 3, "two records, and a marker between them"
        consumer.close()
