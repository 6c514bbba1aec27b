"""
A side: the broker at one address, what it serves, and all stories told to it.

Before the first story its group coordinator is asked until every partition of `__consumer_offsets` answers, so that no story
meets one that is being loaded; after the last one those partitions are read.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kohort.conformance.canon import NAMESPACE, Names
from kohort.conformance.connection import Connection
from kohort.conformance.offsets_log import GroupRecords
from kohort.conformance.outcome import Outcome
from kohort.conformance.runner import Telling
from kohort.conformance.story import Story, asked_versions
from kohort.model.errors import ConfigError, ErrorCode, WireError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder

CONCURRENT_STORIES = 16
ANSWER_TIMEOUT_S = 20.0
READY_TIMEOUT_S = 30.0
_OFFSETS = "__consumer_offsets"
_POLL_S = 0.05
_NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
_WARM_GROUPS = 64
"""Enough that every one of a few partitions is met."""

Progress = Callable[[int, int], None]


class Cluster:
    """Use `connect`."""

    def __init__(self, host: str, port: int, control: Connection) -> None:
        self._address = (host, port)
        self._control = control
        self._nonce = secrets.token_hex(2)
        self._offsets_partitions: tuple[int, ...] = ()
        self._ends: dict[str, dict[int, int]] = {}
        self.versions: dict[str, tuple[int, int]] = {}

    @classmethod
    async def connect(cls, host: str, port: int) -> "Cluster":
        """
        Raises:
            ConfigError: nobody answers there, or not as a broker does.
        """
        try:
            cluster = cls(host, port, await Connection.open(host, port))
            await cluster._learn_versions()
            return cluster
        except (OSError, WireError, TimeoutError) as exc:
            raise ConfigError(f"no broker answers at {host}:{port}: {str(exc) or 'it is silent'}") from None

    def close(self) -> None:
        self._control.close()

    async def tell(
        self, stories: Sequence[Story], *, concurrent: int = CONCURRENT_STORIES, progress: Progress | None = None
    ) -> dict[str, Outcome]:
        """
        The outcome of every story, by its name.

        Raises:
            ConfigError: the broker went away, or its coordinator does not come up.
            ScriptError: a story asks for what cannot be sent.
        """
        await self._warm_up()
        gate = asyncio.Semaphore(concurrent)
        told: dict[str, tuple[Outcome, Names]] = {}

        async def one(number: int, story: Story) -> None:
            async with gate:
                told[story.name] = await self._tell(number, story)
                if progress is not None:
                    progress(len(told), len(stories))

        try:
            async with asyncio.TaskGroup() as tasks:
                for number, story in enumerate(stories):
                    tasks.create_task(one(number, story))
        except* (OSError, WireError, TimeoutError) as group:
            raise ConfigError(f"the broker did not stay with us: {group.exceptions[0]!r}") from None
        records = await self._group_records()
        return {
            story.name: Outcome(
                steps=told[story.name][0].steps,
                unsupported=told[story.name][0].unsupported,
                records=records.of(told[story.name][1]),
            )
            for story in stories
        }

    async def _tell(self, number: int, story: Story) -> tuple[Outcome, Names]:
        prefix = f"{NAMESPACE}-{self._nonce}-{number:05}-"
        lacking = self._lacking(story)
        if lacking:
            return Outcome(unsupported=lacking), Names(prefix)
        given = {}
        if story.topics:
            ids = await self._make_topics({prefix + name: count for name, count in story.topics.items()})
            given = {f"{name.removeprefix(prefix)}.id": topic_id for name, topic_id in ids.items()}
        telling = Telling(story, self._address, prefix, given)
        outcome = await telling.tell()
        self._ends[prefix] = await self._offsets_ends()
        return outcome, telling.names

    def _lacking(self, story: Story) -> str:
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
        return all(group.error_code not in _NOT_YET for group in response.groups)

    async def _has_producer_ids(self) -> bool:
        if ApiKey.INIT_PRODUCER_ID.api_name not in self.versions:
            return True
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._ask(ApiKey.INIT_PRODUCER_ID, self._version(ApiKey.INIT_PRODUCER_ID), request)
        return response.error_code not in _NOT_YET

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
