"""The commands of `kohort topics`."""

from typing import Annotated, Any

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.completion import complete_topics
from kohort.cli.options import AsJson
from kohort.cli.output import print_changes, print_json, print_rows, print_table, raise_all
from kohort.cli.topics import queries
from kohort.client.connection import reason
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey

app = ClusterApp(
    "topics",
    help="List, describe, create and delete topics.",
    epilog="Example: kohort topics create orders --partitions 6 --config cleanup.policy=compact",
)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=complete_topics, help="Topic names.")]


@app.command("list", epilog="Example: kohort topics list --json")
def list_topics(
    is_json: AsJson = False,
    with_internal: Annotated[bool, typer.Option("--internal/--no-internal", help="Include internal topics.")] = True,
) -> None:
    """List topics with their partition counts."""
    with open_client() as client:
        found = queries.topics(client)
    rows = [_summary(topic) for topic in found if with_internal or not topic.is_internal]
    print_rows(("topic", "partitions", "replication_factor", "internal", "topic_id"), rows, is_json=is_json)


@app.command(epilog="Example: kohort topics describe orders payments")
def describe(
    names: Names,
    is_json: AsJson = False,
) -> None:
    """
    Show partitions, leaders and offsets.

    Also shows the configurations that are set on each topic.
    """
    with open_client() as client:
        found = queries.topics(client, names)
        starts = queries.offsets(client, found, queries.EARLIEST)
        ends = queries.offsets(client, found, queries.LATEST)
        configs = queries.overrides(client, [topic.name for topic in found])
    described = [
        {**_summary(topic), "configs": configs[topic.name], "partitions": _partitions(topic, starts, ends)}
        for topic in found
    ]
    if is_json:
        print_json(described)
        return
    for topic in described:
        _print_topic(topic)


@app.command(epilog="Example: kohort topics create orders --partitions 6 --config retention.ms=3600000")
def create(
    names: Names,
    is_json: AsJson = False,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1 means the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1 means the broker's default.")] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Topic configuration; repeatable.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Ignore topics that exist already.")] = False,
) -> None:
    """Create topics. If one fails, the others are still created and the exit code is 2."""
    configs = [_config(text) for text in config or ()]
    topics = [
        messages.CreateTopicsRequestCreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        for name in dict.fromkeys(names)
    ]
    with open_client() as client:
        request = messages.CreateTopicsRequest(topics=topics, timeout_ms=int(client.timeout_s * 1000))
        results = client.send(ApiKey.CREATE_TOPICS, request).topics
    ignored = {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    rows = [
        {
            "topic": topic.name,
            "topic_id": queries.topic_id_text(topic.topic_id),
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
        }
        for topic in results
        if not topic.error_code
    ]
    print_changes("Created topic {topic}.", rows, is_json=is_json)
    _raise_refused(results, ignored, "cannot be created")


@app.command(epilog="Example: kohort topics delete orders --if-exists")
def delete(
    names: Names,
    is_json: AsJson = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
) -> None:
    """Delete topics and their records, without confirmation. If one fails, the exit code is 2."""
    unique = tuple(dict.fromkeys(names))
    with open_client() as client:
        request = messages.DeleteTopicsRequest(
            topic_names=unique,
            topics=[messages.DeleteTopicsRequestDeleteTopicState(name=name) for name in unique],
            timeout_ms=int(client.timeout_s * 1000),
        )
        results = client.send(ApiKey.DELETE_TOPICS, request).responses
    ignored = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    rows = [{"topic": topic.name} for topic in results if not topic.error_code]
    print_changes("Deleted topic {topic}.", rows, is_json=is_json)
    _raise_refused(results, ignored, "cannot be deleted")


def _summary(topic: Any) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": queries.topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
    }


def _partitions(topic: Any, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replica_nodes),
            "in_sync_replicas": list(partition.isr_nodes),
            "offline_replicas": list(partition.offline_replicas),
            "start_offset": starts.get(TopicPartition(topic.name, partition.partition_index)),
            "end_offset": ends.get(TopicPartition(topic.name, partition.partition_index)),
        }
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]


def _print_topic(topic: dict[str, Any]) -> None:
    configs = ", ".join(f"{name}={value}" for name, value in sorted(topic["configs"].items()))
    columns = ("partition", "leader", "leader_epoch", "replicas", "in_sync_replicas", "start_offset", "end_offset")
    title = f"Topic {topic['topic']}, id {topic['topic_id'] or 'unknown'}" + (
        f", configured {configs}" if configs else ""
    )
    print_table(columns, topic["partitions"], title=title)


def _config(text: str) -> Any:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"--config {text!r} does not have the form NAME=VALUE")
    return messages.CreateTopicsRequestCreatableTopicConfig(name=name, value=value)


def _raise_refused(results: list[Any], ignored: set[ErrorCode], failed: str) -> None:
    refused = [result for result in results if result.error_code and result.error_code not in ignored]
    raise_all(f"topic {result.name} {failed}: {reason(result.error_code, result.error_message)}" for result in refused)
