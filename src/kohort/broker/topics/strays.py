"""
Stray partitions: directories on disk without a topic, for example after a crash during the deletion of a topic. And the
opposite: partitions of topics that have data, but no directory.

The start renames them to `-stray` and logs it; nothing uses them from then on. All of them were made in this directory: a start
is refused where others have written (`foreign`).

Source: Kafka LogManager.loadLog (stray logs), KRaft's TopicDelta of a stale replica.
"""

from contextlib import suppress

from kohort.broker.catalog import CATALOG, Catalog
from kohort.broker.catalog_view import Topic
from kohort.broker.topics.foreign import catalog_missing
from kohort.model.errors import StorageError
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig, LogStore


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
        raise catalog_missing(store.data_dir, strays)
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
