"""
The files of a checkpoint: `metadata`, `offsets/N`, `commits/N` and `sources/N/0`.

- `metadata` is `{"id": ...}`: the id of the query.
- `offsets/N` is the plan of batch N: a version, a line with times and settings, and the end offsets, a line for each source.
  That is JSON of the source, or `-` if it has no offset yet. In version 2, of Spark 4.2, `NAME:` stands before it.
- `commits/N` tells that batch N has finished: a version, and a line that lag does not need. Versions 2 and 3, of Spark 4.0 and
  4.3, have names of state files there.
- `sources/N/0` tells where a source began: a byte 0, a version, the offsets.

Source: Spark OffsetSeqLog, OffsetSeqMetadata, CommitLog, HDFSMetadataLog, KafkaSourceInitialOffsetWriter, JsonUtils.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.numbers import INT32_MAX, INT64_MAX

OFFSETS_VERSION_MAX: Final = 2
COMMITS_VERSION_MAX: Final = 3
_NO_OFFSET = "-"
_SIGNS: Mapping[str, str] = {
    "logOffset": "files",
    "reservoirId": "a Delta table",
    "snapshot_id": "an Iceberg table",
    "shardIterator": "Kinesis",
}
"""Fields in the offsets of other sources, and what these are."""


class UnknownVersionError(ConfigError):
    """A file of a newer Spark than this release knows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A file of offsets.

    Attributes:
        began_ms: when the batch began; 0 if the file does not tell.
        offsets: the end offsets of the batch, by Kafka partition. A partition of several sources has the smallest one.
        others: the sources that are not Kafka, in words.
    """

    began_ms: int
    watermark_ms: int
    settings: Mapping[str, str]
    offsets: Mapping[TopicPartition, int]
    others: tuple[str, ...] = ()


def parse_query_id(data: bytes) -> str | None:
    """Return the id of a query; None if the file is damaged."""
    try:
        found = json.loads(data)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def parse_plan(data: bytes) -> Plan:
    """
    Parse `offsets/N`.

    Raises:
        UnknownVersionError: a newer Spark wrote it.
        ValueError: it is damaged, or not complete.
    """
    plan, texts = _head(data)
    found: dict[TopicPartition, int] = {}
    others = []
    for name, text in texts:
        if text == _NO_OFFSET:
            continue
        offsets = _source(text)
        if isinstance(offsets, str):
            others.append(f"source {name} ({offsets})")
        else:
            found |= {place: min(at, found.get(place, at)) for place, at in offsets.items()}
    return replace(plan, offsets=found, others=tuple(others))


def parse_times(data: bytes) -> Plan:
    """
    Parse `offsets/N` without the offsets, which is most of the work.

    Raises:
        UnknownVersionError, ValueError: as for `parse_plan`, but for the offsets.
    """
    return _head(data)[0]


def _head(data: bytes) -> tuple[Plan, Sequence[tuple[str, str]]]:
    """Return a plan without offsets, and the name and offsets of each source as text."""
    version, lines = _lines(data, OFFSETS_VERSION_MAX, "offset log")
    if len(lines) < 2:
        raise ValueError("a line with offsets is missing")
    about = _object(lines[0]) if lines[0].strip() else {}
    named = (line.partition(":")[::2] if version > 1 else (str(at), line) for at, line in enumerate(lines[1:]))
    settings = about.get("conf")
    plan = Plan(
        _whole(about, "batchTimestampMs"),
        _whole(about, "batchWatermarkMs"),
        {str(name): str(value) for name, value in settings.items()} if isinstance(settings, dict) else {},
        {},
    )
    return plan, list(named)


def check_commit(data: bytes) -> None:
    """
    Check `commits/N`.

    Raises:
        UnknownVersionError: a newer Spark wrote it.
        ValueError: it is damaged, or not complete.
    """
    _, lines = _lines(data, COMMITS_VERSION_MAX, "commit log")
    if lines:
        _object(lines[0])


def parse_start(data: bytes) -> dict[TopicPartition, int]:
    """
    Parse `sources/N/0`: where a Kafka source began; nothing for another source.

    Raises:
        UnknownVersionError: a newer Spark wrote it.
        ValueError: it is damaged.
    """
    _, lines = _lines(data.removeprefix(b"\0"), 1, "log of initial offsets")
    found = _source("\n".join(lines)) if lines else ""
    return {} if isinstance(found, str) else found


def _lines(data: bytes, version_max: int, name: str) -> tuple[int, list[str]]:
    """Return the version of a file, and its lines behind it."""
    # A newline in a topic name is impossible, and JSON escapes all others.
    first, *others = data.decode().split("\n")
    version = first.strip().removeprefix("v")
    if not first.startswith("v") or not version.isascii() or not version.isdigit() or len(version) > 9:
        raise ValueError("the version is missing")
    if not 1 <= int(version) <= version_max:
        raise UnknownVersionError(
            f"the {name} has version {version}, and this release reads up to {version_max}: a newer Spark wrote it"
        )
    return int(version), others


def _object(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if isinstance(found, dict):
        return found
    raise ValueError("the second line is no object")


def _source(text: str) -> dict[TopicPartition, int] | str:
    return kafka_offsets(json.loads(text))


def kafka_offsets(offsets: Any) -> dict[TopicPartition, int] | str:
    """
    Return the offsets of a Kafka source, or words for another source.

    Raises:
        ValueError: an offset is out of range.
    """
    if not isinstance(offsets, dict):
        return "numbers, as of rate or socket"
    if not all(isinstance(one, dict) for one in offsets.values()):
        return next((name for sign, name in _SIGNS.items() if sign in offsets), "not Kafka")
    found = {}
    for topic, partitions in offsets.items():
        for partition, at in partitions.items():
            if not partition.isdigit() or type(at) is not int:
                return "not Kafka"
            if int(partition) > INT32_MAX or not 0 <= at <= INT64_MAX:
                raise ValueError(f"offset {at} of {topic}-{partition} is none")
            found[TopicPartition(topic, int(partition))] = at
    return found


def _whole(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name, 0)
    if type(value) is not int or not -INT64_MAX <= value <= INT64_MAX:
        raise ValueError(f"{name} is no number")
    return value
