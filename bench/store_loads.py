"""
`python -m bench.store_loads`: the load of a coordinator's partition with a million offsets, from a directory and a database.

For each: the time on the clock, the processor time of the thread that serves clients, and that of the database.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import UUID

import psutil

from bench.runtime import group_shard, offsets_log
from kohort.group.records import GroupRecordSerde
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.runtime.background import DaemonThreads
from kohort.runtime.loading import columnar
from kohort.runtime.loading.ahead import read_ahead
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.runtime.processors import InlineProcessor
from kohort.server.node import configure_garbage_collector
from kohort.storage.disk import DiskStore
from kohort.storage.log import Log, LogConfig
from kohort.storage.postgres import PostgresStore
from kohort.testing import VirtualNode
from kohort.testing.watched import NoDeadlines
from kohort.wire.batches import iter_batches
from kohort_lab.database import Database


class Loads:
    """Stores with the same partition, and the thread that owns them."""

    def __init__(self, count: int, directory: Path) -> None:
        assert columnar.WINDOWS_BYTES, "it is imported here, so that no load pays for that"
        self._count = count
        self._directory = directory
        self._node = VirtualNode()
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._database = Database(on_disk=directory).make_store()
        self._makers: dict[str, Callable[[], Any]] = {
            "directory": lambda: DiskStore(
                directory / "data",
                defer=self._node.defer,
                call_soon_threadsafe=self._posted.put,
                clock=self._node.clock,
                flush="commit",
                node_id=1,
            ),
            "database": lambda: PostgresStore(
                self._database.url, defer=self._node.defer, call_soon_threadsafe=self._posted.put
            ),
        }
        self.close = self._database.close

    def fill(self) -> None:
        source = offsets_log(1, self._count)
        for make in self._makers.values():
            with closing(make()) as store:
                log, offset = self._log(store), 0
                while offset < self._count:
                    data = source.read(offset, bytes_max=1 << 20)
                    for at, header in iter_batches(data):
                        log.append(data[at : at + header.size_bytes], leader_epoch=0)
                        offset = header.next_offset
                    store.flush()

    def _log(self, store: Any) -> Log:
        log: Log = store.open(TopicPartition(CONSUMER_OFFSETS, 0), UUID(int=1), LogConfig(cleanup_policy="compact"))
        return log

    def measured(self) -> dict[str, dict[str, float]]:
        return {name: self._load(make) for name, make in self._makers.items()}

    def _load(self, make: Callable[[], Any]) -> dict[str, float]:
        with closing(make()) as store:
            log, threads, summary = self._log(store), DaemonThreads(), LoadSummary()
            executor = InlineProcessor(
                self._node.wheel,
                self._node.defer,
                self._node.call_soon,
                background=threads.submit,
                call_soon_threadsafe=self._posted.put,
            )
            server_s, thread_s, began_s = self._server_s(), time.thread_time(), time.perf_counter()
            steps = load(
                log,
                group_shard(NoDeadlines()),
                GroupRecordSerde(),
                summary,
                start=0,
                end=self._count,
                ahead=read_ahead(log, executor),
            )
            longest_s, last_s = 0.0, thread_s
            for pause in steps:
                now_s = time.thread_time()
                longest_s, last_s = max(longest_s, now_s - last_s), now_s
                if pause is not None:
                    is_read: list[bool] = []
                    pause.when_read(lambda is_read=is_read: is_read.append(True))  # type: ignore[misc]
                    while not is_read:
                        self._posted.get()()
            found = {
                "seconds": time.perf_counter() - began_s,
                "thread_cpu_s": time.thread_time() - thread_s,
                "longest_step_cpu_ms": longest_s * 1e3,
                "database_cpu_s": self._server_s() - server_s,
            }
            threads.close()
            assert summary.records == self._count
            return {name: round(value, 3) for name, value in found.items()}

    def _server_s(self) -> float:
        server = psutil.Process(self._database.pid)
        times = [process.cpu_times() for process in (server, *server.children())]
        return float(sum(each.user + each.system for each in times))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.store_loads", description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="offsets, each of a key of its own")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    configure_garbage_collector()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        with closing(Loads(options.count, Path(directory))) as loads:
            loads.fill()
            for _ in range(options.rounds):
                print(json.dumps(loads.measured()))


if __name__ == "__main__":
    main()
