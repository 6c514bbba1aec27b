"""
Repair of the catalog of topics: every entry that can be read is kept.

A catalog without an entry of a topic would let the next start rename the topic's partitions to `-stray`. So `kohort log repair`
reads the entries within batches whose checksum is wrong, and makes the entry of a topic anew whose directories are there.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from kohort.broker.catalog.catalog import CATALOG, entry_key, topic_record
from kohort.broker.catalog.view import Topic
from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.storage.files.checkpoint_formats import read_partition_metadata
from kohort.storage.files.directory import find_partitions
from kohort.storage.log import NO_TOPIC_ID
from kohort.wire import batches

_KEY = re.compile(rb"topic:([0-9a-f]{32})|group:|producer-ids|setting:")
_VALUE_BEGINS = b'{"version":'
_VALUE_WITHIN = 300
"""A key is followed by its value after this many bytes at most; the name of a group is part of its key."""


class CatalogRescue:
    """
    The entries of a damaged catalog. Implements `kohort.storage.tools.repair.Rescue`.

    Attributes:
        notes: a sentence about each entry that is made anew, or was read from a damaged batch.
    """

    def __init__(self, data_dir: Path) -> None:
        self.notes: list[str] = []
        self._data_dir = data_dir
        self._known: dict[UUID, bool] = {}
        """By topic id: whether the newest record is an entry, or a tombstone."""

    def read(self, batch: bytes) -> None:
        for record in batches.read_records(batch):
            self._learn(record.key or b"", record.value)

    def rescue(self, damaged: bytes, base_offset: int) -> bytes | None:
        found = list(_entries(damaged))
        for key, value in found:
            self._learn(key, value)
            self.notes.append(f"kept from a batch with a wrong checksum: {value.decode()}")
        return _batch(found, base_offset) if found else None

    def end(self, base_offset: int) -> bytes | None:
        entries: list[tuple[bytes, bytes]] = []
        for topic in self._topics_of_directories():
            if topic.topic_id not in self._known:
                entries.append(topic_record(topic))
                self.notes.append(
                    f"the entry of topic {topic.name} is lost and made anew from its directories, with "
                    f"{topic.partition_count} partitions and without configurations: add partitions without data, and set "
                    "its configurations"
                )
        return _batch(entries, base_offset) if entries else None

    def _learn(self, key: bytes, value: bytes | None) -> None:
        match = _KEY.fullmatch(key)
        if match is not None and match[1]:
            self._known[UUID(hex=match[1].decode())] = value is not None

    def _topics_of_directories(self) -> Iterator[Topic]:
        counts: dict[tuple[str, UUID], int] = {}
        for (name, partition), directory in find_partitions(self._data_dir).items():
            topic_id = read_partition_metadata(directory)
            if topic_id != NO_TOPIC_ID and name != CATALOG.topic:
                counts[name, topic_id] = max(counts.get((name, topic_id), 0), partition + 1)
        for (name, topic_id), count in sorted(counts.items()):
            configs = {"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {}
            yield Topic(name, topic_id, count, configs)


def _batch(entries: list[tuple[bytes, bytes]], base_offset: int) -> bytes:
    return batches.encode_batch(entries, 0, base_sequence=-1, base_offset=base_offset)


def _entries(damaged: bytes) -> Iterator[tuple[bytes, bytes]]:
    """
    The entries whose JSON can be read in the bytes of a damaged batch, with their keys.

    A topic's entry has to have the topic id of its key. Deletions have no value; they are not found.
    """
    for match in _KEY.finditer(damaged):
        start = damaged.find(_VALUE_BEGINS, match.end(), match.end() + _VALUE_WITHIN)
        if start < 0:
            continue
        try:
            text = damaged[start:].decode("utf-8", "replace")
            entry = text[: json.JSONDecoder().raw_decode(text)[1]].encode()
            key = entry_key(entry)
        except (ValueError, msgspec.MsgspecError, ConfigError):
            continue
        if not match[1] or key == match[0]:
            yield key, entry
