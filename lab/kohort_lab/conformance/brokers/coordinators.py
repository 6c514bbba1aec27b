"""
The coordinators of a broker under comparison: whether they are ready, and the records that they wrote.

Before the first scenario, each coordinator is asked until every partition of its log answers, so that no scenario meets a
partition that is loading. After the last scenario, the logs are read.
"""

from collections.abc import Mapping

from kohort.client.cluster import RETRIABLE_COORDINATOR_ERRORS
from kohort.model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.conformance.brokers.control import Control
from kohort_lab.conformance.brokers.coordinator_log import Ends, LogFormat, ScenarioRecords
from kohort_lab.conformance.canon import NAMESPACE

_WARM_KEYS = tuple(f"{NAMESPACE}-warm-{number}" for number in range(64))
"""Enough keys to reach every partition of a small internal topic."""
_GROUP, _TRANSACTION = 0, 1


class Coordinators:
    """The group coordinator and, if the broker has one, the transaction coordinator."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._partitions: dict[str, tuple[int, ...]] = {}

    async def are_ready(self) -> bool:
        """Whether the coordinators answer for every key, and producer ids are allocated. If so, their logs are known then."""
        ready = await self._has_groups() and await self._has_producer_ids() and await self._has_transactions()
        if ready:
            await self._learn_partitions()
        return ready

    async def ends(self) -> Ends:
        """The ends of the logs."""
        response = await self._control.list_ends(self._partitions)
        return {
            topic.name: {each.partition_index: each.offset for each in topic.partitions} for topic in response.topics
        }

    async def records(self, log_format: LogFormat, ends: Mapping[str, Ends]) -> ScenarioRecords:
        """
        Read the log of a coordinator.

        Args:
            ends: of the logs when a scenario was over, by the prefix of the scenario.
        """
        found = ScenarioRecords(log_format, {prefix: each.get(log_format.topic, {}) for prefix, each in ends.items()})
        for partition in self._partitions.get(log_format.topic, ()):
            async for batches in self._control.read_log(log_format.topic, partition):
                found.add(partition, batches)
        return found

    async def _learn_partitions(self) -> None:
        names = [CONSUMER_OFFSETS, *([TRANSACTION_STATE] if self._serves(ApiKey.END_TXN) else [])]
        request = m.MetadataRequest(topics=tuple(m.MetadataRequestTopic(name=name) for name in names))
        response = await self._control.ask_newest(ApiKey.METADATA, request, below=9)
        self._partitions = {
            topic.name or "": tuple(sorted(partition.partition_index for partition in topic.partitions))
            for topic in response.topics
        }

    async def _has_groups(self) -> bool:
        if not await self._has_coordinator(_GROUP):
            return False
        response = await self._control.ask_newest(ApiKey.DESCRIBE_GROUPS, m.DescribeGroupsRequest(groups=_WARM_KEYS))
        return all(group.error_code not in RETRIABLE_COORDINATOR_ERRORS for group in response.groups)

    async def _has_transactions(self) -> bool:
        if not self._serves(ApiKey.END_TXN):
            return True
        if not await self._has_coordinator(_TRANSACTION):
            return False
        if not self._serves(ApiKey.DESCRIBE_TRANSACTIONS):
            return True
        request = m.DescribeTransactionsRequest(transactional_ids=_WARM_KEYS)
        response = await self._control.ask_newest(ApiKey.DESCRIBE_TRANSACTIONS, request)
        return all(each.error_code not in RETRIABLE_COORDINATOR_ERRORS for each in response.transaction_states)

    async def _has_coordinator(self, key_type: int) -> bool:
        find = m.FindCoordinatorRequest(key=NAMESPACE, key_type=key_type, coordinator_keys=(NAMESPACE,))
        found = await self._control.ask_newest(ApiKey.FIND_COORDINATOR, find)
        return not any(each.error_code for each in (found.coordinators or (found,)))

    async def _has_producer_ids(self) -> bool:
        if not self._serves(ApiKey.INIT_PRODUCER_ID):
            return True
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._control.ask_newest(ApiKey.INIT_PRODUCER_ID, request)
        return response.error_code not in RETRIABLE_COORDINATOR_ERRORS

    def _serves(self, api: ApiKey) -> bool:
        return api.api_name in self._control.versions
