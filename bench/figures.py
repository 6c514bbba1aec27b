"""
Figures measured once for each rival: the duration of a large operation, or memory for each member or offset.

If a rival fails, its figure has a reason instead of a value, and the other rivals continue.
"""

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import open_transactions
from bench.failures import FAILURES, reason
from bench.load.client import (
    RETRIABLE,
    RefusedError,
    decode,
    open_socket,
    read_frame,
    request_frame,
    send_all_until_ready,
    send_until_ready,
)
from bench.load.requests import (
    DATA_PARTITIONS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PARTITIONS,
    PRODUCE,
    TOPIC,
    batch_of,
    commit_code,
    commit_request,
    prepare,
    produce_code,
)
from bench.many_groups import ManyGroups
from bench.servers.rivals import Rival, fresh
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord

LIST_OFFSETS: Final = (ApiKey.LIST_OFFSETS, 7)
CONNECTIONS: Final = 64
FETCHES: Final = 5
LARGE_BATCH_BYTES: Final = 900_000
TOPICS: Final = 10
DISK_TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the measures."""

    groups: int = 1_000
    members: int = 10
    offset_groups: tuple[int, ...] = (10, 100, 1_000)
    transactions: int = 10_000
    partitions: int = 1_000
    recovered_bytes: int = 1_000_000_000
    disk_bytes: int = 268_435_456


SMALL: Final = Scale(
    groups=3,
    members=3,
    offset_groups=(2, 3),
    transactions=20,
    partitions=20,
    recovered_bytes=2_000_000,
    disk_bytes=1_000_000,
)
"""A scale that only shows that the measures run."""


@dataclass(frozen=True, slots=True)
class Figure:
    """
    Attributes:
        rival: "" for the machine itself.
        value: None if the measure failed; the reason follows.
        goal: of Kohort on the developers' machine; 0 if none is set.
    """

    name: str
    unit: str
    rival: str
    value: float | None
    reason: str = ""
    goal: float = 0.0


Taken = Sequence[tuple[str, str, float, float]]
"""Name, unit, value and goal."""


def figures(rivals: Sequence[Rival], scale: Scale, on_step: Callable[[str], None]) -> list[Figure]:
    """Measure all figures of each rival."""
    found = [Figure("disk: dd conv=fdatasync", "MB/s", "", *_disk(scale))]
    for rival in rivals:
        for name, measure in _MEASURES:
            on_step(f"{rival.name}: {name}")
            try:
                found += [
                    Figure(title, unit, rival.name, value, goal=goal)
                    for title, unit, value, goal in measure(rival, scale)
                ]
            except FAILURES as error:
                found.append(Figure(name, "", rival.name, None, reason(error)))
    return found


def _disk(scale: Scale) -> tuple[float | None, str]:
    """Sequential write rate of the disk, with one flush at the end."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory:
        command = [
            "dd",
            "if=/dev/zero",
            f"of={directory}/dd",
            "bs=16k",
            f"count={scale.disk_bytes // 16_384}",
            "conv=fdatasync",
        ]
        began = time.perf_counter()
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=DISK_TIMEOUT_SECONDS)
        except FAILURES as error:
            return None, reason(error)
        return scale.disk_bytes / 1e6 / (time.perf_counter() - began), ""


# -- members ------------------------------------------------------------------------------------------------------------


def _storm(rival: Rival, scale: Scale) -> Taken:
    """Rebalance storm over many groups, and memory for each member."""
    what = f"{scale.groups:,} groups of {scale.members}"
    with fresh(rival, "os") as running, ExitStack() as opened:
        prepare(running.port)
        crowd = ManyGroups(running.port, scale.groups, scale.members, opened)
        before_mb = running.resident_mb
        crowd.gather()
        member_bytes = (running.resident_mb - before_mb) * 1e6 / (scale.groups * scale.members)
        stormed = crowd.storm()
    taken = [
        (f"rebalance storm of {what}: until all have rejoined", "s", stormed.rejoin_seconds, 0.0),
        (f"rebalance storm of {what}: from there until all are stable", "s", stormed.stable_seconds, 10.0),
    ]
    return taken if rival.has_jit else [*taken, ("resident memory of a member", "bytes", member_bytes, 4_000.0)]


# -- offsets ------------------------------------------------------------------------------------------------------------


def _offsets(rival: Rival, scale: Scale) -> Taken:
    """One OffsetFetch of many offsets, and memory for each offset."""
    taken: list[tuple[str, str, float, float]] = []
    with fresh(rival, "os") as running, ExitStack() as opened:
        prepare(running.port)
        sockets = [opened.enter_context(open_socket(running.port)) for _ in range(CONNECTIONS)]
        send_all_until_ready(
            sockets, *OFFSET_COMMIT, [commit_request("bench-warm", PARTITIONS)] * CONNECTIONS, commit_code
        )
        before_mb, committed, offset_bytes = running.resident_mb, 0, 0.0
        for count in scale.offset_groups:
            names = [f"bench-offsets-{number}" for number in range(count)]
            commits = [commit_request(name, PARTITIONS) for name in names[committed:]]
            send_all_until_ready(sockets, *OFFSET_COMMIT, commits, commit_code)
            committed = count
            offset_bytes = (running.resident_mb - before_mb) * 1e6 / (count * PARTITIONS)
            goal = 100.0 if count * PARTITIONS == 100_000 else 0.0
            milliseconds = min(_fetch_ms(sockets[0], names) for _ in range(FETCHES))
            taken.append((f"one OffsetFetch of {count * PARTITIONS:,} offsets", "ms", milliseconds, goal))
    return taken if rival.has_jit else [*taken, ("resident memory of a committed offset", "bytes", offset_bytes, 600.0)]


def _fetch_ms(connection: socket.socket, names: Sequence[str]) -> float:
    """Make one request for all offsets of all groups."""
    topics = [messages.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    groups = [
        messages.OffsetFetchRequestGroup(group_id=it, member_id=None, member_epoch=-1, topics=topics) for it in names
    ]
    frame = request_frame(*OFFSET_FETCH, messages.OffsetFetchRequest(groups=groups, require_stable=False))
    began = time.perf_counter()
    connection.sendall(frame)
    answer = read_frame(connection)
    milliseconds = (time.perf_counter() - began) * 1000
    found = [
        it
        for group in decode(*OFFSET_FETCH, answer).groups
        for topic in group.topics
        for it in topic.partitions
        if it.committed_offset >= 0 and not it.error_code
    ]
    if len(found) != len(names) * PARTITIONS:
        raise RefusedError(f"OffsetFetch returned {len(found):,} offsets of {len(names) * PARTITIONS:,}")
    return milliseconds


# -- transactions -------------------------------------------------------------------------------------------------------


def _open_transactions(rival: Rival, scale: Scale) -> Taken:
    """Resident memory with many open transactions, and memory for each."""
    before_mb, open_mb = open_transactions.resident_mb(rival, scale.transactions)
    each = (open_mb - before_mb) * 1e6 / scale.transactions
    return [
        (f"resident memory with {scale.transactions:,} open transactions", "MB", open_mb, 200.0),
        *([] if rival.has_jit else [("resident memory of an open transaction", "bytes", each, 0.0)]),
    ]


# -- starts -------------------------------------------------------------------------------------------------------------


def _partitions(rival: Rival, scale: Scale) -> Taken:
    """Time from exec until every partition has a leader, after a clean stop."""
    per_topic = scale.partitions // TOPICS
    names = [f"bench-start-{number}" for number in range(TOPICS)]
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name)
        with rival.start("os", directory) as running, open_socket(running.port) as connection:
            _create(connection, names, per_topic)
            batches = [_produced(topic, index, _batch(100)) for topic in names for index in range(per_topic)]
            send_all_until_ready([connection], *PRODUCE, batches, produce_code)
        with rival.start("os", directory) as running, open_socket(running.port) as connection:
            _await_ends(connection, names, per_topic, 1)
            seconds = time.perf_counter() - running.started_at
    return [(f"start on a clean directory of {scale.partitions:,} partitions", "s", seconds, 0.0)]


def _recovery(rival: Rival, scale: Scale) -> Taken:
    """Time from exec until every partition has a leader, after SIGKILL."""
    count = -(-scale.recovered_bytes // LARGE_BATCH_BYTES)
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name)
        with rival.start("os", directory) as running, ExitStack() as opened:
            sockets = [opened.enter_context(open_socket(running.port)) for _ in range(DATA_PARTITIONS)]
            _create(sockets[0], ["bench-recovery"], DATA_PARTITIONS)
            batch = _batch(LARGE_BATCH_BYTES)
            batches = [_produced("bench-recovery", number % DATA_PARTITIONS, batch) for number in range(count)]
            send_all_until_ready(sockets, *PRODUCE, batches, produce_code)
            running.process.kill()
            running.process.wait()
        with rival.start("os", directory) as running, open_socket(running.port) as connection:
            _await_ends(connection, ["bench-recovery"], DATA_PARTITIONS, count // DATA_PARTITIONS)
            seconds = time.perf_counter() - running.started_at
    return [(f"start after a kill, {scale.recovered_bytes / 1e6:,.0f} MB not flushed", "s", seconds, 0.0)]


def _create(connection: socket.socket, names: Sequence[str], partitions: int) -> None:
    for name in names:
        topic = messages.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        create = messages.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        send_until_ready(connection, ApiKey.CREATE_TOPICS, 7, create, lambda created: created.topics[0].error_code)


def _batch(size_bytes: int) -> bytes:
    return batch_of([BatchRecord(key=None, value=bytes(size_bytes))])


def _produced(topic: str, partition: int, batch: bytes) -> Any:
    data = messages.ProduceRequestPartitionProduceData(index=partition, records=batch)
    of_topic = messages.ProduceRequestTopicProduceData(name=topic, partition_data=[data])
    return messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=[of_topic])


def _await_ends(connection: socket.socket, names: Sequence[str], partitions: int, records_min: int) -> None:
    """
    Wait until every partition has a leader and a number of records.

    Raises:
        RefusedError: a partition has fewer records.
    """
    request = messages.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            messages.ListOffsetsTopic(
                name=name,
                partitions=[
                    messages.ListOffsetsPartition(partition_index=index, timestamp=-1, current_leader_epoch=-1)
                    for index in range(partitions)
                ],
            )
            for name in names
        ],
    )
    listed = send_until_ready(connection, *LIST_OFFSETS, request, _listed_code)
    ends = [it.offset for topic in listed.topics for it in topic.partitions]
    if min(ends) < records_min:
        raise RefusedError(
            f"a partition ends at {min(ends):,} after the start, {records_min:,} records were acknowledged"
        )


def _listed_code(listed: Any) -> int:
    codes = {int(it.error_code) for topic in listed.topics for it in topic.partitions} - {0}
    return next(iter(sorted(codes & RETRIABLE) or sorted(codes)), 0)


_MEASURES: Final[tuple[tuple[str, Callable[[Rival, Scale], Taken]], ...]] = (
    ("rebalance storm", _storm),
    ("one OffsetFetch of many offsets", _offsets),
    ("resident memory with open transactions", _open_transactions),
    ("start on a clean directory of many partitions", _partitions),
    ("start after a kill", _recovery),
)
