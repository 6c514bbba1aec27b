"""A run: processors under random SIGKILLs, and then the comparison of the source with the sink."""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from kohort_lab.checks import CheckError, settle
from kohort_lab.exactly_once import topics
from kohort_lab.exactly_once.processor import Job
from kohort_lab.exactly_once.verdict import Verdict, judge
from kohort_lab.kills import KillPlan, Restartable, kill_at_random
from kohort_lab.restarted import RestartedProcess

PROCESSOR: Final = (sys.executable, "-m", "kohort_lab.exactly_once.processor")


@dataclass(frozen=True, slots=True)
class Plan(KillPlan):
    """
    A run: its kills, its processors and its load.

    Attributes:
        session_timeout_ms: of dynamic members. The broker's `group.min.session.timeout.ms` must allow it.
    """

    processors: int = 4
    source_partitions: int = 6
    sink_partitions: int = 4
    inputs_per_second: int = 300
    session_timeout_ms: int = 6_000
    transaction_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Attributes:
        broker_kills, processor_kills: numbers of SIGKILLs.
        processor_exits: processors that ended by themselves, after an error that they could not handle.
        acknowledged: inputs that the broker acknowledged.
    """

    verdict: Verdict
    acknowledged: int
    broker_kills: int
    processor_kills: int
    processor_exits: int
    committed: int
    aborted: int

    @property
    def is_right(self) -> bool:
        return self.verdict.is_exactly_once and self.verdict.inputs == self.acknowledged

    def __str__(self) -> str:
        return (
            f"kills: broker {self.broker_kills:,}, processors {self.processor_kills:,}; exits by error "
            f"{self.processor_exits:,}\ntransactions: {self.committed:,} committed, {self.aborted:,} aborted by processors\n"
            f"{self.acknowledged:,} inputs acknowledged; {self.verdict}"
        )


class _Slot(RestartedProcess):
    """A processor that is started again whenever it has ended."""

    def __init__(self, job: Job, directory: Path) -> None:
        super().__init__((*PROCESSOR, job.to_json()), directory, f"processor-{job.slot}")

    def transactions(self, outcome: str) -> int:
        return sum(line.startswith(outcome) for line in self.lines())


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
    Run processors under kills, and compare their output with their input.

    Args:
        directory: for the logs of the processors.
        broker: killed and started again as well; None leaves the broker alone.
        on_step: gets a line about each step.

    Raises:
        CheckError: the processors do not reach the end of their input, or an input was refused.
        KafkaException: the broker refused topics or reads.
    """
    name = f"exactly-once-{uuid4().hex[:8]}"
    source, sink = f"{name}-source", f"{name}-sink"
    topics.create(bootstrap, {source: plan.source_partitions, sink: plan.sink_partitions})
    slots = [
        _Slot(
            Job(
                bootstrap=bootstrap,
                group=name,
                source=source,
                sink=sink,
                sink_partitions=plan.sink_partitions,
                slot=slot,
                is_static=slot % 2 == 0,
                session_timeout_ms=plan.session_timeout_ms,
                transaction_timeout_ms=plan.transaction_timeout_ms,
            ),
            directory,
        )
        for slot in range(plan.processors)
    ]
    feeder = topics.Feeder(bootstrap, source, plan.source_partitions, plan.inputs_per_second)
    with ExitStack() as stopped:
        for slot in slots:
            stopped.callback(slot.stop)
            slot.start()
        feeder.start()
        broker_kills = kill_at_random(slots, "processor", plan, rng, broker, on_step)
        feeder.stop()
        if feeder.failed is not None:
            raise CheckError(f"an input was refused: {feeder.failed}")
        on_step("waiting until every input is processed")
        settle(bootstrap, name, source, plan.source_partitions, slots)
    on_step("reading source and sink")
    verdict = judge(
        topics.read_inputs(bootstrap, source, plan.source_partitions),
        topics.read_outputs(bootstrap, sink, plan.sink_partitions),
    )
    return Outcome(
        verdict,
        acknowledged=feeder.acknowledged,
        broker_kills=len(broker_kills),
        processor_kills=sum(slot.kills for slot in slots),
        processor_exits=sum(slot.exits for slot in slots),
        committed=sum(slot.transactions("commit") for slot in slots),
        aborted=sum(slot.transactions("abort") for slot in slots),
    )
