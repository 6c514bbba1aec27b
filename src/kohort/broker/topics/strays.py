"""
Stray and missing partitions at a start.

The catalog knows the topics. A partition that it does not know is a stray if it was made in this directory, for example after a
crash during the deletion of a topic: the start renames it to `-stray` and logs it, and nothing uses it from then on. And the
opposite: partitions of topics that have data, but no directory.

Source: Kafka LogManager.loadLog (stray logs), KRaft's TopicDelta of a stale replica.
"""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from kohort.broker.catalog.catalog import CATALOG, Catalog
from kohort.broker.catalog.view import Topic
from kohort.model.errors import ConfigError, StorageError
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig, LogStore


def catalog_missing(location: Path | str, partitions: Collection[TopicPartition]) -> ConfigError:
    """The refusal of a directory with partitions, of which no catalog says to which topics they belong."""
    return ConfigError(
        f"{location} has {len(partitions)} partitions (the first is {min(partitions)}), but {CATALOG}, the catalog of their "
        "topics, is missing or empty. No partition was changed. Put the catalog back if it was removed; else choose another "
        "data directory. `kohort pipeline`, `kohort log dump` and `kohort log verify` read this one as it is."
    )


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
