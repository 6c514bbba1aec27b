"""
Closed loop of transactions: each producer begins one, produces one record, and commits it.

The producers are librdkafka's (confluent-kafka), all in one process, so a measure includes the work of a client: 0.4 ms of
processor time for each transaction. AddPartitionsToTxn, Produce and EndTxn follow one another. A broker that has not yet
written all markers answers the next AddPartitionsToTxn with CONCURRENT_TRANSACTIONS, and librdkafka then waits 20 ms.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bench.load.closed_loop import LoadError, Round, round_of, undisturbed
from bench.load.requests import DATA_PARTITIONS, DATA_TOPIC, new_serial

VALUE: Final = bytes(100)
TIMEOUT_SECONDS: Final = 30.0
SETTINGS: Final = {"linger.ms": 0, "transaction.timeout.ms": 60_000, "enable.metrics.push": False, "log_level": 2}


class Transactions:
    """Producers with a transactional id and a thread each. They produce to eight partitions in turn."""

    def __init__(self, port: int, producers: int, opened: ExitStack) -> None:
        """
        Create the producers, and wait for the producer id of each.

        Raises:
            LoadError: a producer was refused.
        """
        serial = new_serial()
        self._loops = [_Loop(port, f"bench-{serial}-{number}", number) for number in range(producers)]
        opened.callback(self._loops.clear)
        self._threads = opened.enter_context(ThreadPoolExecutor(producers))
        list(self._threads.map(_Loop.begin, self._loops))

    def run(self, seconds: float) -> Round:
        """
        Run transactions for `seconds`, then wait for the outstanding commits.

        Raises:
            LoadError: a transaction failed.
        """
        with undisturbed() as cpu_share:
            begun_ns = time.perf_counter_ns()
            deadline_ns = begun_ns + int(seconds * 1e9)
            ran = list(self._threads.map(lambda loop: loop.run(deadline_ns), self._loops))
            elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
            load_cpu = cpu_share()
        return round_of([latency_ns for latencies_ns in ran for latency_ns in latencies_ns], elapsed, load_cpu)


class _Loop:
    """One producer and its partition."""

    def __init__(self, port: int, transactional_id: str, number: int) -> None:
        bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": transactional_id}
        self._producer = Producer({**bootstrap, **SETTINGS})
        self._partition = number % DATA_PARTITIONS
        self._refused: list[KafkaError] = []

    def begin(self) -> None:
        try:
            self._producer.init_transactions(TIMEOUT_SECONDS)
        except KafkaException as error:
            raise LoadError(f"InitProducerId failed: {error}") from error

    def run(self, deadline_ns: int) -> list[int]:
        """Return the latencies from begin to the answer of the commit; at least one."""
        latencies_ns: list[int] = []
        clock = time.perf_counter_ns
        before_ns = clock()
        try:
            while not latencies_ns or before_ns < deadline_ns:
                self._producer.begin_transaction()
                self._producer.produce(DATA_TOPIC, VALUE, partition=self._partition, on_delivery=self._delivered)
                self._producer.commit_transaction(TIMEOUT_SECONDS)
                now_ns = clock()
                latencies_ns.append(now_ns - before_ns)
                before_ns = now_ns
        except KafkaException as error:
            raise LoadError(f"a transaction failed: {error}") from error
        if self._refused:
            raise LoadError(f"a record was refused: {self._refused[0]}")
        return latencies_ns

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error)
