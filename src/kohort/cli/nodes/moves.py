"""Moves of partitions to a node: a reassignment, then a preferred election."""

from __future__ import annotations

import time
from typing import Any, Final

from kohort.cli.brokers.leaders import brokers, elect, partition_of, reassign
from kohort.cli.topics.queries import existing_topics, topics
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.messages import MetadataResponsePartition

_POLL_S: Final = 0.1


def places(client: Client, text: str) -> list[TopicPartition]:
    """
    The partitions that `TOPIC` or `TOPIC-PARTITION` names. A topic of the whole name wins.

    Raises:
        ConfigError: there is no such topic or partition.
    """
    name, dash, index = text.rpartition("-")
    found = existing_topics(client, [text])
    if not found and dash and name and index.isdecimal():
        (topic,) = topics(client, [name])
        if int(index) >= len(topic.partitions):
            raise ConfigError(f"topic {name!r} has {len(topic.partitions)} partitions, and no partition {index}")
        return [TopicPartition(name, int(index))]
    (topic,) = found or topics(client, [text])
    return [TopicPartition(text, index) for index in range(len(topic.partitions))]


def move_to(client: Client, place: TopicPartition, node: int) -> dict[str, Any]:
    """
    Let a node lead a partition, and return the new leader.

    Raises:
        ConfigError: there is no such node, it does not run or is drained, or it does not lead after the timeout.
        CoordinatorError: the cluster refused.
    """
    states = {row["broker"]: row["state"] for row in brokers(client)}
    if states.get(node) != "running":
        running = ", ".join(str(each) for each, state in states.items() if state == "running")
        raise ConfigError(f"node {node} does not run; these do: {running}")
    state = partition_of(client, place)
    replicas = tuple(state.replica_nodes)
    others = [replica for replica in replicas if replica != node]
    target = (node, *others) if node in replicas else (node, *replicas[1:])
    if target != replicas:
        reassign(client, place, target)
    try:
        state = _led_by(client, place, node)
    except CoordinatorError as error:
        if target != replicas and error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            reassign(client, place, replicas)
        raise
    return {
        "topic": place.topic,
        "partition": place.partition,
        "leader": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replica_nodes),
    }


def _led_by(client: Client, place: TopicPartition, node: int) -> MetadataResponsePartition:
    """Elect the node until it leads. Raises: as `move_to`."""
    deadline = time.monotonic() + client.timeout_s
    while (state := partition_of(client, place)).leader_id != node:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{place} is led by node {state.leader_id}, and not by node {node}, after {client.timeout_s:g} s"
            )
        elect(client, place)
        time.sleep(_POLL_S)
    return state
