"""A run: workers of a share group under random SIGKILLs, and then the examination of what they saw."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kohort.client.cluster import Client
from kohort.client.security import PLAINTEXT
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.checks import POLL_SECONDS, SETTLE_SECONDS, CheckError
from kohort_lab.exactly_once import topics
from kohort_lab.kills import KillPlan, Restartable, kill_at_random
from kohort_lab.restarted import RestartedProcess
from kohort_lab.served_nodes.as_broker import NodesAsBroker
from kohort_lab.work_queue.verdict import REFUSED, Event, Verdict, judge

WORKER: Final = (sys.executable, "-m", "kohort_lab.work_queue.worker")
GROUP_CONFIGS: Final = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "25"}
SETTINGS: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.max.delivery.count.limit": "25",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Of the broker: what is left behind by a dead worker comes again after seconds."""


@dataclass(frozen=True, slots=True)
class Plan(KillPlan):
    """A run: its kills, its workers and its load."""

    workers: int = 4
    partitions: int = 3
    records_per_second: int = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Attributes:
        broker_kills, worker_kills: numbers of SIGKILLs.
        worker_exits: workers that ended by themselves, after an error that they could not handle.
        acknowledged: records whose append the broker acknowledged.
        refused: acknowledgements of records that had an error, or no answer that their worker lived to see.
    """

    verdict: Verdict
    acknowledged: int
    broker_kills: int
    worker_kills: int
    worker_exits: int
    refused: int

    @property
    def is_right(self) -> bool:
        return self.verdict.is_right and self.verdict.records == self.acknowledged

    def __str__(self) -> str:
        return (
            f"kills: broker {self.broker_kills:,}, workers {self.worker_kills:,}; exits by error {self.worker_exits:,}\n"
            f"{self.acknowledged:,} records produced, {self.refused:,} acknowledgements refused or unanswered\n{self.verdict}"
        )


def torture(
    bootstrap: str,
    directory: Path,
    plan: Plan,
    *,
    rng: random.Random,
    broker: Restartable | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """
    Run workers under kills, and examine what they were given.

    Args:
        directory: for the logs of the workers.
        broker: killed and started again as well; None leaves the broker alone.
        on_step: gets a line about each step.

    Raises:
        CheckError: the workers do not reach the end of their queue, or a record was refused.
        KafkaException: the broker refused topics, configurations or reads.
    """
    name = f"work-queue-{uuid4().hex[:8]}"
    topics.create(bootstrap, {name: plan.partitions})
    _configure(bootstrap, name)
    workers = [
        RestartedProcess((*WORKER, bootstrap, name, name), directory, f"worker-{number}")
        for number in range(plan.workers)
    ]
    feeder = topics.Feeder(bootstrap, name, plan.partitions, plan.records_per_second)
    with ExitStack() as stopped:
        for worker in workers:
            stopped.callback(worker.stop)
            worker.start()
        feeder.start()
        kills = kill_at_random(workers, "worker", plan, rng, broker, on_step)
        feeder.stop()
        if feeder.failed is not None:
            raise CheckError(f"a record was refused: {feeder.failed}")
        on_step("waiting until every record is processed")
        _settle(bootstrap, name, plan.partitions, workers)
    events = list(_events(workers))
    moves = isinstance(broker, NodesAsBroker)
    return Outcome(
        judge(topics.end_offsets(bootstrap, name, plan.partitions), events, None if moves else kills),
        acknowledged=feeder.acknowledged,
        broker_kills=len(kills),
        worker_kills=sum(worker.kills for worker in workers),
        worker_exits=sum(worker.exits for worker in workers),
        refused=sum(len(event.deliveries) for event in events if event.kind == REFUSED),
    )


def _configure(bootstrap: str, group: str) -> None:
    set_to = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_to) for name, value in GROUP_CONFIGS.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    altered = admin.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)])
    for each in altered.values():
        each.result(topics.CALL_SECONDS)


def _settle(bootstrap: str, group: str, partitions: int, workers: Sequence[RestartedProcess]) -> None:
    """
    Wait until the group has no lag, and keep its workers alive meanwhile.

    Raises:
        CheckError: it has a lag, after `SETTLE_SECONDS`.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    with Client(bootstrap, topics.CALL_SECONDS, PLAINTEXT) as client:
        while lag := _lag(client, group, partitions):
            if time.monotonic() > deadline:
                raise CheckError(f"the group has stopped with a lag of {lag}")
            for worker in workers:
                worker.keep_alive()
            time.sleep(POLL_SECONDS)


def _lag(client: Client, group: str, partitions: int) -> int:
    """The number of records that are not acknowledged; not 0 either while a partition has no state."""
    asked = m.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    answer = client.send_to_coordinator(
        group,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        m.DescribeShareGroupOffsetsRequest(groups=[asked]),
        error_code=lambda response: response.groups[0].error_code,
    )
    lags = [partition.lag for topic in answer.groups[0].topics for partition in topic.partitions]
    return sum(map(abs, lags)) if len(lags) == partitions else -1


def _events(workers: Sequence[RestartedProcess]) -> Iterator[Event]:
    for worker in workers:
        yield from (Event.from_json(line) for line in worker.lines() if line.endswith("]]]"))
