"""Measures and their execution. Rivals take turns in rounds, so that a change of the machine's speed affects all of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from bench.failures import FAILURES, reason
from bench.load.client import open_socket, request_frame
from bench.load.closed_loop import Round, Summary, lanes_of, run
from bench.load.open_loop import run_at_rate
from bench.load.rebalance_storm import Storm
from bench.load.requests import (
    GROUPS,
    HEARTBEAT,
    check_heartbeat,
    commit_lanes,
    consumer_heartbeat_lanes,
    fetch_lanes,
    fetch_offsets_lanes,
    group_of,
    heartbeat_lanes,
    prepare,
    produce_lanes,
)
from bench.load.transactions import Transactions
from bench.servers import process
from bench.servers.process import Server
from bench.servers.rivals import Rival, fresh
from kohort.wire import messages

CONSUMER_HEARTBEAT: Final = "consumer heartbeat"
TRANSACTIONS: Final = "transactions"
Drive: TypeAlias = Callable[[float], Round]
"""A prepared load: runs one round of some seconds."""


@dataclass(frozen=True, slots=True)
class Measure:
    """
    A measure: one row of the table for each rival.

    Attributes:
        groups: number of groups.
        partitions: number of partitions in each commit, offset fetch or produce request.
        rate: requests per second of an open loop; None for a closed loop.
        goal: requests per second for Kohort on the developers' machine (2 cores, shared with the load).
        growth: part of a series that shows how cost grows with groups, members or partitions.
    """

    name: str
    flush: str
    connections: int
    goal: int = 0
    groups: int = GROUPS
    partitions: int = 1
    rate: int | None = None
    growth: bool = False

    def title(self) -> str:
        title = self.name
        if self.name == "rebalance":
            return f"rebalance of {_counted(self.connections, 'member')}"
        if self.name == TRANSACTIONS:
            return f"transactions, {_counted(self.connections, 'producer')}"
        if self.partitions > 1:
            title += f" of {self.partitions} partitions"
        if self.groups != GROUPS:
            title += f", {_counted(self.groups, 'group')}"
        title += f", {_counted(self.connections, 'connection')}"
        return title if self.rate is None else f"{title}, at {self.rate:,}/s"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


# fmt: off
MEASURES: Final = (
    Measure("commit", "memory", 1),
    Measure("commit", "memory", 8),
    Measure("commit", "memory", 64),
    Measure(TRANSACTIONS, "memory", 1),
    Measure(TRANSACTIONS, "memory", 8),
    Measure(TRANSACTIONS, "memory", 32),
    Measure("heartbeat", "os", 64, 90_000),
    Measure(CONSUMER_HEARTBEAT, "os", 64, 94_000),
    Measure("commit", "os", 1, 10_000),
    Measure("commit", "os", 8, 60_000),
    Measure("commit", "os", 64, 65_000),
    Measure("commit", "os", 1, partitions=100),
    Measure("commit", "os", 8, partitions=100),
    Measure("commit", "os", 64, partitions=100),
    Measure("offset fetch", "os", 64),
    Measure("offset fetch", "os", 8, partitions=100),
    Measure("rebalance", "os", 64),
    Measure("produce", "os", 8),
    Measure("produce", "os", 8, partitions=8),
    Measure("fetch", "os", 8),
    Measure(TRANSACTIONS, "os", 1, 500),
    Measure(TRANSACTIONS, "os", 8, 3_500),
    Measure(TRANSACTIONS, "os", 32, 4_700),
    Measure("heartbeat", "os", 64, rate=2_000),
    Measure("commit", "os", 64, rate=2_000),
    Measure("heartbeat", "commit", 64, 90_000),
    Measure("commit", "commit", 1, 4_000),
    Measure("commit", "commit", 8, 14_000),
    Measure("commit", "commit", 64, 40_000),
    Measure("commit", "commit", 128, 40_000),
    Measure("commit", "commit", 64, partitions=100),
    Measure("rebalance", "commit", 64),
    Measure("produce", "commit", 8),
    Measure("produce", "commit", 8, partitions=8),
    Measure("produce", "commit", 8, partitions=32),
    Measure(TRANSACTIONS, "commit", 1, 400),
    Measure(TRANSACTIONS, "commit", 8, 2_500),
    Measure(TRANSACTIONS, "commit", 32, 4_000),
    Measure("commit", "commit", 64, rate=200),
)
GROWTH: Final = (
    Measure("heartbeat", "os", 64, growth=True),
    Measure("heartbeat", "os", 64, groups=640, growth=True),
    Measure("heartbeat", "os", 64, groups=6_400, growth=True),
    Measure("commit", "os", 64, growth=True),
    Measure("commit", "os", 64, groups=640, growth=True),
    Measure("commit", "os", 64, groups=6_400, growth=True),
    Measure("commit", "os", 8, growth=True),
    Measure("commit", "os", 8, partitions=10, growth=True),
    Measure("commit", "os", 8, partitions=100, growth=True),
    Measure("rebalance", "os", 5, growth=True),
    Measure("rebalance", "os", 50, growth=True),
    Measure("rebalance", "os", 500, growth=True),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Duration of the measures.

    Attributes:
        warm_up_seconds: warm-up of each measure; longer for rivals with a just-in-time compiler.
        growth_rounds: rounds of growth measures.
        starts: number of timed starts; a third of it for a JVM.
        offsets: numbers of offsets in the coordinator partition whose load is timed.
    """

    warm_up_seconds: float = 0.5
    warm_up_jit_seconds: float = 1.5
    round_seconds: float = 0.75
    rounds: int = 3
    growth_rounds: int = 2
    starts: int = 5
    offsets: tuple[int, ...] = (1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class Result:
    """
    Result of a measure for one rival.

    Attributes:
        server_cpu: average number of processors that the server used.
        request_bytes: the larger of request and response, for throughput in bytes.
        resident_mb: resident memory after the measure.
    """

    rival: str
    measure: Measure
    summary: Summary
    rounds: tuple[Round, ...]
    server_cpu: float
    request_bytes: int = 0
    resident_mb: float = 0.0

    @property
    def server_us(self) -> float:
        """Processor time of the server per request, in microseconds. It is meaningful on a busy machine, too."""
        return self.server_cpu / self.summary.per_second * 1e6

    @property
    def mb_per_second(self) -> float:
        """10^6 bytes."""
        return self.summary.per_second * self.request_bytes / 1e6


@dataclass(frozen=True, slots=True)
class Refused:
    """A measure that failed for a rival, with the reason."""

    rival: str
    measure: Measure
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Results and failures of the measures, in order."""

    results: list[Result] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


def measure_all(
    measures: Sequence[Measure], rivals: Sequence[Rival], plan: Plan, on_measure: Callable[[Measure], None]
) -> Report:
    """Run the measures. Each rival has one server for all measures of a flush mode, and the servers run side by side."""
    report = Report()
    for flush in dict.fromkeys(measure.flush for measure in measures):
        of_mode = [measure for measure in measures if measure.flush == flush]
        with ExitStack() as running:
            servers: dict[Rival, Server] = {}
            for rival in rivals:
                if flush not in rival.modes:
                    continue
                try:
                    servers[rival] = running.enter_context(fresh(rival, flush))
                    prepare(servers[rival].port)
                except FAILURES as error:
                    servers.pop(rival, None)
                    report.refused.extend(Refused(rival.name, measure, reason(error)) for measure in of_mode)
            for measure in of_mode:
                on_measure(measure)
                run_measure(measure, servers, plan, report)
    return report


def run_measure(measure: Measure, servers: Mapping[Rival, Server], plan: Plan, report: Report) -> None:
    """Run one measure for all rivals: prepare, warm up, then rounds. Each rival is the first of a round in turn."""
    with ExitStack() as opened:
        runs: list[_RivalRun] = []
        for rival, running in servers.items():
            one = _RivalRun(rival, running, measure)
            if one.attempt(report, partial(one.begin, opened, plan)):
                runs.append(one)
        for number in range(min(plan.growth_rounds, plan.rounds) if measure.growth else plan.rounds):
            turn = number % len(runs) if runs else 0
            for one in runs[turn:] + runs[:turn]:
                if not one.attempt(report, partial(one.round, plan.round_seconds)):
                    runs.remove(one)
    for one in runs:
        one.attempt(report, lambda one=one: report.results.append(one.result()))  # type: ignore[misc]


class _RivalRun:
    """One measure of one rival."""

    def __init__(self, rival: Rival, running: Server, measure: Measure) -> None:
        self._rival, self._running, self._measure = rival, running, measure
        self._drive: Drive
        self._request_bytes = 0
        self._rounds: list[Round] = []
        self._cpu_seconds = self._seconds = 0.0

    def attempt(self, report: Report, step: Callable[[], None]) -> bool:
        """Run a step and return whether it succeeded. A failure is added to the report."""
        try:
            step()
        except FAILURES as error:
            report.refused.append(Refused(self._rival.name, self._measure, reason(error)))
            return False
        return True

    def begin(self, opened: ExitStack, plan: Plan) -> None:
        self._drive, self._request_bytes = load(self._measure, self._running.port, opened)
        self._drive(plan.warm_up_jit_seconds if self._rival.has_jit else plan.warm_up_seconds)

    def round(self, seconds: float) -> None:
        cpu_before, begun = self._running.cpu_seconds, time.perf_counter()
        self._rounds.append(self._drive(seconds))
        self._cpu_seconds += self._running.cpu_seconds - cpu_before
        self._seconds += time.perf_counter() - begun

    def result(self) -> Result:
        return Result(
            rival=self._rival.name,
            measure=self._measure,
            summary=Summary.of(self._rounds),
            rounds=tuple(self._rounds),
            server_cpu=self._cpu_seconds / self._seconds,
            request_bytes=self._request_bytes,
            resident_mb=self._running.resident_mb,
        )


def load(measure: Measure, port: int, opened: ExitStack) -> tuple[Drive, int]:
    """Prepare connections, groups and requests. Returns the load, and the size of the larger of request and response."""
    if measure.name == TRANSACTIONS:
        return Transactions(port, measure.connections, opened).run, 0
    sockets = [opened.enter_context(open_socket(port)) for _ in range(measure.connections)]
    if measure.name == "rebalance":
        return Storm(sockets, opened).run, 0
    groups, partitions = measure.groups, measure.partitions
    match measure.name:
        case "heartbeat":
            lanes = heartbeat_lanes(sockets, groups, opened)
        case "consumer heartbeat":
            lanes = consumer_heartbeat_lanes(sockets, groups, opened)
        case "commit":
            lanes = commit_lanes(sockets, groups, partitions)
        case "offset fetch":
            lanes = fetch_offsets_lanes(sockets, groups, partitions)
        case "produce":
            lanes = produce_lanes(sockets, partitions)
        case "fetch":
            lanes = fetch_lanes(sockets)
        case name:
            raise ValueError(f"there is no measure {name}")
    request_bytes = max(len(lanes[0].requests[0]), len(lanes[0].answer))
    if measure.rate is not None:
        return partial(run_at_rate, lanes, rate=measure.rate), request_bytes
    return partial(run, lanes), request_bytes


def ceiling(plan: Plan, connections: int, rate: int | None = None) -> Result:
    """Measure the limit of the load generator against a constant server."""
    request = request_frame(*HEARTBEAT, messages.HeartbeatRequest(group_id=group_of(0), member_id="-" * 40))
    # Flexible header without tags, no throttling, no error, no tags.
    with process.constant(bytes(1 + 4 + 2 + 1)) as running, ExitStack() as opened:
        sockets = [opened.enter_context(open_socket(running.port)) for _ in range(connections)]
        lanes = lanes_of(sockets, [request] * connections, check_heartbeat)
        drive = partial(run, lanes) if rate is None else partial(run_at_rate, lanes, rate=rate)
        drive(plan.warm_up_seconds)
        cpu_before, begun = running.cpu_seconds, time.perf_counter()
        rounds = tuple(drive(plan.round_seconds) for _ in range(plan.rounds))
        server_cpu = (running.cpu_seconds - cpu_before) / (time.perf_counter() - begun)
    measure = Measure("constant answer", "-", connections, rate=rate)
    return Result("-", measure, Summary.of(rounds), rounds, server_cpu)
