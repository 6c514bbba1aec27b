"""
A side: the broker at one address, what it serves, and all stories told to it.

Before the first story its group coordinator is asked until every partition of `__consumer_offsets` answers, so that no story
meets one that is being loaded; after the last one those partitions are read.

Stories that change what others see are told after those, one at a time. Stories in which the broker is restarted are told
together, after all others: it is restarted when each of them wants it.

A broker that does not survive a story is started again, if there is a way to do that. Which story it was is found by telling
those that were being told when it died once more, in smaller and smaller company.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from kohort.client.cluster import RETRIABLE_COORDINATOR_ERRORS
from kohort.conformance.canon import NAMESPACE, Names
from kohort.conformance.connection import Connection
from kohort.conformance.offsets_log import GroupRecords
from kohort.conformance.outcome import Outcome
from kohort.conformance.restarting import CommonRestart
from kohort.conformance.scenario import Scenario, asked_versions
from kohort.conformance.scenario_run import Restart, ScenarioRun
from kohort.model.errors import ConfigError, WireError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder

CONCURRENT_STORIES = 16
ANSWER_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 60.0
_OFFSETS = "__consumer_offsets"
_POLL_S = 0.05
_WARM_GROUPS = 64
"""Enough that every one of a few partitions is met."""
_ALIVE_TIMEOUT_S = 20.0
_FEWER = 6
"""Of stories that a broker may have died of, a sixth as many are told at a time."""
NO_RESTART = "(no way to restart the broker)"
_LOST = (OSError, WireError, TimeoutError)
"""What a story meets when the broker goes away."""

Progress = Callable[[int, int], None]


class Cluster:
    """
    Use `connect`.

    Attributes:
        versions: what the broker serves, oldest and newest by API.
        strains_ms: how much each story's latest telling was strained (`ScenarioRun.strain_ms`).
    """

    def __init__(self, host: str, port: int, restart: Restart | None) -> None:
        self._address = (host, port)
        self._restart = restart
        self._control: Connection
        self._nonce = secrets.token_hex(2)
        self._tellings = 0
        self._offsets_partitions: tuple[int, ...] = ()
        self._ends: dict[str, dict[int, int]] = {}
        self.versions: dict[str, tuple[int, int]] = {}
        self.strains_ms: dict[str, int] = {}

    @classmethod
    async def connect(cls, host: str, port: int, restart: Restart | None = None) -> "Cluster":
        """
        Args:
            restart: stops the broker if it runs, starts it, and returns. None: there is no way to do that.

        Raises:
            ConfigError: nobody answers there, or not as a broker does.
        """
        cluster = cls(host, port, restart)
        try:
            await cluster._open_control()
            await cluster._learn_versions()
        except _LOST as exc:
            raise ConfigError(f"no broker answers at {host}:{port}: {str(exc) or 'it is silent'}") from None
        return cluster

    def close(self) -> None:
        self._control.close()

    async def tell(
        self, stories: Sequence[Scenario], *, concurrent: int = CONCURRENT_STORIES, progress: Progress | None = None
    ) -> dict[str, Outcome]:
        """
        The outcome of every story, by its name. May be called again, for the same stories too.

        Raises:
            ConfigError: the broker went away and cannot be restarted, or its coordinator does not come up.
            ScriptError: a story asks for what cannot be sent.
        """
        told = _Told(len(stories), progress)
        steady = [story for story in stories if not story.restarts]
        try:
            await self._warm_up()
            await self._tell_all([story for story in steady if not story.alone], concurrent, told)
            await self._tell_all([story for story in steady if story.alone], 1, told)
            await self._tell_restarting([story for story in stories if story.restarts], told)
            records = await self._group_records()
        except _LOST as exc:
            raise ConfigError(f"the broker did not stay with us: {exc!r}") from None
        return {
            story.name: msgspec.structs.replace(told.outcomes[story.name], records=records.of(told.names[story.name]))
            for story in stories
        }

    async def _tell_all(self, stories: Sequence[Scenario], concurrent: int, told: "_Told") -> None:
        """So many at a time. When the broker dies, those that were under way are told again, fewer at a time, down to one."""
        waiting = deque(stories)
        while waiting:
            suspects = await self._tell_until_death(waiting, concurrent, told)
            if suspects and len(suspects) == concurrent == 1:
                told.add(suspects[0], Outcome(died=True), Names(""))
            elif suspects:
                await self._tell_all(suspects, max(concurrent // _FEWER, 1), told)

    async def _tell_until_death(self, waiting: deque[Scenario], concurrent: int, told: "_Told") -> list[Scenario]:
        """
        Tell stories until none is left, or the broker is gone; in that case it is there again afterwards.

        Returns:
            The stories that it may have died of.
        """
        suspects: list[Scenario] = []
        causes: list[BaseException] = []

        async def work() -> None:
            while waiting and not suspects:
                story = waiting.popleft()
                try:
                    told.add(story, *await self._tell(story))
                except _LOST as exc:
                    suspects.append(story)
                    causes.append(exc)

        await _together(work() for _ in range(min(concurrent, len(waiting))))
        if suspects:
            await self._revive(causes[0])
        return suspects

    async def _revive(self, cause: BaseException) -> None:
        """
        Restart a broker that is gone.

        Raises:
            ConfigError: it is there, or nobody can restart it.
        """
        if self._restart is None:
            raise ConfigError(f"the broker did not stay with us: {cause!r}") from None
        if await self._is_alive():
            raise ConfigError(f"the broker is there but does not answer: {cause!r}") from None
        await self._restart_now()

    async def _is_alive(self) -> bool:
        try:
            self._control.close()
            await self._open_control()
            await asyncio.wait_for(self._learn_versions(), _ALIVE_TIMEOUT_S)
        except _LOST:
            return False
        return True

    async def _restart_now(self) -> None:
        assert self._restart is not None
        self._control.close()
        await self._restart()
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while not await self._is_alive():
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigError(f"the broker does not answer {READY_TIMEOUT_S:g} s after its restart")
            await asyncio.sleep(_POLL_S)
        await self._warm_up()

    async def _tell_restarting(self, stories: Sequence[Scenario], told: "_Told") -> None:
        if stories and self._restart is None:
            for story in stories:
                told.add(story, Outcome(unsupported=NO_RESTART), Names(""))
            return
        common = CommonRestart(self._restart_now, len(stories))

        async def one(story: Scenario) -> None:
            try:
                told.add(story, *await self._tell(story, common.join))
            finally:
                common.leave()

        await _together(one(story) for story in stories)

    async def _open_control(self) -> None:
        self._control = await Connection.open(*self._address)

    async def _tell(self, story: Scenario, restart: Restart | None = None) -> tuple[Outcome, Names]:
        prefix = f"{NAMESPACE}-{self._nonce}-{self._tellings:05}-"
        self._tellings += 1
        lacking = self._lacking(story)
        if lacking:
            return Outcome(unsupported=lacking), Names(prefix)
        given = {}
        if story.topics:
            ids = await self._make_topics({prefix + name: count for name, count in story.topics.items()})
            given = {f"{name.removeprefix(prefix)}.id": topic_id for name, topic_id in ids.items()}
        telling = ScenarioRun(story, self._address, prefix, given, restart)
        outcome = await telling.tell()
        self.strains_ms[story.name] = telling.strain_ms
        self._ends[prefix] = await self._offsets_ends()
        return outcome, telling.names

    def _lacking(self, story: Scenario) -> str:
        """What the story needs and the broker does not serve."""
        for api, version in asked_versions(story):
            oldest, newest = self.versions.get(api, (0, -1))
            if not oldest <= version <= newest:
                return f"{api} v{version}"
        return ""

    async def _learn_versions(self) -> None:
        request = m.ApiVersionsRequest(client_software_name="kohort-conformance", client_software_version="1")
        response = await self._ask(ApiKey.API_VERSIONS, 3, request)
        known = {int(api): api for api in ApiKey}
        self.versions = {
            known[key.api_key].api_name: (key.min_version, key.max_version)
            for key in response.api_keys
            if key.api_key in known
        }

    async def _ask(self, api: ApiKey, version: int, request: Any) -> Any:
        encode = request_encoder(api, version)
        return await self._control.ask(
            api, version, lambda number: encode(number, "kc-control", request), ANSWER_TIMEOUT_S
        )

    def _version(self, api: ApiKey) -> int:
        oldest, newest = self.versions.get(api.api_name, (0, -1))
        version = min(newest, api.newest_stable)
        if version < max(oldest, api.oldest):
            raise ConfigError(
                f"the broker serves no version of {api.api_name} that we speak, and no story does without"
            )
        return version

    async def _make_topics(self, partitions: dict[str, int]) -> dict[str, UUID]:
        """Topics that can be used at once; their ids."""
        request = m.CreateTopicsRequest(
            topics=tuple(
                m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in partitions.items()
            ),
            timeout_ms=10_000,
        )
        response = await self._ask(ApiKey.CREATE_TOPICS, self._version(ApiKey.CREATE_TOPICS), request)
        refused = [topic for topic in response.topics if topic.error_code]
        if refused:
            raise ConfigError(f"the broker refuses to create {refused[0].name}: error {refused[0].error_code}")
        return await self._await_topics(partitions)

    async def _await_topics(self, partitions: dict[str, int]) -> dict[str, UUID]:
        request = m.MetadataRequest(
            topics=tuple(m.MetadataRequestTopic(name=name) for name in partitions), allow_auto_topic_creation=False
        )
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while True:
            response = await self._ask(ApiKey.METADATA, min(12, self._version(ApiKey.METADATA)), request)
            ready = {
                topic.name: topic.topic_id
                for topic in response.topics
                if len(topic.partitions) == partitions[topic.name]
                and not any(each.error_code for each in (topic, *topic.partitions))
            }
            if len(ready) == len(partitions) and await self._are_led(partitions):
                return ready
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigError(f"the broker does not lead {', '.join(partitions)} after {READY_TIMEOUT_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _are_led(self, partitions: dict[str, int]) -> bool:
        """Whether every partition answers: a broker may tell of a leader before that is ready."""
        response = await self._list_ends({name: range(count) for name, count in partitions.items()})
        return not any(partition.error_code for topic in response.topics for partition in topic.partitions)

    async def _list_ends(self, partitions: Mapping[str, Sequence[int]]) -> Any:
        request = m.ListOffsetsRequest(
            replica_id=-1,
            topics=tuple(
                m.ListOffsetsTopic(
                    name=name,
                    partitions=tuple(
                        m.ListOffsetsPartition(partition_index=index, timestamp=-1, current_leader_epoch=-1)
                        for index in indexes
                    ),
                )
                for name, indexes in partitions.items()
            ),
        )
        return await self._ask(ApiKey.LIST_OFFSETS, min(7, self._version(ApiKey.LIST_OFFSETS)), request)

    async def _warm_up(self) -> None:
        """Until the coordinator of any group answers, and producer ids are given out."""
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while not (await self._has_coordinators() and await self._has_producer_ids()):
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigError(f"the broker's group coordinator is not ready after {READY_TIMEOUT_S:g} s")
            await asyncio.sleep(_POLL_S)
        request = m.MetadataRequest(topics=(m.MetadataRequestTopic(name=_OFFSETS),))
        response = await self._ask(ApiKey.METADATA, min(9, self._version(ApiKey.METADATA)), request)
        self._offsets_partitions = tuple(
            partition.partition_index for topic in response.topics for partition in topic.partitions
        )

    async def _has_coordinators(self) -> bool:
        find = m.FindCoordinatorRequest(key=NAMESPACE, key_type=0, coordinator_keys=(NAMESPACE,))
        found = await self._ask(ApiKey.FIND_COORDINATOR, self._version(ApiKey.FIND_COORDINATOR), find)
        if any(each.error_code for each in (found.coordinators or (found,))):
            return False
        request = m.DescribeGroupsRequest(groups=tuple(f"{NAMESPACE}-warm-{n}" for n in range(_WARM_GROUPS)))
        response = await self._ask(ApiKey.DESCRIBE_GROUPS, self._version(ApiKey.DESCRIBE_GROUPS), request)
        return all(group.error_code not in RETRIABLE_COORDINATOR_ERRORS for group in response.groups)

    async def _has_producer_ids(self) -> bool:
        if ApiKey.INIT_PRODUCER_ID.api_name not in self.versions:
            return True
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._ask(ApiKey.INIT_PRODUCER_ID, self._version(ApiKey.INIT_PRODUCER_ID), request)
        return response.error_code not in RETRIABLE_COORDINATOR_ERRORS

    async def _group_records(self) -> GroupRecords:
        """What all groups left in `__consumer_offsets`, read partition by partition."""
        found = GroupRecords(self._ends)
        for partition in self._offsets_partitions:
            await self._read_partition(partition, found)
        return found

    async def _offsets_ends(self) -> dict[int, int]:
        """Where the partitions of `__consumer_offsets` end."""
        response = await self._list_ends({_OFFSETS: self._offsets_partitions})
        return {each.partition_index: each.offset for topic in response.topics for each in topic.partitions}

    async def _read_partition(self, index: int, found: GroupRecords) -> None:
        version = min(12, self._version(ApiKey.FETCH))
        offset = 0
        while True:
            request = m.FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 24,
                session_epoch=-1,
                topics=(
                    m.FetchRequestFetchTopic(
                        topic=_OFFSETS,
                        partitions=(
                            m.FetchRequestFetchPartition(
                                partition=index,
                                fetch_offset=offset,
                                partition_max_bytes=1 << 24,
                                current_leader_epoch=-1,
                            ),
                        ),
                    ),
                ),
            )
            response = await self._ask(ApiKey.FETCH, version, request)
            after = found.add(index, bytes(response.responses[0].partitions[0].records or b""))
            if not after:
                return
            offset = after


async def _together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at a time; raises the first error of any as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except* (*_LOST, ConfigError) as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


class _Told:
    """
    What came of stories so far.

    Attributes:
        names: each story's identities.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self.outcomes: dict[str, Outcome] = {}
        self.names: dict[str, Names] = {}

    def add(self, story: Scenario, outcome: Outcome, names: Names) -> None:
        self.outcomes[story.name] = outcome
        self.names[story.name] = names
        if self._progress is not None:
            self._progress(len(self.outcomes), self._total)
