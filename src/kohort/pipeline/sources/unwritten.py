"""
Partitions of a Kohort broker that have no record yet: the broker makes the directory of a partition with its first record.

Such a log is empty, and not missing. A copy of some partitions has the catalog of topics at most. A whole data directory has
`meta.properties`, too, and mostly the recovery points, which name the partitions that had records.
"""

from pathlib import Path

from kohort.model.ids import TopicPartition
from kohort.pipeline.decode.log_starts import read_checkpoint
from kohort.pipeline.decode.segments import partition_directories
from kohort.pipeline.decode.storage import is_remote
from kohort.pipeline.sources.topic_ids import catalog_topics

META_PROPERTIES = "meta.properties"
"""The file of a broker in its data directory; it holds the id of the cluster."""
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def unwritten(path: str) -> dict[TopicPartition, str]:
    """
    Return the partitions without a record in a whole data directory of Kohort, with the ids of their topics; none of other
    directories, and of remote ones.

    Raises:
        ConfigError: the directory cannot be read.
    """
    if is_remote(path) or not (Path(path) / META_PROPERTIES).is_file():
        return {}
    written = read_checkpoint(f"{path}/{RECOVERY_POINTS}")
    there = {(topic, partition) for topic, partition, _ in partition_directories(path)}
    return {
        TopicPartition(topic.name, number): topic_id
        for topic_id, topic in catalog_topics(path).items()
        for number in range(topic.partitions)
        if (topic.name, number) not in there and (topic.name, number) not in written
    }
