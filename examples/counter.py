"""
A replicated counter: a count is durable in a log before the caller gets it, and a restart restores it.

    python examples/counter.py [DIRECTORY]
"""

import sys
import tempfile
from pathlib import Path

from kohort.hosting import hosted
from kohort.machine import Deadlines, PlainShard, Result, SnapshotRegistry, TimelineDict


class CountSerde:
    """Encodes records: (name, new count)."""

    def encode(self, record: tuple[str, int], /) -> tuple[bytes, bytes | None]:
        return record[0].encode(), str(record[1]).encode()

    def decode(self, key: bytes, value: bytes | None, /) -> tuple[str, int]:
        return key.decode(), int(value or b"0")


class CounterShard(PlainShard[tuple[str, int]]):
    """The counts of one partition."""

    def __init__(self, _partition: int, registry: SnapshotRegistry, _deadlines: Deadlines) -> None:
        self.counts: TimelineDict[str, int] = TimelineDict(registry)

    def increment(self, name: str) -> Result[tuple[str, int], int]:
        """Return the new count, and the record that changes the state."""
        number = self.counts.get(name, 0) + 1
        return Result([(name, number)], number)

    def count(self, name: str, offset: int) -> int:
        """Return the count that is committed at `offset`."""
        return self.counts.get_at(name, offset) or 0

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: tuple[str, int], /) -> None:
        name, number = record
        self.counts.put(name, number)


def main(data_dir: Path) -> None:
    with hosted(CounterShard, CountSerde(), data_dir=data_dir, threads=2) as host:
        for _ in range(3):
            print("visits:", host.write(0, lambda shard, _: shard.increment("visits")))
    with hosted(CounterShard, CountSerde(), data_dir=data_dir, threads=0) as host:
        print("after a restart:", host.query(0, lambda shard, offset: shard.count("visits", offset)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
