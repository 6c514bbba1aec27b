"""
Memory of a broker with many idle connections, and with clients that do not read:

    python -m bench.idle_connections --connections 10000
    python -m bench.idle_connections --slow-readers 40

The first form opens connections, sends ApiVersions and Metadata on each, and leaves them idle. The second form lets clients ask
for records again and again without reading the answers. Both print the resident memory of the broker's process before and
after, and how long another client waits for an answer meanwhile. The clients are a process of their own.
"""

import argparse
import asyncio
import json
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.encoders import request_encoder

MB = 1e6
OPENED_AT_ONCE = 100
FILES_OF_OTHERS = 100
"""Descriptors besides those of connections. The broker keeps half of all for segment files (`connections/listener.py`)."""
RECORD_BYTES = 1 << 20
RECORDS = 16
REQUESTS_OF_A_READER = 64
SECONDS_MAX = 60.0


def greeting() -> bytes:
    """The first requests of a client."""
    versions = m.ApiVersionsRequest(client_software_name="idle", client_software_version="1")
    topics = m.MetadataRequest(topics=[])
    return request_encoder(ApiKey.API_VERSIONS, 4)(1, "idle", versions) + request_encoder(ApiKey.METADATA, 12)(
        2, "idle", topics
    )


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


class Sockets(asyncio.Protocol):
    """A client that drops what it reads, and knows how many answers it has got."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.answers = 0
        self.is_done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            size = 4 + struct.unpack_from(">i", self.received)[0]
            if len(self.received) < size:
                return
            del self.received[:size]
            self.answers += 1
        if self.answers == 2 and not self.is_done.done():
            self.is_done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_done.done():
            self.is_done.set_exception(exc or ConnectionResetError("the broker closed the connection"))


async def open_idle(port: int, count: int) -> list[asyncio.Transport]:
    """Open connections and use each of them once."""
    loop = asyncio.get_running_loop()
    opened = []
    hello = greeting()
    for start in range(0, count, OPENED_AT_ONCE):
        size = min(OPENED_AT_ONCE, count - start)
        pairs = await asyncio.gather(*(loop.create_connection(Sockets, "127.0.0.1", port) for _ in range(size)))
        for transport, _ in pairs:
            transport.write(hello)
        await asyncio.gather(*(protocol.is_done for _, protocol in pairs))
        opened += [transport for transport, _ in pairs]
    return opened


async def answer_ms(port: int) -> float:
    """How long a new client waits for its first answers."""
    began_at = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(greeting())
    await read_frame(reader)
    await read_frame(reader)
    writer.close()
    return (time.perf_counter() - began_at) * 1000


async def fill(port: int) -> None:
    """Make a topic of some megabytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
    writer.write(
        request_encoder(ApiKey.CREATE_TOPICS, 7)(1, "fill", m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    )
    await read_frame(reader)
    for number in range(RECORDS):
        records = bytes(build_batch([BatchRecord(None, bytes(RECORD_BYTES - 1_000))], timestamp_ms=1))
        data = m.ProduceRequestPartitionProduceData(index=0, records=records)
        produced = m.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[m.ProduceRequestTopicProduceData(name="t", partition_data=[data])],
        )
        writer.write(request_encoder(ApiKey.PRODUCE, 9)(number, "fill", produced))
        await read_frame(reader)
    writer.close()


def open_slow(port: int, count: int) -> list[socket.socket]:
    """Connect clients that ask for all records and never read."""
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 << 20)
    topics = [m.FetchRequestFetchTopic(topic="t", partitions=[partition])]
    request = m.FetchRequest(topics=topics, max_bytes=64 << 20, min_bytes=1)
    frame = request_encoder(ApiKey.FETCH, 12)(1, "slow", request)
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(frame * REQUESTS_OF_A_READER)
        clients.append(client)
    return clients


def allow_files(connections: int) -> None:
    """Raise the limit of open files of this process and its children. Raises SystemExit if that is not allowed."""
    wanted = (connections + FILES_OF_OTHERS) * 4 // 3 + 1  # a quarter is for segment files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    except (ValueError, OSError):
        sys.exit(
            f"{connections} connections need {wanted} open files; the limit is {hard}. Raise it: ulimit -n {wanted}"
        )


def _resident(broker: ServedKohort) -> int:
    resident = broker.resident_bytes
    assert resident is not None, "this system does not tell the memory of a process"
    return resident


async def measure(broker: ServedKohort, connections: int, slow_readers: int) -> dict[str, float]:
    before = _resident(broker)
    began_at = time.perf_counter()
    if slow_readers:
        await fill(broker.port)
        before = _resident(broker)
        kept: Sequence[object] = open_slow(broker.port, slow_readers)
    else:
        kept = await open_idle(broker.port, connections)
    opened_s = time.perf_counter() - began_at
    waited_ms = max([await answer_ms(broker.port) for _ in range(20)])
    after = _resident(broker)
    result = {
        "connections": len(kept),
        "resident_mb_before": round(before / MB, 1),
        "resident_mb_after": round(after / MB, 1),
        "kb_for_a_connection": round((after - before) / 1e3 / len(kept), 1),
        "seconds_to_open": round(opened_s, 1),
        "longest_wait_of_another_client_ms": round(waited_ms, 1),
    }
    for each in kept:
        each.close()  # type: ignore[attr-defined]
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--connections", type=int, default=10_000, help="idle connections (default: 10000)")
    options.add_argument("--slow-readers", type=int, default=0, help="clients that never read, instead of idle ones")
    options.add_argument("--mb-max", type=float, help="exit with 1 if the broker takes more than this afterwards")
    given = options.parse_args(arguments)
    allow_files(given.slow_readers or given.connections)
    with (
        tempfile.TemporaryDirectory() as directory,
        ServedKohort(Path(directory), expected=["connection.stalled"]) as broker,
    ):
        result = asyncio.run(measure(broker, given.connections, given.slow_readers))
    print(json.dumps(result, indent=2))
    if given.mb_max is not None and result["resident_mb_after"] > given.mb_max:
        sys.exit(1)


if __name__ == "__main__":
    main()
