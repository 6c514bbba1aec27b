"""
Offsets of topic partitions, as options and checkpoints hold them: `{"__consumer_offsets": {"0": 812, "1": 0}}`, which is also
the form of Spark's Kafka connector.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from kohort.model.errors import ConfigError

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and the number of a partition."""

Positions: TypeAlias = dict[TopicPartition, int]
"""The next offset to read, for each partition."""

EARLIEST = -2
LATEST = -1


def to_json(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """In the form of a checkpoint, in order."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return told


def from_json(told: Any) -> Positions:
    """
    Out of the form of a checkpoint.

    Raises:
        ConfigError: it is something else.
    """
    try:
        found = {(topic, int(partition)): told[topic][partition] for topic in told for partition in told[topic]}
    except (TypeError, ValueError, LookupError, AttributeError) as exc:
        raise ConfigError(f'offsets are written {{"topic": {{"0": 12}}}}, not {str(told)[:100]}') from exc
    for (topic, partition), offset in found.items():
        if type(offset) is not int or offset < EARLIEST:
            raise ConfigError(f"{offset!r} is no offset of {topic}-{partition}")
    return found


def parse(text: str, name: str) -> int | Positions:
    """
    An option: `earliest`, `latest` or JSON; the words come out as `EARLIEST` and `LATEST`.

    Raises:
        ConfigError: it is neither.
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
