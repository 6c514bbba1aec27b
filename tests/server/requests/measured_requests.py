"""
The time and memory of the worst requests, beside the bounds of their rows in the table of APIs.

`make largest-requests` sends each of them to a node. It prints the most processor time between two turns of the event loop and
the memory that the request took, and a table with one row an API at the end.
"""

import asyncio
import gc
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.configs.definitions import BrokerConfig
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire.apis import ApiKey
from tests.server.clients import Client, with_coordinators, with_topic
from tests.server.requests.largest_requests import Largest, StoredRequest, stored_requests
from tests.server.requests.worst_requests import Longest, worst_requests

ANSWER_SECONDS_MAX = 120


@dataclass
class Measured:
    """
    Attributes:
        worst_ms: of the processor, between two turns of the event loop.
        memory_mib: resident memory, beyond that before the request.
        answer: bytes, or what happened instead.
    """

    request: Largest | Longest | StoredRequest
    worst_ms: float
    seconds: float
    memory_mib: int
    answer: str

    def __str__(self) -> str:
        return f"{self.worst_ms:8.1f} {self.seconds:9.2f} {self.memory_mib:9} {self.answer:>13}  {self.request}"


async def _measure(address: tuple[str, int], request: Largest | Longest | StoredRequest) -> Measured:
    frame = request.frame()
    gc.collect()
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
    worst, last, is_over = 0.0, time.thread_time(), False
    resident = before = _resident()
    turns = 0

    def tick() -> None:
        nonlocal worst, last, resident, turns
        now = time.thread_time()
        worst = max(worst, now - last)
        turns += 1
        if turns % 50 == 0:
            resident = max(resident, _resident())
        last = time.thread_time()
        if not is_over:
            loop.call_soon(tick)

    # The frame arrives in a process of its own time: only handling is measured.
    writer.write(frame)
    await writer.drain()
    del frame
    began, last = time.perf_counter(), time.thread_time()
    worst = 0.0
    loop.call_soon(tick)
    try:
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), ANSWER_SECONDS_MAX), "big")
        left = size
        while left:
            left -= len(await reader.read(min(left, 1 << 16)))
        answer = f"{size:,}"
    except asyncio.IncompleteReadError:
        answer = "closed"
    except TimeoutError:
        answer = "waiting"
    is_over = True
    took = time.perf_counter() - began
    writer.close()
    await asyncio.sleep(0.01)
    return Measured(request, worst * 1000, took, (resident - before) >> 20, answer)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _of_api(api: ApiKey) -> list[Measured]:
    config = BrokerConfig({"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"})
    node = Node(Settings(port=0, config=config), asyncio.get_running_loop())
    address = await node.start()
    client = Client(*await asyncio.open_connection(*address))
    await with_topic(client)
    await with_coordinators(client)
    found: list[Measured] = []
    elements = API_TABLE[api].cost.elements
    for requests in worst_requests(api, client, elements), stored_requests(api, address):
        async for request in requests:
            found.append(await _measure(address, request))
            print(found[-1], flush=True)
    client.writer.close()
    await node.stop()
    return found


async def _run(names: list[str]) -> None:
    rows = []
    print("worst ms   seconds  MiB more  answer bytes  request", flush=True)
    for api, row in API_TABLE.items():
        if names and api.api_name not in names:
            continue
        found = await _of_api(api)
        worst = max(found, key=lambda each: each.worst_ms)
        memory_mib = max(each.memory_mib for each in found)
        rows.append(
            f"| {api.api_name} | {row.cost.elements} | {row.cost.memory >> 20} | {memory_mib} | {row.cost.step} "
            f"| {worst.worst_ms:.1f} | {worst.request} |"
        )
    print("\n| API | elements | memory, MiB | measured | units of a step | worst step, ms | by |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    try:
        from uvloop import run
    except ImportError:
        run = asyncio.run
    run(_run(sys.argv[1:]))
