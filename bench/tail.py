"""
The tail: heartbeats at half of what the server can do, beside everything that takes long.

    make tail                             # all works
    make tail TAIL="--only compaction"    # one of them
    make tail TAIL="--turns"              # on a busy machine: processor time of turns, instead of latencies

Clients of 64 groups send heartbeats at a fixed rate, from a process of its own, while another client causes a long work. The
latency of a heartbeat begins when it is due, so a stall counts for each one that waits. `quiet` has no such work.

`--turns` looks at the event loop itself: the longest processor time between two of its turns, and where the thread was in it
(`bench/servers/turns.py`). What arrives meanwhile waits so long, whatever else the machine does. The loop does not rest then,
so latencies mean nothing.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import count, cycle, groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.consumer_groups import GROUP, TOPICS, Member, settle
from bench.load.beat import beat
from bench.load.client import open_socket, send, send_all_until_ready, send_until_ready
from bench.load.requests import (
    GROUPS,
    PARTITIONS,
    PRODUCE,
    SESSION_TIMEOUT_MS,
    TOPIC,
    batch_of,
    commit_code,
    create_topic,
    group_of,
    heartbeat_lanes,
    produce_code,
)
from bench.servers.process import Server, running
from bench.servers.rivals import KOHORT_COMMAND
from kohort.client.control import ControlClient
from kohort.model.ids import TopicPartition, coordinator_partition
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord

OFFSETS_PARTITIONS: Final = 50
CONNECTIONS: Final = 16
BEATING: Final = 512
"""
Connections with heartbeats. Each has one in flight, so that fewer of them would send less than the rate beside turns of some
milliseconds.
"""
CAPACITY_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 5.0
WARM_UP: Final = 50
SETTLE_SECONDS: Final = 0.5
WAIT_SECONDS_MAX: Final = 300.0
GOAL_MS: Final = 10.0
PERCENTS: Final = (50, 99, 99.9, 100)
TEN_TOPICS: Final = [f"deleted-{number}" for number in range(10)]
RETENTION_MS: Final = 1
PRODUCED_TOGETHER: Final = 500
RECORD: Final = batch_of([BatchRecord(key=None, value=b"v")])
COMMIT: Final = (ApiKey.OFFSET_COMMIT, 4)
"""The last version that says how long an offset is kept."""
LONG_PARTITION: Final = next(
    iter(
        set(range(OFFSETS_PARTITIONS))
        - {coordinator_partition(f"{group_of(it)}-members-0", 50) for it in range(GROUPS)}
    )
)
"""A partition of `__consumer_offsets` that has none of the groups whose members send heartbeats."""


class Scale(NamedTuple):
    """How long the works are: those of the requirement."""

    loaded: int = 1_000_000
    expired: int = 100_000
    deleted: int = 10_000
    members: int = 1_000
    compacted: int = 400_000


SMALL: Final = Scale(loaded=2_000, expired=1_000, deleted=200, members=20, compacted=40_000)


class Work(NamedTuple):
    """
    Attributes:
        prepare: what is done before the heartbeats begin.
        run: what is done beside them; returns when it is over.
        options: of the server.
        restarts: whether the server starts again between the two.
    """

    name: str
    run: Callable[[Server, Scale], None]
    prepare: Callable[[Server, Scale], None] = lambda _server, _scale: None
    options: Sequence[str] = ()
    restarts: bool = False


@cache
def _groups_of_one_partition(number: int, prefix: str) -> list[str]:
    names = (f"{prefix}-{each}" for each in count())
    return list(islice((it for it in names if coordinator_partition(it, OFFSETS_PARTITIONS) == LONG_PARTITION), number))


def _commit(server: Server, names: Sequence[str], offset: int, retention_ms: int = -1) -> None:
    """Commit `PARTITIONS` offsets for each group."""
    partitions = [
        messages.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    topics = [messages.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    requests = [
        messages.OffsetCommitRequest(group_id=name, retention_time_ms=retention_ms, topics=topics) for name in names
    ]
    with ExitStack() as opened:
        sockets = [opened.enter_context(open_socket(server.port)) for _ in range(CONNECTIONS)]
        send_all_until_ready(sockets, *COMMIT, requests, commit_code)


def _offsets(server: Server, name: str) -> int:
    """How many offsets a group has; -1 while its coordinator loads."""
    group = messages.OffsetFetchRequestGroup(group_id=name, member_id=None, member_epoch=-1, topics=None)
    with open_socket(server.port) as connection:
        answer: Any = send(connection, ApiKey.OFFSET_FETCH, 9, messages.OffsetFetchRequest(groups=[group]))
    found = answer.groups[0]
    return -1 if found.error_code else sum(len(topic.partitions) for topic in found.topics)


def _find(connection: socket.socket, group: str) -> None:
    """Have the topic of the coordinators created, and wait for its partitions."""
    find = messages.FindCoordinatorRequest(coordinator_keys=[group])
    send_until_ready(connection, ApiKey.FIND_COORDINATOR, 4, find, lambda it: int(it.coordinators[0].error_code))


def _await(is_over: Callable[[], bool], what: str) -> None:
    """
    Raises:
        TimeoutError: it takes too long.
    """
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_over():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} is not over after {WAIT_SECONDS_MAX:g} s")
        time.sleep(0.05)


# -- the works ----------------------------------------------------------------------------------------------------------


def _quiet(_server: Server, _scale: Scale) -> None:
    time.sleep(QUIET_SECONDS)


def _commit_to_expire(server: Server, scale: Scale) -> None:
    _commit(server, _groups_of_one_partition(scale.expired // PARTITIONS, "expired"), 1, RETENTION_MS)


def _expire(server: Server, scale: Scale) -> None:
    names = _groups_of_one_partition(scale.expired // PARTITIONS, "expired")
    _await(lambda: not any(_offsets(server, name) for name in names), "the expiry of offsets")


def _commit_to_load(server: Server, scale: Scale) -> None:
    _commit(server, _groups_of_one_partition(scale.loaded // PARTITIONS, "loaded"), 1)


def _load(server: Server, scale: Scale) -> None:
    name = _groups_of_one_partition(scale.loaded // PARTITIONS, "loaded")[-1]
    _await(lambda: _offsets(server, name) == PARTITIONS, "the load")


def _commit_to_compact(server: Server, scale: Scale) -> None:
    names = _groups_of_one_partition(10, "compacted")
    for offset in range(scale.compacted // PARTITIONS // len(names)):
        _commit(server, names, offset)
    # The first request of a kind has imports.
    send_config(server, "log.cleaner.backoff.ms", "600000")


def _log_bytes(server: Server) -> int:
    directory = server.directory / "data" / f"__consumer_offsets-{LONG_PARTITION}"
    size = 0
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):  # a cleaned segment has replaced it
            size += path.stat().st_size
    return size


def _compact(server: Server, _scale: Scale) -> None:
    """Wait until the log is a tenth of what it was; its active segment stays."""
    before = _log_bytes(server)
    send_config(server, "log.cleaner.backoff.ms", "100")
    _await(lambda: _log_bytes(server) < before / 2, "compaction")
    time.sleep(SETTLE_SECONDS)


def send_config(server: Server, name: str, value: str) -> None:
    """Set a configuration of the cluster."""
    config = messages.IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=0, value=value)
    resource = messages.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=4, resource_name="", configs=[config]
    )
    request = messages.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with open_socket(server.port) as connection:
        answer: Any = send(connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    if answer.responses[0].error_code:
        raise RuntimeError(f"{name}: {answer.responses[0].error_message}")


def _create(server: Server, partitions: int) -> None:
    """Create ten topics, and write to all of their partitions."""
    with open_socket(server.port) as connection:
        for name in TEN_TOPICS:
            create_topic(connection, name, partitions // 10)
        names = [TopicPartition(name, index) for name in TEN_TOPICS for index in range(partitions // 10)]
        for low in range(0, len(names), PRODUCED_TOGETHER):
            send_until_ready(connection, *PRODUCE, _produced(names[low : low + PRODUCED_TOGETHER]), produce_code)


def _produced(partitions: Sequence[TopicPartition]) -> Any:
    """A request with a record for each partition: a partition that was never used has no log."""
    topics = [
        messages.ProduceRequestTopicProduceData(
            name=name,
            partition_data=[
                messages.ProduceRequestPartitionProduceData(index=index, records=RECORD) for _, index in of_topic
            ],
        )
        for name, of_topic in groupby(partitions, key=lambda it: it[0])
    ]
    return messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=topics)


def _create_to_delete(server: Server, scale: Scale) -> None:
    _create(server, scale.deleted)


def _delete(server: Server, _scale: Scale) -> None:
    named = [messages.DeleteTopicsRequestDeleteTopicState(name=name, topic_id=None) for name in TEN_TOPICS]
    with open_socket(server.port) as connection:
        answer: Any = send(
            connection, ApiKey.DELETE_TOPICS, 6, messages.DeleteTopicsRequest(topics=named, timeout_ms=60_000)
        )
    if any(it.error_code for it in answer.responses):
        raise RuntimeError(f"a topic cannot be deleted: {answer}")
    data = server.directory / "data"
    _await(lambda: not _has_deleted(data), "the deletion of files")


def _has_deleted(data: Path) -> bool:
    """Whether a directory of the deleted topics is there; looks no further, because this takes time of the server's machine."""
    with os.scandir(data) as entries:
        return any(entry.name.startswith("deleted-") for entry in entries)


def _create_for_members(server: Server, scale: Scale) -> None:
    with open_socket(server.port) as connection:
        for topic in TOPICS:
            create_topic(connection, topic, 10 * scale.members // len(TOPICS))
        # The first members of a node have its assignors imported.
        for version in (0, 1):
            for epoch in (0, -1):
                joining = messages.ConsumerGroupHeartbeatRequest(
                    group_id=f"first-{version}",
                    member_id="m",
                    member_epoch=epoch,
                    rebalance_timeout_ms=SESSION_TIMEOUT_MS,
                    subscribed_topic_names=[TOPIC],
                    topic_partitions=[],
                )
                send(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, joining)


def _assign(server: Server, scale: Scale) -> None:
    with ExitStack() as opened:
        sockets = [opened.enter_context(open_socket(server.port)) for _ in range(CONNECTIONS)]
        members = [Member(f"member-{number:05}") for number in range(scale.members)]
        settle(sockets, members, 10 * scale.members // len(TOPICS) * len(TOPICS))


def _fill(server: Server, scale: Scale) -> None:
    _commit(server, _groups_of_one_partition(scale.expired // PARTITIONS, "kept"), 1)
    _create(server, scale.deleted // 10)


def _snapshot(server: Server, _scale: Scale) -> None:
    client = ControlClient(json.loads((server.directory / "ready").read_text())["control"])
    for _ in range(10):
        taken = client.post("snapshots", body={"scope": "tail"})
        client.delete("snapshots", taken["id"])


DISK: Final = ("--flush", "os", "--data-dir", "{directory}/data")
WORKS: Final = (
    Work("quiet", _quiet, options=DISK),
    Work(
        "compaction",
        _compact,
        _commit_to_compact,
        (*DISK, "--set", "log.cleaner.backoff.ms=600000", "--set", "offsets.topic.segment.bytes=1048576"),
    ),
    Work(
        "expiry of 100,000 offsets",
        _expire,
        _commit_to_expire,
        (*DISK, "--set", "offsets.retention.check.interval.ms=8000"),
        restarts=True,
    ),
    Work("deletion of 10,000 partitions", _delete, _create_to_delete, DISK),
    Work("load of 1,000,000 offsets", _load, _commit_to_load, DISK, restarts=True),
    Work("assignment for 1,000 members", _assign, _create_for_members, DISK),
    Work(
        "snapshots of the testing kit",
        _snapshot,
        _fill,
        ("--memory", "--control-port", "0", "--ready-file", "{directory}/ready"),
    ),
)


# -- measuring ----------------------------------------------------------------------------------------------------------


@contextmanager
def _serve(work: Work, directory: Path, turns: Path | None) -> Iterator[Server]:
    options = [option.format(directory=directory) for option in work.options]
    command = [KOHORT_COMMAND] if turns is None else [sys.executable, "-m", "bench.servers.turns", str(turns)]
    command += ["serve", "--host", "127.0.0.1", "--port", "0", "--set", "group.initial.rebalance.delay.ms=0", *options]
    with running(command, directory) as server:
        yield server


def _beat(port: int, rate: int) -> None:
    """Print the capacity without a rate; with one send heartbeats until the input ends, and print percentiles."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(open_socket(port)) for _ in range(BEATING)]
        members = cycle(heartbeat_lanes(sockets[:GROUPS], GROUPS, opened))
        lanes = [replace(member, connection=each) for member, each in zip(members, sockets, strict=False)]
        beat(lanes, 0, seconds=CAPACITY_SECONDS / 4)
        if not rate:
            print(round(beat(lanes, 0, seconds=CAPACITY_SECONDS).answers / CAPACITY_SECONDS))
            return
        print("ready", flush=True)
        found = beat(lanes, rate, stop_fd=sys.stdin.fileno())
        print(json.dumps([*map(found.latency_ms, PERCENTS), found.late_ms(PERCENTS[-2])]))


def _percentiles(port: int, rate: int, run_work: Callable[[], None]) -> list[float]:
    """Milliseconds: latencies at `PERCENTS` beside a work, and the lateness of the generator at the last but one of them."""
    command = [sys.executable, "-m", "bench.tail", "--beat", str(port), "--rate", str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it has a pipe"
        process.stdout.readline()
        try:
            run_work()
        finally:
            printed, _ = process.communicate()
    found: list[float] = json.loads(printed)
    return found


def _capacity(port: int) -> int:
    command = [sys.executable, "-m", "bench.tail", "--beat", str(port)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _longest_turn(server: Server, turns: Path, run_work: Callable[[], None]) -> tuple[float, str]:
    """Milliseconds of the processor, and where they were spent."""

    def ask() -> list[str]:
        turns.unlink(missing_ok=True)
        server.process.send_signal(signal.SIGUSR1)
        _await(lambda: turns.exists() and turns.read_text().endswith("\n"), "the answer of the server")
        return turns.read_text().splitlines()

    ask()
    run_work()
    milliseconds, where = ask()
    return float(milliseconds), where


def measure(work: Work, scale: Scale, rate: int, *, is_turns: bool) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name, ExitStack() as opened:
        directory = Path(name)
        turns = directory / "turns" if is_turns else None
        server = opened.enter_context(_serve(work, directory, turns))
        with open_socket(server.port) as connection:
            create_topic(connection, TOPIC, PARTITIONS)
            _find(connection, GROUP)
        work.prepare(server, scale)
        if work.restarts:
            opened.close()
            server = opened.enter_context(_serve(work, directory, turns))
        # The first requests of a node import what they need.
        for _ in range(WARM_UP):
            _offsets(server, GROUP)
        began = time.perf_counter()
        if turns is not None:
            milliseconds, where = _longest_turn(server, turns, lambda: work.run(server, scale))
            return f"{work.name:32} {time.perf_counter() - began:8.1f} s {milliseconds:9.2f} ms  {where}"
        rate = rate or _capacity(server.port) // 2
        found = _percentiles(server.port, rate, lambda: work.run(server, scale))
        seconds = time.perf_counter() - began
        mark = "" if found[2] < GOAL_MS else "  above the goal"
        return f"{work.name:32} {seconds:8.1f} s {rate:8,}/s " + "".join(f"{it:10.2f}" for it in found) + mark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="only works whose names begin so")
    parser.add_argument("--turns", action="store_true", help="the longest turns of the event loop, on a busy machine")
    parser.add_argument("--rate", type=int, default=0, help="heartbeats a second (default: half of the capacity)")
    parser.add_argument("--quick", action="store_true", help="small works that only show that it runs")
    parser.add_argument("--beat", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beat:
        _beat(options.beat, options.rate)
        return
    if not options.turns:
        print(
            f"{'beside':32} {'took':>10} {'heartbeats':>10}{'p50 ms':>11}{'p99':>10}{'p99.9':>10}{'max':>10}{'late':>10}"
        )
    for work in WORKS:
        if work.name.startswith(options.only or ""):
            print(measure(work, SMALL if options.quick else Scale(), options.rate, is_turns=options.turns), flush=True)


if __name__ == "__main__":
    main()
