"""The writer of generated scenarios: numbered steps, and choices from one random generator."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from kohort_lab.conformance.scenarios.scenario import Scenario, recorded_versions
from kohort_lab.conformance.scenarios.script import APIS, DEFAULT_BROKER, Step

T = TypeVar("T")


class ScenarioWriter:
    """
    Attributes:
        random: the only random generator of a scenario.
        topics: partitions by name, created before the scenario begins.
        broker: the name of the broker's settings.
        steps: written so far.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics: dict[str, int] = {}
        self.broker = DEFAULT_BROKER
        self.steps: list[Step] = []
        self._versions: dict[str, int] = {}

    def scenario(self, name: str, about: str) -> Scenario:
        return Scenario(
            name=name,
            about=about,
            steps=tuple(self.steps),
            topics=self.topics,
            versions=self._versions,
            values={},
            broker=self.broker,
        )

    def version(self, api_name: str) -> int:
        """The version of an API in this scenario, drawn at its first use; the oldest and the newest are more likely."""
        if api_name not in self._versions:
            oldest, newest = recorded_versions(APIS[api_name])
            drawn = self.random.randint(oldest, newest)
            self._versions[api_name] = self.random.choice((oldest, drawn, drawn, newest))
        return self._versions[api_name]

    def send(self, api_name: str, keywords: dict[str, Any] | None = None, **fields: Any) -> str:
        """Add a request and return the label of its step. `keywords` are those of the step."""
        if "version" not in (keywords or {}):
            self.version(api_name)
        return self.add(Step(label=self.label(), send=api_name, fields=fields, **(keywords or {})))

    def receive(self, labels: Sequence[str], wait_ms: int) -> None:
        self.add(Step(label=self.label(), receive=tuple(labels), wait_ms=wait_ms))

    def pause(self, pause_ms: int) -> None:
        self.add(Step(label=self.label(), pause_ms=pause_ms))

    def add(self, step: Step) -> str:
        self.steps.append(step)
        return step.label

    def label(self) -> str:
        return str(len(self.steps) + 1)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]

    def subset(self, options: Sequence[T]) -> list[T]:
        """At least one of the options, in random order."""
        return self.random.sample(options, self.random.randint(1, len(options)))
