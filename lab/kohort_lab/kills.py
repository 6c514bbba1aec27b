"""Random SIGKILLs of processes, and of the broker that they use."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kohort_lab.restarted import RestartedProcess


class Restartable(Protocol):
    """A broker that can be killed and started again; `ServedKohort` and `KafkaNode` are."""

    def kill(self) -> None: ...

    def start(self) -> object: ...


@dataclass(frozen=True, slots=True)
class KillPlan:
    """
    Attributes:
        seconds: duration of the load and the kills.
        kill_seconds: shortest and longest time between kills.
        broker_share: share of the kills that the broker gets; the processes get the others.
        down_seconds: longest time that a killed process stays dead.
    """

    seconds: float = 10.0
    kill_seconds: tuple[float, float] = (0.3, 1.5)
    broker_share: float = 0.3
    down_seconds: float = 0.5


def kill_at_random(
    processes: Sequence[RestartedProcess],
    noun: str,
    plan: KillPlan,
    rng: random.Random,
    broker: Restartable | None,
    on_step: Callable[[str], None],
) -> list[float]:
    """
    Kill for the duration of the plan, and return the instants at which the broker was killed.

    Args:
        noun: what a process is called.
        broker: None leaves the broker alone.
        on_step: gets a line about each kill.
    """
    kills = []
    deadline = time.monotonic() + plan.seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(rng.uniform(*plan.kill_seconds), left))
        for process in processes:
            process.keep_alive()
        down_seconds = rng.uniform(0, plan.down_seconds)
        if broker is not None and rng.random() < plan.broker_share:
            on_step(f"kill of the broker, for {down_seconds:.2f} s")
            kills.append(time.monotonic())
            broker.kill()
            time.sleep(down_seconds)
            broker.start()
        else:
            process = rng.choice(processes)
            on_step(f"kill of {noun} {processes.index(process)}, for {down_seconds:.2f} s")
            process.kill()
            time.sleep(down_seconds)
            process.start()
    return kills
