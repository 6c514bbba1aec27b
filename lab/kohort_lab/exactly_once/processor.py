"""
A processor: consumes, transforms, produces, and commits its offsets, all in one transaction (KIP-98, KIP-447).

A process of its own, so that it can be killed. Prints `commit N` or `abort N` for each transaction of N records. It ends with
exit code 1 on an error after which a producer or a member cannot go on; the next process with the same slot continues.
"""

import json
import random
import signal
import sys
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH_MAX: Final = 50
POLL_SECONDS: Final = 0.1
CALL_SECONDS: Final = 5.0
ABORTED_SHARE: Final = 0.05
"""Share of the transactions that the processor aborts without need."""
RECONNECT: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
"""
A quick return after a restart. Without the last line librdkafka (2.16) forgets the only broker while it is down, but its cache
of group coordinators does not, and `send_offsets_to_transaction` never returns.
"""
QUIET: Final = {"log_level": 2, "enable.metrics.push": False}


@dataclass(frozen=True, slots=True)
class Job:
    """
    Attributes:
        slot: number of the processor; its transactional id and its instance id are made of it.
        is_static: the processor is a static member (KIP-345), so its successor gets its partitions without a rebalance.
    """

    bootstrap: str
    group: str
    source: str
    sink: str
    sink_partitions: int
    slot: int
    is_static: bool
    session_timeout_ms: int
    transaction_timeout_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key; every record of a key goes to the same one."""
    return zlib.crc32(key) % partitions


class Processor:
    """One member of the group with its producer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        common = {"bootstrap.servers": job.bootstrap, **RECONNECT, **QUIET}
        static = {"group.instance.id": f"{job.group}-{job.slot}"} if job.is_static else {}
        self._consumer = Consumer(
            {
                **common,
                **static,
                "group.id": job.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": job.session_timeout_ms,
                "heartbeat.interval.ms": max(job.session_timeout_ms // 10, 50),
            }
        )
        self._producer = Producer(
            {
                **common,
                "transactional.id": f"{job.group}-{job.slot}",
                "transaction.timeout.ms": job.transaction_timeout_ms,
                "linger.ms": 0,
            }
        )

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """
        Process until stopped.

        Raises:
            KafkaException: an error after which this producer or member cannot go on.
        """
        self._retried(self._producer.init_transactions)
        self._consumer.subscribe([self._job.source])
        while not is_stopped():
            # Taken before records are: if a rebalance comes between, the coordinator refuses the offsets.
            member = self._consumer.consumer_group_metadata()
            messages = self._consumer.consume(random.randint(1, BATCH_MAX), POLL_SECONDS)
            for error in (message.error() for message in messages):
                if error is not None and error.fatal():
                    raise KafkaException(error)
            records = [message for message in messages if message.error() is None]
            if records:
                self._transact(records, member)
        self._consumer.close()

    def _transact(self, records: list[Message], member: Any) -> None:
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
            ends = {record.partition(): record.offset() + 1 for record in records}
            offsets = [TopicPartition(self._job.source, partition, end) for partition, end in ends.items()]
            self._retried(self._producer.send_offsets_to_transaction, offsets, member)
            if random.random() < ABORTED_SHARE:
                self._abort(records)
            else:
                self._retried(self._producer.commit_transaction)
                print(f"commit {len(records)}", flush=True)
        except KafkaException as exc:
            if not exc.args[0].txn_requires_abort():
                raise
            self._abort(records)

    def _produce(self, record: Message) -> None:
        key = record.key()
        source = json.dumps([record.partition(), record.offset()])
        self._producer.produce(self._job.sink, source, key, partition_of(key, self._job.sink_partitions))
        self._producer.poll(0)

    def _abort(self, records: list[Message]) -> None:
        """Abort, and return to the committed offsets. No rebalance happens here, since none of the calls serves callbacks."""
        self._retried(self._producer.abort_transaction)
        print(f"abort {len(records)}", flush=True)
        consumed = {record.partition() for record in records}
        assigned = [where for where in self._consumer.assignment() if where.partition in consumed]
        for where in self._retried(self._consumer.committed, assigned) if assigned else ():
            if where.error is not None:
                raise KafkaException(where.error)
            # Without a committed offset, from the first record.
            self._consumer.seek(TopicPartition(where.topic, where.partition, max(where.offset, 0)))

    @staticmethod
    def _retried(call: Callable[..., Any], *arguments: Any) -> Any:
        """Call until the error is not a retriable one; the broker may be gone for a while."""
        while True:
            try:
                return call(*arguments, CALL_SECONDS)
            except KafkaException as exc:
                if not exc.args[0].retriable():
                    raise


def main() -> None:
    """Run the job in the first argument until SIGTERM."""
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    try:
        Processor(Job(**json.loads(sys.argv[1]))).run(lambda: bool(stopped))
    except KafkaException as exc:
        print(exc, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
