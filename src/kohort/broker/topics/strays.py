"""
Stray partitions: directories on disk without a topic, for example after a crash during the deletion of a topic.

The start renames them to `-stray` and logs it; nothing uses them from then on. A store without a catalog was written by another
broker, perhaps by Apache Kafka: its partitions stay as they are.

Source: Kafka LogManager.loadLog (stray logs), KRaft's TopicDelta of a stale replica.
"""

import logging

from kohort.broker.catalog import CATALOG, Catalog
from kohort.storage.log import LogStore

_log = logging.getLogger("kohort.broker")


def rename_strays(store: LogStore, catalog: Catalog) -> int:
    """
    Rename stray partitions and return their number. Call it after the load of the catalog, before any partition is opened.

    Raises:
        StorageError: a directory could not be renamed.
    """
    strays = []
    for topic_partition in store.partitions():
        topic = catalog.topic(topic_partition.topic)
        is_known = topic is not None and topic_partition.partition < topic.partition_count
        if not is_known and topic_partition != CATALOG:
            strays.append(topic_partition)
    if strays and catalog.is_new:
        _log.warning("store.foreign partitions=%d first=%s", len(strays), strays[0])
        return 0
    for topic_partition in strays:
        store.rename_to_stray(topic_partition)
    return len(strays)
