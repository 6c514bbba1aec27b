"""Start time until the first response, memory, and load time of a coordinator partition."""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from bench.failures import FAILURES, reason
from bench.load.client import open_socket, send, send_all_until_ready, send_until_ready
from bench.load.requests import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PARTITIONS,
    commit_code,
    commit_request,
    fetch_offsets_code,
    fetch_offsets_request,
    prepare,
    refuse_unless_none,
)
from bench.measures import Plan
from bench.servers.rivals import Rival, fresh
from kohort.model.ids import coordinator_partition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

START_GOAL_MS: Final = 200
RESIDENT_GOAL_MB: Final = 60
CONNECTIONS: Final = 64
OFFSETS_PARTITIONS: Final = 50
"""Partitions of `__consumer_offsets`: Apache Kafka's default."""
HELLO: Final = messages.ApiVersionsRequest(client_software_name="bench", client_software_version="1")


@dataclass(frozen=True, slots=True)
class Start:
    """
    Attributes:
        first_answers_ms: from exec to the ApiVersions response, on an empty directory.
        idle_mb: resident memory (10^6 bytes) before the first connection.
        connected_mb: resident memory with 64 connections after ApiVersions.
        loads_ms: by number of offsets, from exec to the first response with a committed offset.
        refused: reasons for missing entries of `loads_ms`.
    """

    rival: str
    first_answers_ms: tuple[float, ...]
    idle_mb: float
    connected_mb: float
    loads_ms: dict[int, float]
    refused: list[str] = field(default_factory=list)


def starts(rivals: Sequence[Rival], plan: Plan, on_step: Callable[[str], None]) -> list[Start]:
    """Measure starts of each rival."""
    taken = []
    for rival in rivals:
        on_step(f"{rival.name}: repeated starts")
        count = -(-plan.starts // 3) if rival.has_jit else plan.starts
        try:
            first_answers_ms = tuple(first_answer_ms(rival) for _ in range(count))
            idle_mb, connected_mb = resident_mb(rival)
        except FAILURES as error:
            taken.append(Start(rival.name, (), 0.0, 0.0, {}, [f"{rival.name} does not start: {reason(error)}"]))
            continue
        one = Start(rival.name, first_answers_ms, idle_mb, connected_mb, {})
        for offsets in plan.offsets:
            on_step(f"{rival.name}: loading {offsets:,} offsets")
            try:
                one.loads_ms[offsets] = load_ms(rival, offsets)
            except FAILURES as error:
                one.refused.append(f"{rival.name} did not return {offsets:,} offsets: {reason(error)}")
        taken.append(one)
    return taken


def first_answer_ms(rival: Rival) -> float:
    with fresh(rival, "os") as running, open_socket(running.port) as connection:
        response = send(connection, ApiKey.API_VERSIONS, 3, HELLO)
        taken_ms = (time.perf_counter() - running.started_at) * 1000
    refuse_unless_none(response.error_code, "ApiVersions")
    return taken_ms


def resident_mb(rival: Rival) -> tuple[float, float]:
    """Return resident memory without and with connections."""
    with fresh(rival, "os") as running, ExitStack() as opened:
        alone = running.resident_mb
        for _ in range(CONNECTIONS):
            send(opened.enter_context(open_socket(running.port)), ApiKey.API_VERSIONS, 3, HELLO)
        return alone, running.resident_mb


def load_ms(rival: Rival, offsets: int) -> float:
    """Commit offsets in groups of one coordinator partition, restart, and fetch one of the last offsets."""
    names = groups_of_one_partition(max(offsets // PARTITIONS, 1))
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name)
        with rival.start("os", directory) as running, ExitStack() as opened:
            prepare(running.port)
            sockets = [opened.enter_context(open_socket(running.port)) for _ in range(CONNECTIONS)]
            commits = [commit_request(group_id, min(PARTITIONS, offsets)) for group_id in names]
            send_all_until_ready(sockets, *OFFSET_COMMIT, commits, commit_code)
        with rival.start("os", directory) as running, open_socket(running.port) as connection:
            send_until_ready(connection, *OFFSET_FETCH, fetch_offsets_request(names[-1], 1), fetch_offsets_code)
            return (time.perf_counter() - running.started_at) * 1000


def groups_of_one_partition(count: int) -> list[str]:
    """Return names of groups in partition 0 of `__consumer_offsets`."""
    names = (f"bench-load-{number}" for number in itertools.count())
    return list(islice((it for it in names if coordinator_partition(it, OFFSETS_PARTITIONS) == 0), count))
