"""A run: producers, a group and an observer under faults, and then the comparison."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from kohort.client.cluster import Client
from kohort.client.connection import Versions
from kohort.model.errors import KohortError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.checks import settle
from kohort_lab.exactly_once import topics
from kohort_lab.history_check.clients import PRODUCERS, Job
from kohort_lab.history_check.faults import Broker, Faults
from kohort_lab.history_check.members import CLASSIC, MIGRATION, Members
from kohort_lab.history_check.verdict import Committed, Fetched, Observed, Verdict, Written, judge
from kohort_lab.restarted import RestartedProcess

OBSERVE_SECONDS: Final = 0.1
CALL_SECONDS: Final = 5.0
_BY_GROUP_AND_NAME: Final = Versions(8, 9)


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Attributes:
        seconds: duration of the load and the faults.
        protocol: the group protocol, one of `kohort_lab.history_check.members.PROTOCOLS`: `classic`, `consumer` (KIP-848),
            or `migration`, in which members are replaced by members of the other protocol, one after the other, and back.
        has_faults: whether anything fails. A migration has replaced members without faults, too.
        fault_seconds: shortest and longest time between faults.
        pause_seconds: longest time that a process is paused or down; longer than a session now and then.
    """

    seconds: float = 10.0
    protocol: str = CLASSIC
    has_faults: bool = True
    members: int = 4
    partitions: int = 6
    records_per_second: int = 200
    fault_seconds: tuple[float, float] = (0.3, 1.5)
    pause_seconds: float = 2.5
    session_timeout_ms: int = 1_500


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Attributes:
        faults: how often each fault was caused.
        acknowledged: records that producers were told to be written.
        observations: answers to the observer of the committed offsets.
        exits: clients that ended by themselves, after an error that they could not handle.
        replaced: members that were replaced by members of the other protocol.
    """

    verdict: Verdict
    faults: Mapping[str, int]
    acknowledged: int
    observations: int
    exits: int
    replaced: int

    @property
    def is_right(self) -> bool:
        return self.verdict.is_right

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())) or "none"
        replaced = f"members replaced by members of the other protocol: {self.replaced}\n" if self.replaced else ""
        return (
            f"faults: {faults}; clients that ended by an error: {self.exits}\n{replaced}"
            f"{self.acknowledged:,} records acknowledged, committed offsets asked {self.observations:,} times\n{self.verdict}"
        )


class Observer(threading.Thread):
    """
    Asks for the committed offsets of the group again and again.

    A client of Kohort's own: librdkafka's admin client aborts the process now and then while the broker is down.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__(daemon=True)
        self.fetched: list[Fetched] = []
        self.answers = 0
        self._brokers = bootstrap
        self._group = group
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            with (
                suppress(KohortError, OSError),
                Client(self._brokers, CALL_SECONDS) as client,
            ):  # else the broker is down
                while not self._stopped.is_set():
                    self._ask(client)
                    self._stopped.wait(OBSERVE_SECONDS)
            self._stopped.wait(OBSERVE_SECONDS)

    def _ask(self, client: Client) -> None:
        asked = m.OffsetFetchRequestGroup(group_id=self._group, member_id=None, member_epoch=-1, topics=None)
        asked_s = time.monotonic()
        answer = client.send_to_coordinator(
            self._group,
            ApiKey.OFFSET_FETCH,
            m.OffsetFetchRequest(groups=[asked]),
            error_code=lambda response: response.groups[0].error_code,
            within=_BY_GROUP_AND_NAME,
        )
        answered_s = time.monotonic()
        (group,) = answer.groups
        if group.error_code:
            return
        self.answers += 1
        self.fetched += [
            Fetched(asked_s, answered_s, each.partition_index, each.committed_offset)
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code
        ]

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def check(
    bootstrap: str,
    directory: Path,
    plan: Plan,
    *,
    rng: random.Random,
    broker: Broker | None = None,
    is_bounded: bool = False,
    on_step: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """
    Run clients under faults, and compare what they were told with the topic and the group.

    Args:
        directory: for the logs of the clients.
        broker: fails as well; None leaves the broker alone.
        is_bounded: whether the broker's data directory is a small file system of its own.
        on_step: gets a line about each step.

    Raises:
        CheckError: the group does not reach the end of the topic.
        KafkaException: the broker refused topics or reads.
    """
    name = f"history-{uuid4().hex[:8]}"
    topics.create(bootstrap, {name: plan.partitions})
    producers = _producers(bootstrap, directory, name, plan)
    group = Members(plan.protocol, plan.members, bootstrap, directory, name, plan.session_timeout_ms)
    members = group.processes
    observer = Observer(bootstrap, name)
    with ExitStack() as stopped:
        for client in (*producers, *members):
            stopped.callback(client.stop)
            client.start()
        observer.start()
        stopped.callback(observer.stop)
        faults = Faults(rng, [*producers, *members], broker, is_bounded=is_bounded, pause_seconds=plan.pause_seconds)
        _cause_faults(plan, rng, faults, [*producers, *members], group, on_step)
        on_step("waiting until every record is acknowledged and read")
        for client in producers:
            client.stop()
        settle(bootstrap, name, name, plan.partitions, members)
    on_step("comparing")
    observed = Observed(
        acknowledged=list(_written(producers, "acknowledged")),
        topic=[
            _as_written(each.partition(), each.offset(), each.value().decode())
            for each in topics.read(bootstrap, name, plan.partitions)
        ],
        read=list(_written(members, "read")),
        committed=list(_commits(members)),
        fetched=observer.fetched,
    )
    exits = sum(client.exits for client in (*producers, *members))
    acknowledged = len(observed.acknowledged)
    return Outcome(judge(observed), faults.counts, acknowledged, observer.answers, exits, group.replaced)


def _producers(bootstrap: str, directory: Path, name: str, plan: Plan) -> list[RestartedProcess]:
    per_second = max(plan.records_per_second // len(PRODUCERS), 1)
    return [
        RestartedProcess(job.command, directory, job.name)
        for job in (
            Job(
                role="producer",
                name=f"producer-{client}",
                client=client,
                bootstrap=bootstrap,
                topic=name,
                partitions=plan.partitions,
                per_second=per_second,
            )
            for client in PRODUCERS
        )
    ]


def _cause_faults(
    plan: Plan,
    rng: random.Random,
    faults: Faults,
    clients: Sequence[RestartedProcess],
    group: Members,
    on_step: Callable[[str], None],
) -> None:
    deadline = time.monotonic() + plan.seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(rng.uniform(*plan.fault_seconds), left))
        for client in clients:
            client.keep_alive()
        if plan.protocol == MIGRATION:
            on_step(group.replace_next())
        if plan.has_faults:
            on_step(faults.cause())


def _facts(clients: Sequence[RestartedProcess], kind: str) -> Iterator[Any]:
    """The facts of one kind; half a line that a killed process has left is none."""
    for client in clients:
        for line in client.lines():
            try:
                fact = json.loads(line)
            except ValueError:
                continue
            if isinstance(fact, dict) and kind in fact:
                yield fact[kind]


def _written(clients: Sequence[RestartedProcess], kind: str) -> Iterator[Written]:
    for partition, offset, value in _facts(clients, kind):
        yield _as_written(partition, offset, value)


def _as_written(partition: int, offset: int, value: str) -> Written:
    producer, _, number = value.partition(" ")
    return Written(partition, offset, producer, int(number))


def _commits(members: Sequence[RestartedProcess]) -> Iterator[Committed]:
    for at_s, offsets in _facts(members, "committed"):
        for partition, offset in offsets.items():
            yield Committed(at_s, int(partition), offset)
