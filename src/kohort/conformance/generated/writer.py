"""What the makers of stories write with: numbered steps, and choices from one source of chance."""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from kohort.conformance.scenario import Scenario
from kohort.conformance.script import APIS, Step

T = TypeVar("T")


class ScenarioWriter:
    """
    Attributes:
        random: the only source of chance of a story.
        topics: partitions by name, made before the story begins.
        steps: what happened so far.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics: dict[str, int] = {}
        self.steps: list[Step] = []
        self._versions: dict[str, int] = {}

    def story(self, name: str, about: str) -> Scenario:
        return Scenario(
            name=name, about=about, steps=tuple(self.steps), topics=self.topics, versions=self._versions, values={}
        )

    def version(self, api_name: str) -> int:
        """The version of an API in this story; drawn when it is first asked for, old and new ones more often."""
        if api_name not in self._versions:
            api = APIS[api_name]
            drawn = self.random.randint(api.oldest, api.newest_stable)
            self._versions[api_name] = self.random.choice((api.oldest, drawn, drawn, api.newest_stable))
        return self._versions[api_name]

    def send(self, api_name: str, keywords: dict[str, Any] | None = None, **fields: Any) -> str:
        """A request; the label of its step. `keywords` are the step's own."""
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
        """Some of them, one at least, in any order."""
        return self.random.sample(options, self.random.randint(1, len(options)))
