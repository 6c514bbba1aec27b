"""
Partitions of a Kohort broker without a record: the first record of a partition makes its directory, or its row in a store.

Such a log is empty, and not missing. A copy of some partitions has the catalog of topics at most. A whole data directory has
`meta.properties`, too, and mostly the recovery points, which name the partitions that had records.
"""

from collections.abc import Collection
from pathlib import Path

from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.log_starts import read_checkpoint
from kohort.pipeline.decode.segments import partition_directories
from kohort.pipeline.decode.storage import is_remote
from kohort.pipeline.sources.postgres.address import is_database
from kohort.pipeline.sources.postgres.logs import list_logs
from kohort.pipeline.sources.topic_ids import Catalog

META_PROPERTIES = "meta.properties"
"""The file of a broker in its data directory; it holds the id of the cluster."""
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def unwritten(path: str, catalog: Catalog | None = None) -> dict[TopicPartition, str]:
    """
    Return the partitions without a record in a store, or in a whole data directory of Kohort, with the ids of their topics; of
    other directories none, and of remote ones.

    Args:
        catalog: of the source, for who asks often.

    Raises:
        ConfigError: the source cannot be read.
    """
    written: Collection[tuple[str, int]] = ()
    if is_database(path):
        there = {log.place for log in list_logs(path)}
    elif is_remote(path) or not (Path(path) / META_PROPERTIES).is_file():
        return {}
    else:
        written = read_checkpoint(f"{path}/{RECOVERY_POINTS}")
        there = {(topic, partition) for topic, partition, _ in partition_directories(path)}
    return {
        TopicPartition(topic.name, number): topic_id
        for topic_id, topic in (catalog or Catalog(path)).topics().items()
        for number in range(topic.partitions)
        if (topic.name, number) not in there and (topic.name, number) not in written
    }
