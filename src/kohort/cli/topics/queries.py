"""Queries about topics: partitions, start and end offsets, configurations."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from kohort.client.cluster import Client
from kohort.client.connection import Versions, error_name, refusal
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition, uuid_text
from kohort.model.suggestion import suggestion
from kohort.wire import messages
from kohort.wire.apis import ApiKey

EARLIEST = -2
LATEST = -1
TOPIC = 2
"""Resource type of a topic in DescribeConfigs."""
DYNAMIC_TOPIC_CONFIG = 1
"""Source of a configuration value that is set on the topic itself."""

_BY_ID = Versions(4, 1 << 15)
"""Versions of Metadata with `allow_auto_topic_creation`."""


def topics(client: Client, names: Collection[str] | None = None) -> list[Any]:
    """
    Return topics as in the Metadata response, sorted by name.

    Args:
        names: None for all topics.

    Raises:
        ConfigError: a topic does not exist.
        CoordinatorError: the broker returned another error.
    """
    found = _metadata(client, names)
    for topic in found:
        if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            near = suggestion(topic.name, [each.name for each in topics(client)])
            raise ConfigError(f"topic {topic.name!r} does not exist{near or '; see: kohort topics list'}")
        if topic.error_code:
            raise refusal(topic.error_code, f"topic {topic.name}")
    return sorted(found, key=lambda topic: topic.name)


def existing_topics(client: Client, names: Collection[str]) -> list[Any]:
    """Return topics as `topics` does, without the ones that do not exist."""
    return [topic for topic in _metadata(client, sorted(names)) if not topic.error_code] if names else []


def _metadata(client: Client, names: Collection[str] | None) -> Sequence[Any]:
    requested = None if names is None else [messages.MetadataRequestTopic(name=name) for name in dict.fromkeys(names)]
    request = messages.MetadataRequest(topics=requested, allow_auto_topic_creation=False)
    topics: Sequence[Any] = client.send(ApiKey.METADATA, request, within=_BY_ID).topics
    return topics


def offsets(client: Client, described: Iterable[Any], timestamp: int) -> dict[TopicPartition, int]:
    """
    Ask partition leaders for offsets: `EARLIEST` (log start offset), `LATEST` (high watermark), or by timestamp.

    Partitions without a leader, or whose leader has just changed, are left out.
    """
    by_leader: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for topic in described:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                by_leader[partition.leader_id][topic.name].append(
                    messages.ListOffsetsPartition(
                        partition_index=partition.partition_index, current_leader_epoch=-1, timestamp=timestamp
                    )
                )
    brokers = client.brokers()
    found: dict[TopicPartition, int] = {}
    for leader, by_topic in sorted(by_leader.items()):
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            topics=[messages.ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
            timeout_ms=int(client.timeout_s * 1000),
        )
        response = client.send(ApiKey.LIST_OFFSETS, request, at=brokers[leader])
        for topic in response.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.offset
    return found


def overrides(client: Client, names: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Return the configurations that are set on topics themselves, by topic and name."""
    request = messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
            for name in names
        ]
    )
    response = client.send(ApiKey.DESCRIBE_CONFIGS, request)
    found: dict[str, dict[str, str | None]] = {}
    for result in response.results:
        if result.error_code:
            what = f"configuration of topic {result.resource_name}"
            raise refusal(result.error_code, what, result.error_message or error_name(result.error_code))
        found[result.resource_name] = {
            config.name: config.value for config in result.configs if config.config_source == DYNAMIC_TOPIC_CONFIG
        }
    return found


def topic_id_text(topic_id: UUID | None) -> str | None:
    """Format a topic id as Kafka's tools do (URL-safe base64)."""
    return None if topic_id is None else uuid_text(topic_id)
