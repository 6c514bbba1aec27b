"""A file system that is full, for real: who writes is told how to go on, and with more room everything is there."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches
from tests.clients.waiting import wait_until
from tests.crash.connection import Connection
from tests.crash.writers import FETCH_BYTES, RETENTION, TOPIC, create_topic

ROOM_MIB, MORE_ROOM_MIB = 44, 200
"""A journal's file is 32 MiB, and there before anything is written."""
BATCH_BYTES = 900_000


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    directory.mkdir()
    mounted = _mount(directory, f"size={ROOM_MIB}m")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def _mount(directory: Path, options: str) -> "subprocess.CompletedProcess[str]":
    command = ["mount", "-t", "tmpfs", "-o", options, "kohort-test", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_refuses_writers_and_loses_nothing(full: Path) -> None:
    acknowledged = 0
    with ServedKohort(full.parent, RETENTION, expected=[r"log\.offline partition=ledger-0"]) as broker:
        create_topic(broker)
        with Connection(broker.port) as connection:
            while (code := produce(connection)) == ErrorCode.NONE:
                acknowledged += 1
                assert acknowledged < ROOM_MIB
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(connection) == ErrorCode.KAFKA_STORAGE_ERROR
        # The log is written by a thread of its own.
        wait_until(lambda: "log.offline partition=ledger-0" in broker.log_tail(), what="the line about ledger-0")
        assert "make room on that file system" in broker.log_tail()
        broker.kill()
        assert _mount(full, f"remount,size={MORE_ROOM_MIB}m").returncode == 0
        broker.start()
        with Connection(broker.port) as connection:
            assert count(connection) >= acknowledged > 3
            assert produce(connection) == ErrorCode.NONE
        broker.stop()


def produce(connection: Connection) -> int:
    batch = build_batch([BatchRecord(None, b"x" * BATCH_BYTES)], timestamp_ms=1_700_000_000_000)
    data = messages.ProduceRequestPartitionProduceData(index=0, records=batch)
    topic = messages.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])
    answer = connection.ask(ApiKey.PRODUCE, 9, messages.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
    return int(answer.responses[0].partition_responses[0].error_code)


def count(connection: Connection) -> int:
    """The batches that are there."""
    offset = 0
    while data := fetch(connection, offset):
        offset = [header.next_offset for _, header in iter_batches(data)][-1]
    return offset


def fetch(connection: Connection, offset: int) -> Any:
    wanted = messages.FetchRequestFetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    topic = messages.FetchRequestFetchTopic(topic=TOPIC, partitions=[wanted])
    request = messages.FetchRequest(
        replica_id=-1, max_wait_ms=0, max_bytes=FETCH_BYTES, session_epoch=-1, topics=[topic]
    )
    return bytes(connection.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0].records or b"")
