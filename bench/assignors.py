"""
Costs of target assignments, on one core: `python -m bench.assignors`.

A group of 10,000 members and 10 topics of 10,000 partitions each, and smaller ones: from scratch, after one member left or
joined, and without a change. Times are processor times, the best of several rounds; of single steps, the longest.
`--json` prints JSON, which `python -m bench --only alone` reads.
"""

import argparse
import gc
import json
import random
from collections.abc import Iterator, Mapping
from time import process_time
from typing import Final, NamedTuple
from uuid import UUID

from kohort.group.assignors.builtin import BUILT_IN
from kohort.group.assignors.interface import SteppedAssignor, assignment_cost
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupAssignment, GroupSpec, MemberSpec
from kohort.server.node import configure_garbage_collector
from kohort.wire.generated.gradual import drain

ROUNDS: Final = 5


class Topics:
    """Topics with as many partitions."""

    def __init__(self, counts: Mapping[UUID, int]) -> None:
        self._counts = counts

    def partition_count(self, topic_id: UUID, /) -> int:
        return self._counts.get(topic_id, -1)

    def racks(self, _topic_id: UUID, _partition: int, /) -> frozenset[str]:
        return frozenset()


class Cost(NamedTuple):
    """One assignment: its processor time and that of its longest step, and the nanoseconds of each unit of its cost."""

    name: str
    milliseconds: float
    longest_step_ms: float
    unit_ns: float


class Subscriptions:
    """Members and what they are subscribed to."""

    def __init__(self, name: str, members: int, topics: int, partitions: int, subscriptions: int = 1) -> None:
        rng = random.Random(1)
        topic_ids = [UUID(int=rng.getrandbits(128)) for _ in range(topics)]
        sets = [frozenset(topic_ids)]
        sets += [frozenset(rng.sample(topic_ids, topics // 2)) for _ in range(subscriptions - 1)]
        self.name = name
        self.topics = Topics(dict.fromkeys(topic_ids, partitions))
        self.is_homogeneous = subscriptions == 1
        self.members = {str(UUID(int=rng.getrandbits(128))): sets[number % subscriptions] for number in range(members)}

    def spec(self, assigned: GroupAssignment, without: str | None = None) -> GroupSpec:
        members = {
            member_id: MemberSpec(topic_ids, assigned.get(member_id, NO_ASSIGNMENT))
            for member_id, topic_ids in self.members.items()
            if member_id != without
        }
        return GroupSpec(members, self.is_homogeneous)


LARGE: Final = "10,000 members, 10 topics, 100,000 partitions"
GOALS_MS: Final = {f"uniform, {LARGE}: from scratch": 150.0, f"uniform, {LARGE}: one member leaves": 50.0}


def groups(divisor: int) -> Iterator[Subscriptions]:
    yield Subscriptions(LARGE, 10_000 // divisor, 10, 10_000 // divisor)
    yield Subscriptions("1,000 members, 10 topics, 10,000 partitions", 1_000 // divisor, 10, 1_000 // divisor)
    name = "1,000 members, 100 topics, 10,000 partitions, 10 subscriptions"
    yield Subscriptions(name, 1_000 // divisor, 100, max(1, 100 // divisor), 10)


def measure(name: str, assignor: SteppedAssignor, spec: GroupSpec, topics: Topics) -> tuple[Cost, GroupAssignment]:
    best = longest = float("inf")
    target: Mapping[str, Assignment] = {}
    for _ in range(ROUNDS):
        gc.collect()
        steps = assignor.assign_in_steps(spec, topics)
        step_ms = []
        while True:
            began = process_time()
            try:
                next(steps)
            except StopIteration as stop:
                target = stop.value
                step_ms.append(1_000 * (process_time() - began))
                break
            step_ms.append(1_000 * (process_time() - began))
        best = min(best, sum(step_ms))
        longest = min(longest, max(step_ms))
    return Cost(name, best, longest, best * 1e6 / assignment_cost(spec, topics)), target


def costs(divisor: int) -> Iterator[Cost]:
    for group in groups(divisor):
        one = next(iter(group.members))
        for assignor in BUILT_IN.values():
            name = f"{assignor.name}, {group.name}"
            cost, target = measure(f"{name}: from scratch", assignor, group.spec({}), group.topics)
            yield cost
            yield measure(f"{name}: no change", assignor, group.spec(target), group.topics)[0]
            cost, target = measure(f"{name}: one member leaves", assignor, group.spec(target, one), group.topics)
            yield cost
            yield measure(f"{name}: one member joins", assignor, group.spec(target), group.topics)[0]
        ranges = drain(BUILT_IN["range"].assign_in_steps(group.spec({}), group.topics))
        name = f"uniform after range, {group.name}: one member leaves"
        yield measure(name, BUILT_IN["uniform"], group.spec(ranges, one), group.topics)[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.assignors", description="Costs of target assignments.")
    parser.add_argument("--json", action="store_true", help="one array of costs")
    parser.add_argument("--divisor", type=int, default=1, metavar="N", help="groups of 1/N of the size")
    arguments = parser.parse_args()
    configure_garbage_collector()
    found = list(costs(arguments.divisor))
    if arguments.json:
        print(json.dumps([cost._asdict() | {"goal_ms": GOALS_MS.get(cost.name, 0.0)} for cost in found]))
        return
    for cost in found:
        step = f"longest step {cost.longest_step_ms:6.2f} ms"
        print(f"{cost.milliseconds:9.2f} ms  {step}  {cost.unit_ns:6.0f} ns/unit  {cost.name}")


if __name__ == "__main__":
    main()
