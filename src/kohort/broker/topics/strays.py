"""
The check of a data directory before a broker starts on it: whatever is in it has to be the broker's own.

The catalog knows the topics. A partition that it does not know is a stray if it was made in this directory, for example after a
crash during the deletion of a topic: the start renames it to `-stray` and logs it, and nothing uses it from then on. Any other
was written by somebody else, and the start is refused. And the opposite: partitions of topics that have data, but no directory.

Source: Kafka LogManager.loadLog (stray logs), KRaft's TopicDelta of a stale replica.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID

from kohort.broker.catalog import CATALOG, Catalog
from kohort.broker.catalog_view import Topic
from kohort.model.errors import ConfigError, CorruptError, StorageError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.journal import journal_files
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from kohort.storage.files.directory import JOURNAL, LOG_SUFFIX, find_partitions
from kohort.storage.files.foreign import refuse_foreign, refuse_kafka
from kohort.storage.files.journal_format import read_journal
from kohort.storage.log import NO_TOPIC_ID, LogConfig, LogStore

_KEY: Final = re.compile(rb"topic:([0-9a-f]{32})")
_NAME: Final = re.compile(rb'"topic":\{"name":"([a-zA-Z0-9._-]{1,249})"')


def check_directory(data_dir: Path) -> None:
    """
    Check that everything in a data directory is this broker's own. Nothing is changed.

    Raises:
        ConfigError: Apache Kafka has written the directory, or there are partitions that this broker did not write, or the
            catalog that knows them is missing.
        OSError: a file cannot be read.
    """
    partitions = find_partitions(data_dir)
    has_catalog = bool(partitions) and _has_catalog(data_dir, partitions)
    refuse_kafka(data_dir, partitions, is_owned=has_catalog)
    if partitions and not has_catalog:
        raise catalog_missing(data_dir, partitions)

    @cache
    def known() -> tuple[frozenset[UUID], frozenset[str]]:
        return _topics_of(b"".join(_catalog_bytes(data_dir, partitions)))

    # A power cut leaves a directory without its topic id if it was made shortly before.
    is_stopped = (data_dir / CLEAN_SHUTDOWN).exists() and not (data_dir / JOURNAL).exists()

    def is_known(topic_partition: TopicPartition, topic_id: UUID) -> bool:
        if topic_partition == CATALOG:
            return True
        if topic_id == NO_TOPIC_ID:
            return not is_stopped or topic_partition.topic in known()[1]
        return topic_id in known()[0]

    refuse_foreign(data_dir, partitions, is_known)


def catalog_missing(location: Path | str, partitions: Collection[TopicPartition]) -> ConfigError:
    """The refusal of a directory with partitions, of which no catalog says to which topics they belong."""
    return ConfigError(
        f"{location} has {len(partitions)} partitions (the first is {min(partitions)}), but {CATALOG}, the catalog of their "
        "topics, is missing or empty. No partition was changed. Put the catalog back if it was removed; else choose another "
        "data directory. `kohort pipeline`, `kohort log dump` and `kohort log verify` read this one as it is."
    )


def _has_catalog(data_dir: Path, partitions: Mapping[TopicPartition, Path]) -> bool:
    """Whether the directory has a catalog, or had one that is in the journal or is lost: the start decides what to do then."""
    directory = partitions.get(CATALOG)
    if directory is not None and any(path.stat().st_size for path in directory.glob(f"*{LOG_SUFFIX}")):
        return True
    try:
        journal = read_journal(journal_files(data_dir / JOURNAL))
        return CATALOG in read_offsets(data_dir / RECOVERY_POINTS) or any(
            entry.topic_partition == CATALOG for entry in journal
        )
    except CorruptError:
        return True


def _topics_of(content: bytes) -> tuple[frozenset[UUID], frozenset[str]]:
    """The topic ids and names in all entries of the catalog, with those of deleted topics and those in damaged batches."""
    ids = frozenset(UUID(hex=found.decode()) for found in _KEY.findall(content))
    return ids, frozenset(found.decode() for found in _NAME.findall(content))


def _catalog_bytes(data_dir: Path, partitions: Mapping[TopicPartition, Path]) -> Iterator[bytes]:
    directory = partitions.get(CATALOG)
    if directory is not None:
        yield from (path.read_bytes() for path in sorted(directory.glob(f"*{LOG_SUFFIX}")))
    try:
        for entry in read_journal(journal_files(data_dir / JOURNAL)):
            if entry.topic_partition == CATALOG:
                yield entry.content
    except CorruptError:  # the start is refused
        return


def rename_strays(store: LogStore, catalog: Catalog) -> int:
    """
    Rename stray partitions and return their number. Call it after the load of the catalog, before any partition is opened.

    Raises:
        ConfigError: the catalog is empty; every partition would be one.
        StorageError: a directory could not be renamed.
    """
    strays = [
        topic_partition
        for topic_partition in store.partitions()
        if topic_partition != CATALOG and _topic_of(topic_partition, catalog) is None
    ]
    if strays and catalog.is_new:
        raise catalog_missing(store.location, strays)
    for topic_partition in strays:
        store.rename_to_stray(topic_partition)
    return len(strays)


def refuse_missing(store: LogStore, catalog: Catalog) -> int:
    """
    Let the store refuse, and log, the partitions of topics whose directories are missing; return their number.

    Apache Kafka makes an empty log, which gives the offsets of the lost records to new ones.
    """
    refused = 0
    for topic_partition in tuple(store.missing()) if not catalog.is_new else ():
        topic = _topic_of(topic_partition, catalog)
        if topic is None:
            store.forget_missing(topic_partition)
            continue
        with suppress(StorageError):
            store.open(topic_partition, topic.topic_id, LogConfig())
        refused += 1
    return refused


def _topic_of(topic_partition: TopicPartition, catalog: Catalog) -> Topic | None:
    topic = catalog.topic(topic_partition.topic)
    return topic if topic is not None and topic_partition.partition < topic.partition_count else None
