"""
Stories: scripts with nothing left open, each told once to each side.

A script is told in every version: the first story has the oldest version of every API in it, each further one takes every API
one version up, and those that have reached their newest stay there. So a story of JoinGroup, SyncGroup and Heartbeat becomes
ten, as many as JoinGroup has versions.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kohort.conformance.script import APIS, Script, Step, step_apis


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        name: unique: script, case, number.
        versions: by API, for the steps that name none themselves.
        values: what `$name` is from the beginning.
        alone: it is told when no other is.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    topics: dict[str, int]
    versions: dict[str, int]
    values: dict[str, Any]
    alone: bool = False

    @property
    def script(self) -> str:
        return self.name.split("/")[0]

    @property
    def restarts(self) -> bool:
        """Whether the broker is restarted in it."""
        return any(step.restart for step in self.steps)

    def version(self, step: Step) -> int:
        assert step.send is not None
        return self.versions[step.send] if step.version is None else step.version


def stories(scripts: Iterable[Script]) -> Iterator[Scenario]:
    for script in scripts:
        for case in script.cases:
            yield from _told_in_versions(script, case)


def _told_in_versions(script: Script, case: dict[str, Any]) -> Iterator[Scenario]:
    ranges = {
        api.api_name: script.versions.get(api.api_name, (api.oldest, api.newest_stable))
        for api in step_apis(script.steps)
    }
    count = max((newest - oldest + 1 for oldest, newest in ranges.values()), default=1)
    for number in range(count - 1 if script.newest_only else 0, count):
        yield Scenario(
            name="/".join(filter(None, (script.name, _case_name(case), str(number)))),
            about=script.about,
            steps=script.steps,
            topics=script.topics,
            versions={api: min(oldest + number, newest) for api, (oldest, newest) in ranges.items()},
            values=case,
            alone=script.alone,
        )


def _case_name(case: dict[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(case.get("name", "")).lower())


def asked_versions(story: Scenario) -> Iterator[tuple[str, int]]:
    """Every API with its version that the story depends on; one that a step names by itself may be none that exists."""
    for step in story.steps:
        if step.send is not None and step.version is None:
            yield APIS[step.send].api_name, story.versions[step.send]
