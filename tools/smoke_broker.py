"""
Start `kohort serve`, produce, consume and commit with aiokafka, restart the broker, and read the committed offset again.

Usage: python tools/smoke_broker.py PATH-TO-KOHORT

Needs Kohort's runtime dependencies only, so it also runs where a wheel was just installed.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS = 10
TOPIC = "smoke"
GROUP = "smoke-test"


@contextmanager
def broker(kohort: str, directory: str) -> Iterator[str]:
    """Run a broker for the block. Yields its address."""
    command = [kohort, "serve", "--data-dir", directory, "--port", "0", "--set", "group.initial.rebalance.delay.ms=0"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("kohort ready"):
                sys.exit(f"the broker did not start: {line!r}")
            ready = dict(word.split("=", 1) for word in line.split() if "=" in word)
            yield f"{ready['host']}:{ready['port']}"
        finally:
            process.terminate()
    if process.returncode:
        sys.exit(f"the broker ended with exit code {process.returncode}")


async def produce_and_commit(address: str) -> None:
    """Produce records, read them as a group, and commit."""
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(TOPIC, b"record %d" % number, partition=0)
    consumer = AIOKafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        values = [(await consumer.getone()).value for _ in range(RECORDS)]
        await consumer.commit()
    assert values == [b"record %d" % number for number in range(RECORDS)], values


async def committed(address: str) -> int | None:
    """Return the committed offset of partition 0."""
    consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=GROUP, enable_auto_commit=False)
    async with consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        offset: int | None = await consumer.committed(TopicPartition(TOPIC, 0))
        return offset


def main(kohort: str) -> None:
    """Exit with a message if anything differs from what Kafka does."""
    with TemporaryDirectory(prefix="kohort-smoke-") as directory:
        with broker(kohort, directory) as address:
            asyncio.run(asyncio.wait_for(produce_and_commit(address), 60))
        with broker(kohort, directory) as address:
            offset = asyncio.run(asyncio.wait_for(committed(address), 60))
    if offset != RECORDS:
        sys.exit(f"committed offset after the restart: {offset}, expected {RECORDS}")


if __name__ == "__main__":
    main(sys.argv[1])
