"""Stories of topics: made, grown, configured, described and deleted, with names and values of every kind."""

from typing import Any

from kohort.conformance.generated.writer import ScenarioWriter

_VISIBLE_MS = 500
"""What a controller has acknowledged is known to the brokers after so much at the latest."""

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


def topic_story(teller: ScenarioWriter) -> None:
    for _ in range(teller.random.randint(5, 11)):
        teller.pick((_create, _create, _create, _delete, _grow, _metadata, _metadata, _describe, _configs, _alter))(
            teller
        )


def _create(teller: ScenarioWriter) -> None:
    topics = [
        _new_topic(teller, name) for name in dict.fromkeys(teller.pick(_NAMES) for _ in range(teller.pick((1, 1, 2))))
    ]
    teller.send("CreateTopics", topics=topics, timeout_ms=5_000, validate_only=teller.chance(0.2))
    teller.pause(_VISIBLE_MS)


def _new_topic(teller: ScenarioWriter, name: str) -> dict[str, Any]:
    topic: dict[str, Any] = {
        "name": name,
        "num_partitions": teller.pick((1, 2, 3, 0, -2)),
        "replication_factor": teller.pick((1, 1, 1, 0, 2)),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in _some_configs(teller)],
    }
    if teller.version("CreateTopics") >= 4 and teller.chance(0.3):
        topic |= {"num_partitions": -1, "replication_factor": -1}
    return topic


def _some_configs(teller: ScenarioWriter) -> list[tuple[str, str]]:
    if teller.chance(0.5):
        return []
    chosen = dict(teller.pick(_CONFIGS) for _ in range(teller.pick((1, 1, 2))))
    return list(chosen.items())


def _delete(teller: ScenarioWriter) -> None:
    name = teller.pick(_NAMES)
    teller.send("DeleteTopics", topic_names=[name], topics=[{"name": name, "topic_id": _NULL}], timeout_ms=5_000)
    teller.pause(_VISIBLE_MS)


def _grow(teller: ScenarioWriter) -> None:
    teller.send(
        "CreatePartitions",
        topics=[{"name": teller.pick(_NAMES), "count": teller.pick((1, 2, 3, 5, 0, -1)), "assignments": _NULL}],
        timeout_ms=5_000,
        validate_only=teller.chance(0.2),
    )
    teller.pause(_VISIBLE_MS)


def _metadata(teller: ScenarioWriter) -> None:
    names = dict.fromkeys(teller.pick(_NAMES) for _ in range(teller.pick((1, 2))))
    # Versions below 4 cannot say that nothing is to be created.
    if teller.version("Metadata") < 4:
        names = dict.fromkeys(name for name in names if name in ("", "bad name"))
        names = names or {"bad name": None}
    teller.send(
        "Metadata",
        topics=[{"name": name} for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=teller.chance(0.3),
        include_cluster_authorized_operations=teller.chance(0.3),
    )


def _describe(teller: ScenarioWriter) -> None:
    names = sorted(dict.fromkeys(teller.pick(_NAMES[:4]) for _ in range(2)))
    teller.send(
        "DescribeTopicPartitions",
        topics=[{"name": name} for name in names],
        response_partition_limit=teller.pick((1, 2, 100)),
        cursor=_NULL,
    )


def _configs(teller: ScenarioWriter) -> None:
    keys: Any = sorted({key for key, _ in (teller.pick(_CONFIGS) for _ in range(2))})
    teller.send(
        "DescribeConfigs",
        resources=[{"resource_type": 2, "resource_name": teller.pick(_NAMES), "configuration_keys": keys}],
        include_synonyms=teller.chance(0.5),
        include_documentation=teller.chance(0.3),
    )


def _alter(teller: ScenarioWriter) -> None:
    key, value = teller.pick(_CONFIGS)
    operation = teller.pick((0, 0, 0, 1, 2, 3, 9))
    configs = [{"name": key, "config_operation": operation, "value": _NULL if operation == 1 else value}]
    teller.send(
        "IncrementalAlterConfigs",
        resources=[{"resource_type": 2, "resource_name": teller.pick(_NAMES), "configs": configs}],
        validate_only=teller.chance(0.2),
    )
    teller.pause(_VISIBLE_MS)
