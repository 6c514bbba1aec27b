"""Memory of open transactions: many transactional ids, each with a record in a transaction that is not ended."""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench.load.client import open_socket, send_all_until_ready, send_until_ready
from bench.load.requests import DATA_PARTITIONS, DATA_TOPIC, prepare, produce_code
from bench.servers.rivals import Rival, fresh
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

FIND_COORDINATOR: Final = (ApiKey.FIND_COORDINATOR, 4)
INIT_PRODUCER_ID: Final = (ApiKey.INIT_PRODUCER_ID, 4)
ADD_PARTITIONS: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, 3)
PRODUCE: Final = (ApiKey.PRODUCE, 9)
CONNECTIONS: Final = 64
TIMEOUT_MS: Final = 900_000
_TRANSACTIONS: Final = 1


def resident_mb(rival: Rival, count: int) -> tuple[float, float]:
    """Return resident memory (10^6 bytes) before, and with as many open transactions."""
    with fresh(rival, "os") as running, ExitStack() as opened:
        prepare(running.port)
        sockets = [opened.enter_context(open_socket(running.port)) for _ in range(CONNECTIONS)]
        _open(sockets, ["warm-up"])
        before_mb = running.resident_mb
        _open(sockets, [f"transactional-id-{number}" for number in range(count)])
        return before_mb, running.resident_mb


def _open(sockets: Sequence[socket.socket], names: Sequence[str]) -> None:
    """
    Begin a transaction of each id, with one record.

    Raises:
        RefusedError: an error code.
    """
    find = messages.FindCoordinatorRequest(key_type=_TRANSACTIONS, coordinator_keys=names[:1])
    send_until_ready(sockets[0], *FIND_COORDINATOR, find, lambda found: int(found.coordinators[0].error_code))
    inits = [messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS) for name in names]
    producers = send_all_until_ready(sockets, *INIT_PRODUCER_ID, inits, lambda answer: int(answer.error_code))
    adds = [
        _added(name, producer, number % DATA_PARTITIONS)
        for number, (name, producer) in enumerate(zip(names, producers, strict=True))
    ]
    send_all_until_ready(sockets, *ADD_PARTITIONS, adds, _added_code)
    produces = [
        _produced(name, producer, number % DATA_PARTITIONS)
        for number, (name, producer) in enumerate(zip(names, producers, strict=True))
    ]
    send_all_until_ready(sockets, *PRODUCE, produces, produce_code)


def _added(name: str, producer: Any, partition: int) -> Any:
    return messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[messages.AddPartitionsToTxnTopic(name=DATA_TOPIC, partitions=[partition])],
    )


def _added_code(added: Any) -> int:
    return max(
        int(partition.partition_error_code)
        for topic in added.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    )


def _produced(name: str, producer: Any, partition: int) -> Any:
    batch = build_batch(
        [BatchRecord(key=None, value=bytes(100))],
        timestamp_ms=round(1000 * time.time()),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = messages.ProduceRequestPartitionProduceData(index=partition, records=batch)
    topic = messages.ProduceRequestTopicProduceData(name=DATA_TOPIC, partition_data=[data])
    return messages.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=[topic])
