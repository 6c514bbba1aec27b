"""
Offsets of topic partitions, as in options and checkpoints: `{"__consumer_offsets": {"0": 812, "1": 0}}`, the format of Spark's
Kafka connector.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kohort.model.errors import ConfigError

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and a partition number."""

Positions: TypeAlias = dict[TopicPartition, int]
"""The next offset to read, for each partition."""

TOPIC_ID = "id"
"""The key of a topic id among the partitions of a topic, in the offsets of a stream."""
EARLIEST = -2
LATEST = -1


def to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Convert to the JSON form of a checkpoint, sorted."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return told


def from_json(told: Any) -> Positions:
    """
    Convert from the JSON form of a checkpoint.

    Raises:
        ConfigError: another form.
    """
    try:
        found = {
            (topic, int(partition)): told[topic][partition]
            for topic in told
            for partition in told[topic]
            if partition != TOPIC_ID
        }
    except (TypeError, ValueError, LookupError, AttributeError) as exc:
        raise ConfigError(f'offsets are written {{"topic": {{"0": 12}}}}, not {str(told)[:100]}') from exc
    for (topic, partition), offset in found.items():
        if type(offset) is not int or offset < EARLIEST:
            raise ConfigError(f"{offset!r} is no offset of {topic}-{partition}")
    return found


def parse(text: str, name: str) -> int | Positions:
    """
    Parse an option: `earliest` (`EARLIEST`), `latest` (`LATEST`) or JSON.

    Raises:
        ConfigError: none of these.
    """
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    try:
        return from_json(json.loads(text))
    except ValueError as exc:
        raise ConfigError(
            f'{name} is earliest, latest or offsets such as {{"topic": {{"0": 12}}}}, not {text!r}'
        ) from exc


def gaps(partitions: Iterable[int]) -> list[int]:
    """Return the numbers that are missing below the greatest one: a directory does not tell how many partitions a topic has."""
    found = set(partitions)
    return [number for number in range(max(found, default=0)) if number not in found]


def is_complete(partitions: Iterable[int]) -> bool:
    """Tell whether some partitions are all of a topic, as far as their numbers tell: there is one, and no gap below it."""
    found = set(partitions)
    return bool(found) and not gaps(found)
