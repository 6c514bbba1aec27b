"""`kohort.hosting`: keys and partitions, and the checks that find mistakes of a shard."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.hosting import hosted
from kohort.machine.shard import Deadlines, PlainShard, Result
from kohort.machine.steps import Deadline, Operation
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet, TimelineValue
from kohort.model.errors import ConfigError, InvariantError
from kohort.runtime import InlineProcessor, Runtime
from kohort.testing import FaultyLog, VirtualNode
from tests.runtime.shards import Put, PutSerde

KEYS = ["", "a", "visits", "käse", "a" * 100, "polygenelubricants"]
IN_ANOTHER_PROCESS = """
from kohort.hosting import hosted
from tests.runtime.shards import PutSerde, TableShard
with hosted(TableShard, PutSerde(), partitions=7) as host:
    print([host.partition_of(key) for key in {keys!r}])
"""


class Room:
    """A part of the state that has timelines of its own."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.seats: TimelineDict[str, int] = TimelineDict(registry)


class MixedShard(PlainShard[Put]):
    """State of all forms. `seen` and `asked` need not survive a restart."""

    soft_state = ("seen", "asked")

    def __init__(self, _partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.table: TimelineDict[str, int] = TimelineDict(registry)
        self.names = TimelineSet[str](registry)
        self.total = TimelineValue(registry, 0)
        self.rooms = TimelineDict(registry, {"blue": Room(registry)})
        self.notes: dict[str, int] = {}
        self.count = 0
        self.seen: list[str] = []
        self.asked: TimelineDict[str, int] = TimelineDict(registry)

    def replay(self, _offset: int, _producer_id: int, _producer_epoch: int, record: Put, /) -> None:
        assert record.number is not None
        self.table.put(record.name, record.number)
        self.names.add(record.name)
        self.total.set(self.total.get() + record.number)
        self.rooms["blue"].seats.put(record.name, 1)

    def allowed(self, name: str) -> Result[Put, int]:
        self.seen.append(name)
        self.asked.put(name, len(self.seen))
        self.deadlines.extend(("later",), 1)
        return Result([Put(name, 5)], self.table.get(name, 0))


CHANGES: dict[str, Callable[[MixedShard], Any]] = {
    "table['a']": lambda shard: shard.table.put("a", 1),
    "names": lambda shard: shard.names.add("a"),
    "total": lambda shard: shard.total.set(1),
    "rooms": lambda shard: shard.rooms["blue"].seats.put("a", 1),
    "notes": lambda shard: shard.notes.update(a=1),
    "count": lambda shard: setattr(shard, "count", 1),
    "new": lambda shard: setattr(shard, "new", 1),
}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("has_record", [False, True])
def test_a_change_outside_of_replay_is_refused_where_it_is_checked(
    threads: int, changed: str, has_record: bool
) -> None:
    def operation(shard: MixedShard, _now_ms: int) -> Result[Put, int]:
        CHANGES[changed](shard)
        return Result([Put("b", 1)] if has_record else (), 1)

    with hosted(MixedShard, PutSerde(), threads=threads, checks_state=True) as host:
        with pytest.raises(
            InvariantError, match=re.escape(f"an operation changed MixedShard.{changed} outside of replay")
        ):
            host.write(0, operation)
        assert host.write(0, lambda shard, _now_ms: shard.allowed("a")) == 0
        assert host.write(0, lambda shard, _now_ms: shard.allowed("a")) == 5
        assert host.query(0, lambda shard, _offset: (sorted(shard.names), shard.total.get())) == (["a"], 10)
    with hosted(MixedShard, PutSerde(), threads=threads) as host:
        assert host.write(0, operation) == 1, "nothing is checked unless it is asked for"


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            lambda shard, _now_ms: Result((), shard.table.put("late", 1)),
            "changed MixedShard.table['late'] outside of replay",
        ),
        (lambda _shard, _now_ms: "done", "returned str, and not a Result(records, response)"),
    ],
)
def test_operations_of_deadlines_are_checked_too(
    operation: Callable[..., Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    node, log = VirtualNode(), FaultyLog()
    runtime = Runtime(
        make_shard=MixedShard,
        serde=PutSerde(),
        clock=node.clock,
        processor=InlineProcessor(node.wheel, node.defer, node.call_soon),
        checks_state=True,
    )
    runtime.load(0, log, leader_epoch=1)
    node.settle()
    deadline = Deadline(("later",), 50, Operation(operation))
    answer = runtime.submit(0, lambda _shard, _now_ms: Result((), 1, deadlines=[deadline]))
    assert answer.result() == 1
    node.advance(50)
    assert reason in str(caplog.records[-1].exc_info)
    assert runtime.query(0, lambda shard, _offset: dict(shard.table)) == {}


def test_a_key_has_one_partition_in_every_process(tmp_path: Path) -> None:
    with hosted(MixedShard, PutSerde(), partitions=7) as host:
        here = [host.partition_of(key) for key in KEYS]
        assert set(here) <= set(range(7))
        assert len(set(here)) > 2
    program = IN_ANOTHER_PROCESS.format(keys=KEYS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here)


def allowed(shard: MixedShard, _now_ms: int, name: str) -> Result[Put, int]:
    return shard.allowed(name)


def test_writes_and_queries_by_key_meet_in_one_partition() -> None:
    with hosted(MixedShard, PutSerde(), partitions=7) as host:
        for key in KEYS:
            host.write(key=key, operation=Operation(allowed, key))
            there = dict(host.query(key=key, query=lambda shard, offset: shard.table.items_at(offset)))
            assert there[key] == 5
            assert there == dict(host.query(host.partition_of(key), lambda shard, offset: shard.table.items_at(offset)))


@pytest.mark.parametrize(("partitions", "known"), [(1, "0 is the only one"), (4, "they are 0 to 3")])
@pytest.mark.parametrize("partition", [-1, 4, None])
def test_a_partition_that_is_not_there_names_those_that_are(partitions: int, known: str, partition: int | None) -> None:
    with hosted(MixedShard, PutSerde(), partitions=partitions) as host:
        there_is_none = f"^there is no partition {partition}: {known}$"
        with pytest.raises(ValueError, match=there_is_none):
            host.write(partition, lambda _shard, _now_ms: Result((), 1))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=there_is_none):
            host.query(partition, lambda _shard, _offset: 1)  # type: ignore[arg-type]


def test_fewer_partitions_than_on_the_disk_are_refused(tmp_path: Path) -> None:
    for partitions in (3, 5):
        with hosted(MixedShard, PutSerde(), data_dir=tmp_path, partitions=partitions) as host:
            assert host.write(partitions - 1, lambda shard, _now_ms: shard.allowed("a")) == 0
    with (
        pytest.raises(ConfigError, match=r"has 5 partitions of state, and 4 are asked for$"),
        hosted(MixedShard, PutSerde(), data_dir=tmp_path, partitions=4),
    ):
        pass
    with hosted(MixedShard, PutSerde(), data_dir=tmp_path, partitions=5) as host:
        assert host.write(4, lambda shard, _now_ms: shard.allowed("a")) == 5
