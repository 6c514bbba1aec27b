"""
Topic ids of a source: a broker stores the id in each log directory, and returns it in Metadata.

Kohort creates the directory of a partition with its first record, so its catalog of topics is read too: a group may be assigned
partitions without records.

Source: Kafka PartitionMetadataFile; KIP-516 (Metadata version 10 and later); records: `broker/catalog/catalog.py`.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np

from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.ids import uuid_text
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batches import Scan, scans
from kohort.pipeline.decode.records import parse, windows
from kohort.pipeline.decode.segments import Segment, list_segments, partition_directories
from kohort.pipeline.decode.vectors import slices
from kohort.pipeline.sources import live
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.postgres.connection import opened
from kohort.pipeline.sources.postgres.logs import batches_from, list_logs, logs_of
from kohort.wire import messages
from kohort.wire.apis import ApiKey

_METADATA = Versions(10, 13)
"""Versions with topic ids."""
_FILE = "partition.metadata"
_FILE_BYTES_MAX = 4096
_CATALOG = "__kohort_catalog"
_TOPIC_KEY = b"topic:"


class CatalogTopic(NamedTuple):
    """A topic of a Kohort broker."""

    name: str
    partitions: int


def topic_ids(path: str, security: Security = PLAINTEXT) -> dict[str, str]:
    """
    Return the names of existing topics by topic id, in Kafka's text form of ids.

    Args:
        path: of a source. Remote directories are not searched.
        security: how to connect to a cluster.

    Raises:
        ConfigError: no such directory, or no broker answers.
    """
    if live.is_live(path):
        return _of_cluster(path, security)
    if is_database(path):
        stored = {log.topic_id: log.topic for log in list_logs(path) if log.topic_id is not None}
        return {topic_id: topic.name for topic_id, topic in catalog_topics(path).items()} | stored
    if storage.is_remote(path):
        return {}
    return {topic_id: topic.name for topic_id, topic in catalog_topics(path).items()} | _of_directory(path)


def _of_cluster(path: str, security: Security) -> dict[str, str]:
    with live.open_client(path, security) as client:
        request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = client.send(ApiKey.METADATA, request, within=_METADATA)
    return {
        uuid_text(topic.topic_id): topic.name for topic in metadata.topics if topic.name and topic.topic_id is not None
    }


def _of_directory(path: str) -> dict[str, str]:
    beside = ((id_beside(directory), topic) for topic, _, directory in partition_directories(path))
    return {topic_id: topic for topic_id, topic in beside if topic_id is not None}


def id_beside(directory: str | Path) -> str | None:
    """Return the topic id that a broker stored in the local directory of a partition; None if there is none."""
    try:
        with (Path(directory) / _FILE).open(encoding="ascii") as file:
            text = file.read(_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError):
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return fields.get("topic_id")


class Catalog:
    """The catalog of a Kohort broker, for who asks often: it is read again after it has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read: object = None
        self._topics: dict[str, CatalogTopic] = {}

    def topics(self) -> dict[str, CatalogTopic]:
        """As `catalog_topics`."""
        now: object = list_logs(self._path, topics={_CATALOG}) if is_database(self._path) else _segments(self._path)
        if now != self._read:
            self._topics, self._read = catalog_topics(self._path), now
        return self._topics


def catalog_topics(path: str) -> dict[str, CatalogTopic]:
    """Return the topics in the catalog of a Kohort broker by id; none in other directories. Unreadable entries are ignored."""
    found: dict[str, CatalogTopic] = {}
    for key, value in _catalog_records(path):
        if not key.startswith(_TOPIC_KEY):
            continue
        with suppress(ValueError, TypeError, LookupError):
            topic_id = uuid_text(UUID(hex=key.removeprefix(_TOPIC_KEY).decode()))
            if value is None:
                found.pop(topic_id, None)
            else:
                topic = json.loads(value)["topic"]
                found[topic_id] = CatalogTopic(str(topic["name"]), int(topic["partition_count"]))
    return found


def _catalog_records(path: str) -> Iterator[tuple[bytes, bytes | None]]:
    for window in (window for scan in _catalog_batches(path) for window in windows(scan)):
        found = parse(window)
        keys = slices(window.data, found.key_at, np.maximum(found.key_bytes, 0), found.key_bytes >= 0)
        values = slices(window.data, found.value_at, np.maximum(found.value_bytes, 0), found.value_bytes >= 0)
        yield from zip((key or b"" for key in keys.to_pylist()), values.to_pylist(), strict=True)


def _catalog_batches(path: str) -> Iterator[Scan]:
    if is_database(path):
        with opened(path) as connection:
            for log in logs_of(connection, topics={_CATALOG}):
                yield from batches_from(connection, log, log.start)
        return
    for segment in _segments(path):
        with suppress(FileNotFoundError):
            yield from scans(storage.mapped(segment.path))


def _segments(path: str) -> list[Segment]:
    return list_segments(path, topics={_CATALOG})
