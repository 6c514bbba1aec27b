"""
A transactional application: `python demo_application.py BOOTSTRAP SOURCE TARGET [HOLD]`.

Reads records of the topic SOURCE, writes a receipt for each to TARGET, and commits its own offsets, all in transactions of
confluent-kafka: either all of it happens, or nothing. Reports events as JSON lines: `started` with the offsets from which it
reads, `committed` after each transaction, `done` at the end of SOURCE.

With HOLD, the application stops in the middle of its transaction number HOLD, with records written and not committed, and waits
to be killed. The next start resumes after the last committed transaction.
"""

import json
import sys
import time
from typing import Any

TRANSACTIONAL_ID = "receipts-1"
GROUP = "receipts"
RECORDS_MAX = 100
SECONDS_MAX = 60


def report(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def receipt(payment: bytes) -> bytes:
    fields = json.loads(payment)
    return json.dumps({"receipt": fields["number"], "amount": fields["amount"]}).encode()


def main(bootstrap: str, source: str, target: str, hold: int) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0}
    consumer = Consumer(
        {**settings, "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    producer = Producer({**settings, "transactional.id": TRANSACTIONAL_ID, "linger.ms": 1})
    # Fences the application's predecessor, and aborts its transaction. Its committed offsets are final from then on.
    producer.init_transactions(SECONDS_MAX)
    positions, ends = start_positions(consumer, source)
    consumer.assign([TopicPartition(source, partition, offset) for partition, offset in positions.items()])
    report("started", offsets=positions)

    transactions = 0
    while positions != ends:
        payments = [it for it in consumer.consume(RECORDS_MAX, timeout=0.1) if it.error() is None]
        if not payments:
            continue
        producer.begin_transaction()
        for payment in payments:
            producer.produce(target, receipt(payment.value()), payment.key(), partition=payment.partition())
            positions[payment.partition()] = payment.offset() + 1
        offsets = [TopicPartition(source, partition, offset) for partition, offset in positions.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS_MAX)
        transactions += 1
        if transactions == hold:
            producer.flush(SECONDS_MAX)
            report("holding", records=len(payments))
            time.sleep(SECONDS_MAX)
        producer.commit_transaction(SECONDS_MAX)
        report("committed", records=len(payments))
    report("done")
    consumer.close()


def start_positions(consumer: Any, source: str) -> tuple[dict[int, int], dict[int, int]]:
    """Return the committed offset of each partition, 0 if there is none, and the end offsets."""
    from confluent_kafka import TopicPartition

    count = len(consumer.list_topics(source, SECONDS_MAX).topics[source].partitions)
    committed = consumer.committed([TopicPartition(source, index) for index in range(count)], SECONDS_MAX)
    positions = {it.partition: max(it.offset, 0) for it in committed}
    return positions, {it.partition: consumer.get_watermark_offsets(it, SECONDS_MAX)[1] for it in committed}


if __name__ == "__main__":
    bootstrap, source, target, *hold = sys.argv[1:]
    main(bootstrap, source, target, int(hold[0]) if hold else 0)
