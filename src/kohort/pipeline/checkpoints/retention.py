"""
The time until retention reaches the position of a query, at its present rate.

Retention deletes a record when it is `retention.ms` old. The query's position moves through the times of records at some speed:
1 if it keeps up with the producers, 0 if it stands. The distance to the oldest record that retention leaves shrinks by the
difference. Retention by size is not counted, and deletion comes later by what is left of a segment.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kohort.client.security import Security
from kohort.pipeline.sources.live import open_client
from kohort.wire import messages
from kohort.wire.apis import ApiKey

_TOPIC: Final = 2
"""The resource type of a topic in DescribeConfigs."""
_RETENTION: Final = "retention.ms"
_POLICY: Final = "cleanup.policy"
_DELETE: Final = "delete"


class Moved(NamedTuple):
    """
    The times when the first unread record behind two positions was produced: an earlier one, and that of now.

    Attributes:
        earlier_ms: when the earlier position was reached.
        earlier_produced_ms, produced_ms: of the records.
    """

    earlier_ms: int
    earlier_produced_ms: int
    produced_ms: int


def time_left_ms(moved: Moved, retention_ms: int, at_ms: int) -> int | None:
    """Return how long until retention reaches the position; None if it never does at this speed."""
    margin_ms = retention_ms - (at_ms - moved.produced_ms)
    if margin_ms <= 0:
        return 0
    elapsed_ms = at_ms - moved.earlier_ms
    speed = (moved.produced_ms - moved.earlier_produced_ms) / elapsed_ms if elapsed_ms > 0 else 0.0
    return None if speed >= 1 else round(margin_ms / (1 - speed))


def retention_by_topic(path: str, topics: Collection[str], security: Security) -> Mapping[str, int]:
    """
    Return `retention.ms` of topics of a cluster, without those that keep their records or do not tell.

    Raises:
        ConfigError: no broker answers.
    """
    if not topics:
        return {}
    keys = (_RETENTION, _POLICY)
    resources = tuple(
        messages.DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=keys)
        for topic in sorted(topics)
    )
    with open_client(path, security) as client:
        response = client.send(ApiKey.DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(resources=resources))
    found = {}
    for one in response.results:
        values = {each.name: each.value for each in one.configs} if not one.error_code else {}
        if _DELETE in (values.get(_POLICY) or "") and int(values.get(_RETENTION) or -1) >= 0:
            found[one.resource_name] = int(values[_RETENTION])
    return found
