"""
The check of a data directory before a broker starts on it: whatever is in it has to be the broker's own.

The catalog knows the topics. A partition that it does not know is a stray if it was made in this directory
(`kohort.broker.topics.strays`). Any other was written by somebody else, and the start is refused.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID

from kohort.broker.catalog.catalog import CATALOG
from kohort.broker.topics.strays import catalog_missing
from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.journal import journal_files
from kohort.storage.files.checkpoint_formats import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from kohort.storage.files.directory import JOURNAL, LOG_SUFFIX, find_partitions
from kohort.storage.files.foreign import refuse_foreign, refuse_kafka
from kohort.storage.files.journal_format import read_journal
from kohort.storage.log import NO_TOPIC_ID

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
