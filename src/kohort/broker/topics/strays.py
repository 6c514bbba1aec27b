"""
Partitions on the disk that belong to no topic: a crash brought back the directory of one that had been deleted, or the catalog
lost it. At the start they are renamed to `-stray`, with a line that says so, and nobody touches them any more.

A store whose catalog is new is somebody else's, Apache Kafka's perhaps: there everything stays as it is.

Source: Kafka LogManager.loadLog (stray logs), KRaft's TopicDelta of a stale replica.
"""

import logging

from kohort.broker.catalog import CATALOG, Catalog
from kohort.storage.log import LogStore

_log = logging.getLogger("kohort.broker")


def set_aside_strays(store: LogStore, catalog: Catalog) -> int:
    """
    How many there were. To be called when the catalog is loaded and before any partition is opened.

    Raises:
        StorageError: one could not be renamed.
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
