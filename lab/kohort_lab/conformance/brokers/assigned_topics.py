"""
Waits until the coordinator of a consumer group knows new topics.

A partition of Apache Kafka answers before the group coordinator has the new metadata, so a member that joins at once may get no
partition. A coordinator takes new metadata partition by partition of `__consumer_offsets`. So a member of another group in the
same partition joins until it gets every partition of the topics, then leaves.
"""

import asyncio
from collections.abc import Mapping
from itertools import count

from kohort.model.ids import coordinator_partition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort_lab.conformance.brokers.control import Control
from kohort_lab.conformance.scenarios.scenario import Scenario

_API = ApiKey.CONSUMER_GROUP_HEARTBEAT
_GROUP = "g"
"""The group of nearly all scenarios, without the prefix."""
_PARTITIONS = 4
"""Of `__consumer_offsets`, see `library.SETTINGS`."""
_PATIENCE_S = 5.0
_POLL_S = 0.01
_LEAVE = -1


async def await_assignable(control: Control, scenario: Scenario, prefix: str, partitions: Mapping[str, int]) -> None:
    """
    Wait if the scenario is about consumer groups and the broker serves them. A broker that assigns nothing is given up after
    `_PATIENCE_S`; the scenario shows the difference.

    Args:
        partitions: of the scenario's topics, by name.
    """
    if not any(step.api is _API for step in scenario.steps) or _API.api_name not in control.versions:
        return
    partition = coordinator_partition(prefix + _GROUP, _PARTITIONS)
    names = (f"kc-probe-{prefix}{number}" for number in count())
    group_id = next(name for name in names if coordinator_partition(name, _PARTITIONS) == partition)
    join = m.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=group_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=tuple(partitions),
        topic_partitions=(),
    )
    deadline_s = asyncio.get_running_loop().time() + _PATIENCE_S
    while asyncio.get_running_loop().time() < deadline_s:
        answer = await control.ask(_API, 1, join)
        if answer.error_code:
            return
        if sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) == sum(partitions.values()):
            break
        await asyncio.sleep(_POLL_S)
    leave = m.ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=group_id, member_epoch=_LEAVE)
    await control.ask(_API, 1, leave)
