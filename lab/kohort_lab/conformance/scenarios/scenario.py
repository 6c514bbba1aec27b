"""
Scenarios: scripts with all choices made, each run once on each side.

A script gives one scenario per version. The first has the oldest version of every API, each further one the next version of
every API, and an API that has reached its newest version stays there. A script of JoinGroup, SyncGroup and Heartbeat gives ten
scenarios, as many as JoinGroup has versions.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kohort.wire.apis import DEFAULT_RELEASE, ApiKey, versions_in
from kohort_lab.conformance.scenarios.script import APIS, DEFAULT_BROKER, Script, Step, step_apis


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        name: script, case and number; unique.
        versions: by API, for the steps without a version of their own.
        values: initial values of `$name`.
        alone: no other scenario runs at the same time.
        broker: the name of the broker's settings, see `library.BROKERS`.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    topics: dict[str, int]
    versions: dict[str, int]
    values: dict[str, Any]
    alone: bool = False
    broker: str = DEFAULT_BROKER

    @property
    def script(self) -> str:
        return self.name.split("/")[0]

    @property
    def restarts(self) -> bool:
        """Whether a step restarts the broker."""
        return any(step.restart for step in self.steps)

    def version(self, step: Step) -> int:
        assert step.send is not None
        return self.versions[step.send] if step.version is None else step.version


def scenarios(scripts: Iterable[Script]) -> Iterator[Scenario]:
    for script in scripts:
        for broker in script.brokers:
            for case in script.cases:
                yield from _in_versions(script, case, broker)


def recorded_versions(api: ApiKey) -> tuple[int, int]:
    """The oldest and the newest version of an API in the release whose answers are recorded."""
    found = versions_in(DEFAULT_RELEASE)[api]
    return found.oldest, found.newest_stable


def _in_versions(script: Script, case: dict[str, Any], broker: str) -> Iterator[Scenario]:
    ranges = {
        api.api_name: script.versions.get(api.api_name) or recorded_versions(api) for api in step_apis(script.steps)
    }
    count = max((newest - oldest + 1 for oldest, newest in ranges.values()), default=1)
    for number in range(count - 1 if script.newest_only else 0, count):
        yield Scenario(
            name="/".join(filter(None, (script.name, _broker_name(broker), _case_name(case), str(number)))),
            about=script.about,
            steps=script.steps,
            topics=script.topics,
            versions={api: min(oldest + number, newest) for api, (oldest, newest) in ranges.items()},
            values=case,
            alone=script.alone,
            broker=broker,
        )


def _broker_name(broker: str) -> str:
    return "" if broker == DEFAULT_BROKER else broker


def _case_name(case: dict[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(case.get("name", "")).lower())


def asked_versions(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """Every API and version that the scenario needs. A version named by a step is left out, because it may not exist."""
    for step in scenario.steps:
        if step.send is not None and step.version is None:
            yield APIS[step.send].api_name, scenario.versions[step.send]
