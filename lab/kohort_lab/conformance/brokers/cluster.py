"""
A side of a comparison: the broker at one address, its API versions, and the run of all scenarios on it.

Scenarios that change what other scenarios see run after the others, one at a time. Scenarios with a restart run together, last:
the broker restarts when each of them has reached its restart step.

A broker that dies is restarted, if there is a way. The scenarios that were running are run again in smaller and smaller groups,
until the scenario that ends the broker is found.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.model.errors import ConfigError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.conformance.brokers.assigned_topics import await_assignable
from kohort_lab.conformance.brokers.control import LOST, Control
from kohort_lab.conformance.brokers.coordinator_log import Ends
from kohort_lab.conformance.brokers.coordinators import Coordinators
from kohort_lab.conformance.brokers.offsets_log import OFFSETS_LOG
from kohort_lab.conformance.brokers.transaction_log import TRANSACTION_LOG
from kohort_lab.conformance.canon import NAMESPACE, Names
from kohort_lab.conformance.compare import RECORDS
from kohort_lab.conformance.outcome import Outcome
from kohort_lab.conformance.scenarios.restarting import CommonRestart
from kohort_lab.conformance.scenarios.scenario import Scenario, asked_versions
from kohort_lab.conformance.scenarios.scenario_run import Lateness, Restart, ScenarioRun

CONCURRENT_SCENARIOS = 16
READY_TIMEOUT_S = 60.0
_POLL_S = 0.05
_EXIT_S = 0.2
"""The longest time from the end of a broker's connections to the end of its process."""
_FEWER = 6
"""Divisor of the concurrency when the scenario that ends the broker is searched."""
NO_RESTART = "(no way to restart the broker)"

Progress = Callable[[int, int], None]


UNLISTED: Final = {"GetTelemetrySubscriptions": (0, 0), "PushTelemetry": (0, 0)}
"""
APIs that Apache Kafka answers, and lists only if a receiver of client metrics is configured. A broker that lists
ListConfigResources, which names the subscriptions of client metrics, is taken to answer them too.
"""


class Cluster:
    """
    Use `connect`.

    Attributes:
        lateness_ms: by scenario, `ScenarioRun.lateness_ms` of its latest run.
    """

    def __init__(self, host: str, port: int, restart: Restart | None) -> None:
        self._control = Control(host, port)
        self._coordinators = Coordinators(self._control)
        self._restart = restart
        self._nonce = secrets.token_hex(2)
        self._runs = 0
        self._ends: dict[str, Ends] = {}
        self.lateness_ms: dict[str, Lateness] = {}

    @classmethod
    async def connect(cls, host: str, port: int, restart: Restart | None = None) -> "Cluster":
        """
        Args:
            restart: restarts the broker, whether it runs or not. None if there is no way.

        Raises:
            ConfigError: no broker answers.
        """
        cluster = cls(host, port, restart)
        try:
            await cluster._control.open()
        except LOST as exc:
            raise ConfigError(f"no broker answers at {host}:{port}: {str(exc) or 'it is silent'}") from None
        return cluster

    @property
    def versions(self) -> dict[str, tuple[int, int]]:
        """Oldest and newest version that the broker serves, by API."""
        return self._control.versions

    def close(self) -> None:
        self._control.close()

    async def run(
        self, scenarios: Sequence[Scenario], *, concurrent: int = CONCURRENT_SCENARIOS, progress: Progress | None = None
    ) -> dict[str, Outcome]:
        """
        Run the scenarios and return the outcome of each, by name. May be called again, also with the same scenarios.

        Raises:
            ConfigError: the broker ended and cannot be restarted, or its coordinator does not become ready.
            ScriptError: a request cannot be encoded.
        """
        outcomes = _Outcomes(len(scenarios), progress)
        steady = [scenario for scenario in scenarios if not scenario.restarts]
        try:
            await self._warm_up()
            # Scenarios that run alone come first: some list all that a broker has, and generated ones leave quotas behind.
            await self._run_all([scenario for scenario in steady if scenario.alone], 1, outcomes)
            await self._run_all([scenario for scenario in steady if not scenario.alone], concurrent, outcomes)
            await self._run_restarting([scenario for scenario in scenarios if scenario.restarts], outcomes)
            offsets = await self._coordinators.records(OFFSETS_LOG, self._ends)
            transactions = await self._coordinators.records(TRANSACTION_LOG, self._ends)
        except LOST as exc:
            raise ConfigError(f"the broker does not answer any more: {exc!r}") from None
        return {
            scenario.name: msgspec.structs.replace(
                outcomes.outcomes[scenario.name],
                records=offsets.of(outcomes.names[scenario.name]),
                transactions=transactions.of(outcomes.names[scenario.name]),
            )
            for scenario in scenarios
        }

    async def _run_all(self, scenarios: Sequence[Scenario], concurrent: int, outcomes: "_Outcomes") -> None:
        """Run scenarios concurrently. If the broker dies, run those under way again with less concurrency, down to one."""
        waiting = deque(scenarios)
        while waiting:
            suspects = await self._run_until_death(waiting, concurrent, outcomes)
            if suspects and len(suspects) == concurrent == 1:
                outcomes.add(suspects[0], Outcome(died=True), Names(""))
            elif suspects:
                await self._run_all(suspects, max(concurrent // _FEWER, 1), outcomes)

    async def _run_until_death(
        self, waiting: deque[Scenario], concurrent: int, outcomes: "_Outcomes"
    ) -> list[Scenario]:
        """
        Run scenarios until none is left or the broker has ended. In that case, restart it.

        Returns:
            The scenarios under way when the broker ended.
        """
        suspects: list[Scenario] = []
        causes: list[BaseException] = []

        async def work() -> None:
            while waiting and not suspects:
                scenario = waiting.popleft()
                try:
                    outcomes.add(scenario, *await self._run(scenario))
                except LOST as exc:
                    suspects.append(scenario)
                    causes.append(exc)

        await _together(work() for _ in range(min(concurrent, len(waiting))))
        if suspects:
            await self._revive(causes[0])
        return suspects

    async def _revive(self, cause: BaseException) -> None:
        """
        Restart a broker that has ended.

        Raises:
            ConfigError: it has not ended, or there is no way to restart it.
        """
        if self._restart is None:
            raise ConfigError(f"the broker does not answer any more: {cause!r}") from None
        if await self._control.is_alive():
            raise ConfigError(f"the broker runs but does not answer: {cause!r}") from None
        await asyncio.sleep(_EXIT_S)
        await self._restart_now()

    async def _restart_now(self) -> None:
        assert self._restart is not None
        self._control.close()
        await self._restart()
        await _until(self._control.is_alive, f"the broker does not answer {READY_TIMEOUT_S:g} s after its restart")
        await self._warm_up()

    async def _run_restarting(self, scenarios: Sequence[Scenario], outcomes: "_Outcomes") -> None:
        if scenarios and self._restart is None:
            for scenario in scenarios:
                outcomes.add(scenario, Outcome(unsupported=NO_RESTART), Names(""))
            return
        common = CommonRestart(self._restart_now, len(scenarios))

        async def one(scenario: Scenario) -> None:
            try:
                outcomes.add(scenario, *await self._run(scenario, common.join))
            finally:
                common.leave()

        await _together(one(scenario) for scenario in scenarios)

    async def _run(self, scenario: Scenario, restart: Restart | None = None) -> tuple[Outcome, Names]:
        prefix = f"{NAMESPACE}-{self._nonce}-{self._runs:05}-"
        self._runs += 1
        lacking = self._lacking(scenario)
        if lacking:
            return Outcome(unsupported=lacking), Names(prefix)
        given = {}
        if scenario.topics:
            partitions = {prefix + name: count for name, count in scenario.topics.items()}
            ids = await self._make_topics(partitions)
            await await_assignable(self._control, scenario, prefix, partitions)
            given = {f"{name.removeprefix(prefix)}.id": topic_id for name, topic_id in ids.items()}
        run = ScenarioRun(scenario, self._control.address, prefix, given, restart)
        outcome = await run.run()
        began_s = asyncio.get_running_loop().time()
        self._ends[prefix] = await self._coordinators.ends()
        ends_ms = round(1000 * (asyncio.get_running_loop().time() - began_s))
        self.lateness_ms[scenario.name] = {**run.lateness_ms, RECORDS: ends_ms}
        return outcome, run.names

    def _lacking(self, scenario: Scenario) -> str:
        """The first API version of the scenario that the broker does not serve; empty if it serves all."""
        for api, version in asked_versions(scenario):
            unlisted = UNLISTED if "ListConfigResources" in self.versions else {}
            oldest, newest = self.versions.get(api) or unlisted.get(api, (0, -1))
            if not oldest <= version <= newest:
                return f"{api} v{version}"
        return ""

    async def _make_topics(self, partitions: dict[str, int]) -> dict[str, UUID]:
        """Create topics, wait until their partitions have leaders, and return their ids."""
        request = m.CreateTopicsRequest(
            topics=tuple(
                m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in partitions.items()
            ),
            timeout_ms=10_000,
        )
        response = await self._control.ask_newest(ApiKey.CREATE_TOPICS, request)
        refused = [topic for topic in response.topics if topic.error_code]
        if refused:
            raise ConfigError(f"the broker refuses to create {refused[0].name}: error {refused[0].error_code}")
        return await self._await_topics(partitions)

    async def _await_topics(self, partitions: dict[str, int]) -> dict[str, UUID]:
        request = m.MetadataRequest(
            topics=tuple(m.MetadataRequestTopic(name=name) for name in partitions), allow_auto_topic_creation=False
        )
        ready: dict[str, UUID] = {}

        async def are_ready() -> bool:
            response = await self._control.ask_newest(ApiKey.METADATA, request, below=12)
            ready.clear()
            ready.update(
                (topic.name, topic.topic_id)
                for topic in response.topics
                if len(topic.partitions) == partitions[topic.name]
                and not any(each.error_code for each in (topic, *topic.partitions))
            )
            return len(ready) == len(partitions) and await self._are_led(partitions)

        await _until(are_ready, f"the broker does not lead {', '.join(partitions)} after {READY_TIMEOUT_S:g} s")
        return ready

    async def _are_led(self, partitions: dict[str, int]) -> bool:
        """Whether every partition answers: Metadata may name a leader before that is ready."""
        response = await self._control.list_ends({name: range(count) for name, count in partitions.items()})
        return not any(partition.error_code for topic in response.topics for partition in topic.partitions)

    async def _warm_up(self) -> None:
        failure = f"the broker's coordinators are not ready after {READY_TIMEOUT_S:g} s"
        await _until(self._coordinators.are_ready, failure)


async def _until(condition: Callable[[], Awaitable[bool]], failure: str) -> None:
    """Wait for a broker. Raises ConfigError with the sentence after `READY_TIMEOUT_S`."""
    deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise ConfigError(failure)
        await asyncio.sleep(_POLL_S)


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently; raise the first error, not a group of them."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except* (*LOST, ConfigError) as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


class _Outcomes:
    """
    The outcomes of scenarios so far.

    Attributes:
        names: the identities of each scenario.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self.outcomes: dict[str, Outcome] = {}
        self.names: dict[str, Names] = {}

    def add(self, scenario: Scenario, outcome: Outcome, names: Names) -> None:
        self.outcomes[scenario.name] = outcome
        self.names[scenario.name] = names
        if self._progress is not None:
            self._progress(len(self.outcomes), self._total)
