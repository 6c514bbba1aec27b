"""
Costs of the coordinator runtime alone, on one core: `python -m bench.runtime`.

Comparisons: a plain dict for timeline structures; a heap with lazy deletion, as event loops have, for timers; for loading,
aiokafka's native reader that puts the newest record of each key into a dict without decoding it. Times are processor times, the
best of several rounds; of the steps of all loads, the longest. `--json` prints JSON; `python -m bench` may call `figures()`.
"""

import argparse
import gc
import itertools
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from time import process_time
from typing import Any
from uuid import UUID

import msgspec

from kohort.group.configs import GroupConfig
from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.machine.shard import Deadlines, PlainShard, Result
from kohort.machine.timeline import SnapshotRegistry, TimelineDict
from kohort.model.ids import TRANSACTION_STATE, TopicPartition
from kohort.records.values import OffsetCommit
from kohort.runtime.loading import columnar
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.runtime.ports import PartitionLog
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.runtime import Runtime
from kohort.runtime.timers.wheel import Wheel
from kohort.server.node import configure_garbage_collector
from kohort.storage.log import LogConfig
from kohort.storage.memory import MemoryStore
from kohort.testing import VirtualNode
from kohort.testing.watched import NoDeadlines
from kohort.transaction.config import TransactionConfig
from kohort.transaction.records import TransactionRecordSerde
from kohort.transaction.shard import TransactionShard
from kohort.transaction.transaction import VERSION_2, new_transaction
from kohort.wire.batches import encode_batch, iter_batches, read_records

ROUNDS = 3
Pair = tuple[str, int]


class PairSerde:
    """One small record."""

    def encode(self, record: Pair, /) -> tuple[bytes, bytes | None]:
        return record[0].encode(), b"%d" % record[1]

    def decode(self, key: bytes, value: bytes | None, /) -> Pair:
        return key.decode(), int(value or b"0")


class PairShard(PlainShard[Pair]):
    def __init__(self, _partition: int, registry: SnapshotRegistry, _deadlines: Deadlines) -> None:
        self.table: TimelineDict[str, int] = TimelineDict(registry)

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: Pair, /) -> None:
        self.table.put(*record)


def best(run: Callable[[], int], rounds: int = ROUNDS) -> float:
    """Operations per second in the best round; `run` returns the number of its operations."""
    rates = []
    for _ in range(rounds):
        gc.collect()
        started = process_time()
        count = run()
        rates.append(count / (process_time() - started))
    return max(rates)


def writes(*, records: bool) -> Callable[[], int]:
    """Operations through the inline runtime over the memory log, 64 at a time; with a record each, or none."""
    node = VirtualNode()
    store = MemoryStore(node.defer)
    runtime = Runtime(
        make_shard=PairShard,
        serde=PairSerde(),
        clock=node.clock,
        processor=InlineProcessor(node.wheel, node.defer, node.call_soon),
    )
    runtime.load(0, store.open(TopicPartition("state", 0), UUID(int=1), LogConfig()), 0)
    result: Result[Pair, str] = Result([("name", 1)] if records else (), "ok")
    answered = [0]

    def reply(_: object) -> None:
        answered[0] += 1

    def run() -> int:
        write, count, before = runtime.write, 128_000, answered[0]
        for _ in range(count // 64):
            for _ in range(64):
                if write(0, lambda _shard, _now_ms: result, reply, str) is not None:
                    answered[0] += 1
            node.settle()
        assert answered[0] == before + count
        return count

    return run


def timeline(keys: int = 1_000_000, count: int = 400_000) -> Iterator[tuple[str, float]]:
    """Getting and putting at a million keys, a snapshot each 100 writes, beside a dict."""
    registry = SnapshotRegistry()
    past: TimelineDict[int, int] = TimelineDict(registry, ((key, key) for key in range(keys)))
    plain = dict.fromkeys(range(keys), 0)
    chosen = random.Random(1).choices(range(keys), k=count)
    epochs = iter(range(1, 1 << 40))

    def get_all(table: Mapping[int, int]) -> Callable[[], int]:
        def run() -> int:
            for key in chosen:
                table[key]
            return count

        return run

    def put_past() -> int:
        put = past.put
        for start in range(0, count, 100):
            epoch = next(epochs)
            registry.create(epoch)
            registry.delete_up_to(epoch - 2)
            for key in chosen[start : start + 100]:
                put(key, start)
        return count

    def put_plain() -> int:
        for start in range(0, count, 100):
            for key in chosen[start : start + 100]:
                plain[key] = start
        return count

    yield "dict: get", best(get_all(plain))
    yield "timeline dict: get", best(get_all(past))
    yield "dict: put", best(put_plain)
    yield "timeline dict: put, a snapshot each 100", best(put_past)


def offsets_log(repeats: int, count: int) -> PartitionLog:
    """A partition of `__consumer_offsets` with as many commits, each key so many times."""
    serde = GroupRecordSerde()
    node = VirtualNode()
    log = MemoryStore(node.defer).open(TopicPartition("__consumer_offsets", 0), UUID(int=1), LogConfig())
    keys = count // repeats
    for start in range(0, count, 500):
        pairs = [
            serde.encode(
                OffsetCommit(
                    group_id=f"group-{key % keys % 100}",
                    topic=f"topic-{key % keys // 100}",
                    partition=key % keys % 7,
                    offset=key,
                    leader_epoch=-1,
                    metadata="",
                    commit_timestamp_ms=1_700_000_000_000,
                    expire_timestamp_ms=-1,
                )
            )
            for key in range(start, start + 500)
        ]
        log.append(encode_batch(pairs, 1_700_000_000_000), leader_epoch=0)
    node.settle()
    return log


def transactions_log(ids: int, count: int) -> PartitionLog:
    """A partition of `__transaction_state`: each transaction has three records, and one partition; the ids take turns."""
    serde, node, now_ms = TransactionRecordSerde(), VirtualNode(), 1_700_000_000_000
    log = MemoryStore(node.defer).open(TopicPartition(TRANSACTION_STATE, 0), UUID(int=1), LogConfig())
    lives = []
    for number in range(ids):
        before = new_transaction(f"transactional-id-{number}", number, 60_000, now_ms)
        ongoing = before.with_partitions(frozenset({TopicPartition("topic", number % 7)}), VERSION_2, now_ms)
        prepared = ongoing.prepared(committed=True, client_version=VERSION_2, now_ms=now_ms)
        lives.append([serde.encode(each) for each in (ongoing, prepared, prepared.completed(now_ms))])
    in_turn = itertools.chain.from_iterable(itertools.cycle(lives))
    for _ in range(0, count, 500):
        log.append(encode_batch(list(itertools.islice(in_turn, 500)), now_ms), leader_epoch=0)
    node.settle()
    return log


def group_shard(deadlines: Deadlines) -> GroupShard:
    return GroupShard(SnapshotRegistry(), deadlines, GroupConfig(), lambda: "id")


def transaction_shard(_deadlines: Deadlines) -> TransactionShard:
    """A shard that is only loaded: it sends no marker and takes no producer id."""
    absent: Any = None
    return TransactionShard(SnapshotRegistry(), TransactionConfig(), absent, absent)


def loading(
    log: PartitionLog, longest: list[float], make_shard: Callable[[Deadlines], Any], serde: Any
) -> Callable[[], int]:
    """The load of a partition; the seconds of its longest step are noted."""
    count = log.end_offset
    assert columnar.WINDOWS_BYTES, "it is imported here, so that no load pays for that"

    def run() -> int:
        shard = make_shard(NoDeadlines())
        summary = LoadSummary()
        began = process_time()
        for _ in load(log, shard, serde, summary, start=0, end=count):
            ended = process_time()
            longest.append(ended - began)
            began = ended
        assert summary.records == count
        return count

    return run


def reading(log: PartitionLog) -> Callable[[], int]:
    """What loading is beside: the records of the partition, read one by one, the newest of each key in a dict."""

    def run() -> int:
        newest: dict[bytes | None, Any] = {}
        offset = 0
        while offset < log.end_offset:
            window = log.read(offset, bytes_max=5 << 20)
            for position, header in iter_batches(window):
                batch = memoryview(window)[position : position + header.size_bytes]
                newest.update((record.key, record) for record in read_records(batch, header=header))
                offset = header.next_offset
        return log.end_offset

    return run


def loads() -> Iterator[tuple[str, float]]:
    for name, repeats in (("each key 20 times", 20), ("all keys distinct", 1)):
        log, longest = offsets_log(repeats, 400_000), [0.0]
        yield f"aiokafka and a dict: {name}", best(reading(log))
        yield f"load, {name}", best(loading(log, longest, group_shard, GroupRecordSerde()))
        yield f"longest step of it, {name}", 1 / max(longest)
    for name, ids in (("1,000 transactional ids", 1_000), ("100,000 transactional ids", 100_000)):
        log, longest = transactions_log(ids, 1_000_000), [0.0]
        yield f"load, {name}", best(loading(log, longest, transaction_shard, TransactionRecordSerde()))
        yield f"longest step of it, {name}", 1 / max(longest)


def nothing() -> None:
    """What a timer does that never fires."""


def timers(armed: int = 1_000_000, count: int = 500_000) -> Iterator[tuple[str, float]]:
    """A million armed timers, moved to later as heartbeats do, beside a heap with lazy deletion."""
    wheel = Wheel(0)
    handles = [wheel.arm(45_000 + index % 10_000, nothing) for index in range(armed)]
    chosen = random.Random(1).choices(range(armed), k=count)

    def move() -> int:
        step = wheel.move
        for index in chosen:
            handles[index] = step(handles[index], 90_000)
        return count

    heap = [(45_000 + index % 10_000, index) for index in range(armed)]
    heap.sort()

    def push() -> int:
        for index in chosen:
            heappush(heap, (90_000, index))
        for _ in chosen:
            heappop(heap)
        return count

    yield "heap: re-arm one of a million timers", best(push)
    yield "wheel: re-arm one of a million timers", best(move)


GOALS = {
    "write, one record, 64 at a time": 200_000,
    "load, each key 20 times": 3_000_000,
    "load, all keys distinct": 1_000_000,
    "load, 1,000 transactional ids": 500_000,
    "load, 100,000 transactional ids": 500_000,
    "longest step of it, each key 20 times": 50,
    "longest step of it, all keys distinct": 50,
    "wheel: re-arm one of a million timers": 500_000,
}
PEERS = {
    "timeline dict: get": "dict: get",
    "timeline dict: put, a snapshot each 100": "dict: put",
    "load, each key 20 times": "aiokafka and a dict: each key 20 times",
    "load, all keys distinct": "aiokafka and a dict: all keys distinct",
    "wheel: re-arm one of a million timers": "heap: re-arm one of a million timers",
}


class Figure(msgspec.Struct, frozen=True):
    """How many a second; what the issue asked for, and what stands beside it, where there are such."""

    name: str
    per_second: float
    goal_per_second: float | None = None
    peer: str | None = None
    peer_per_second: float | None = None


def measures() -> Iterator[tuple[str, float]]:
    yield "write, answered on the spot", best(writes(records=False))
    yield "write, one record, 64 at a time", best(writes(records=True))
    yield from timeline()
    yield from loads()
    yield from timers()


def figures() -> Iterator[Figure]:
    """Everything, in half a minute; a peer comes before what stands beside it."""
    seen: dict[str, float] = {}
    for name, per_second in measures():
        seen[name] = per_second
        peer = PEERS.get(name)
        yield Figure(name, per_second, GOALS.get(name), peer, seen[peer] if peer else None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.runtime", description="The coordinator runtime by itself.")
    parser.add_argument("--json", action="store_true", help="one array of figures")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    configure_garbage_collector()
    found = []
    for figure in figures():
        found.append(figure)
        if not arguments.json:
            beside = f"  {figure.per_second / figure.peer_per_second:.2f}x" if figure.peer_per_second else ""
            goal = f"  goal {figure.goal_per_second:,}/s" if figure.goal_per_second else ""
            print(f"{figure.name:42} {figure.per_second:12,.0f}/s {1e9 / figure.per_second:12,.0f} ns{beside}{goal}")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))


if __name__ == "__main__":
    main()
