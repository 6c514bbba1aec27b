"""Generated scenarios of topics: create, grow, configure, describe and delete, with valid and invalid names and values."""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_VISIBLE_MS = 500
"""The time until a broker of Apache Kafka has applied a change that its controller acknowledged."""

_NULL = {"$none": True}
_NAMES = ("@one", "@two", "@one", "@two", "bad name", "", "@dots.dots", "@missing")
_CONFIGS = (
    ("retention.ms", "1000"),
    ("retention.ms", "-1"),
    ("retention.ms", "soon"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "forget"),
    ("max.message.bytes", "2048"),
    ("max.message.bytes", "-1"),
    ("compression.type", "zstd"),
    ("no.such.thing", "1"),
    ("min.insync.replicas", "1"),
    ("segment.bytes", "1048576"),
    ("min.cleanable.dirty.ratio", "0.25"),
)


def write_topic_scenario(writer: ScenarioWriter) -> None:
    for _ in range(writer.random.randint(5, 11)):
        writer.pick((_create, _create, _create, _delete, _grow, _metadata, _metadata, _describe, _configs, _alter))(
            writer
        )


def _create(writer: ScenarioWriter) -> None:
    topics = [
        _new_topic(writer, name) for name in dict.fromkeys(writer.pick(_NAMES) for _ in range(writer.pick((1, 1, 2))))
    ]
    writer.send("CreateTopics", topics=topics, timeout_ms=5_000, validate_only=writer.chance(0.2))
    writer.pause(_VISIBLE_MS)


def _new_topic(writer: ScenarioWriter, name: str) -> dict[str, Any]:
    topic: dict[str, Any] = {
        "name": name,
        "num_partitions": writer.pick((1, 2, 3, 0, -2)),
        "replication_factor": writer.pick((1, 1, 1, 0, 2)),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in _some_configs(writer)],
    }
    if writer.version("CreateTopics") >= 4 and writer.chance(0.3):
        topic |= {"num_partitions": -1, "replication_factor": -1}
    return topic


def _some_configs(writer: ScenarioWriter) -> list[tuple[str, str]]:
    if writer.chance(0.5):
        return []
    chosen = dict(writer.pick(_CONFIGS) for _ in range(writer.pick((1, 1, 2))))
    return list(chosen.items())


def _delete(writer: ScenarioWriter) -> None:
    name = writer.pick(_NAMES)
    writer.send("DeleteTopics", topic_names=[name], topics=[{"name": name, "topic_id": _NULL}], timeout_ms=5_000)
    writer.pause(_VISIBLE_MS)


def _grow(writer: ScenarioWriter) -> None:
    writer.send(
        "CreatePartitions",
        topics=[{"name": writer.pick(_NAMES), "count": writer.pick((1, 2, 3, 5, 0, -1)), "assignments": _NULL}],
        timeout_ms=5_000,
        validate_only=writer.chance(0.2),
    )
    writer.pause(_VISIBLE_MS)


def _metadata(writer: ScenarioWriter) -> None:
    names = dict.fromkeys(writer.pick(_NAMES) for _ in range(writer.pick((1, 2))))
    # Versions below 4 cannot say that nothing is to be created.
    if writer.version("Metadata") < 4:
        names = dict.fromkeys(name for name in names if name in ("", "bad name"))
        names = names or {"bad name": None}
    writer.send(
        "Metadata",
        topics=[{"name": name} for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=writer.chance(0.3),
        include_cluster_authorized_operations=writer.chance(0.3),
    )


def _describe(writer: ScenarioWriter) -> None:
    names = sorted(dict.fromkeys(writer.pick(_NAMES[:4]) for _ in range(2)))
    writer.send(
        "DescribeTopicPartitions",
        topics=[{"name": name} for name in names],
        response_partition_limit=writer.pick((1, 2, 100)),
        cursor=_NULL,
    )


def _configs(writer: ScenarioWriter) -> None:
    keys: Any = sorted({key for key, _ in (writer.pick(_CONFIGS) for _ in range(2))})
    writer.send(
        "DescribeConfigs",
        resources=[{"resource_type": 2, "resource_name": writer.pick(_NAMES), "configuration_keys": keys}],
        include_synonyms=writer.chance(0.5),
        include_documentation=writer.chance(0.3),
    )


def _alter(writer: ScenarioWriter) -> None:
    key, value = writer.pick(_CONFIGS)
    operation = writer.pick((0, 0, 0, 1, 2, 3, 9))
    configs = [{"name": key, "config_operation": operation, "value": _NULL if operation == 1 else value}]
    writer.send(
        "IncrementalAlterConfigs",
        resources=[{"resource_type": 2, "resource_name": writer.pick(_NAMES), "configs": configs}],
        validate_only=writer.chance(0.2),
    )
    writer.pause(_VISIBLE_MS)
