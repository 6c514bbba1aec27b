"""
Names in a data directory: which of them are partitions, and what becomes of those that are not any more.

Source: Kafka UnifiedLog.logDeleteDirName, logStrayDirName, parseTopicPartitionName.
"""

import re
from pathlib import Path
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.storage import syscalls

JOURNAL = "journal"
OLD_JOURNAL = "journal.old"
"""On its way out: everything in it is in the segments."""
_NAME_BYTES_MAX = 255
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")
_DELETED = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None when it is none's."""
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def find_partitions(data_dir: Path) -> dict[TopicPartition, Path]:
    """The partitions that are there; what a deletion left half done is removed."""
    found = {}
    for path in sorted(data_dir.iterdir()):
        if not path.is_dir():
            continue
        if _DELETED.fullmatch(path.name):
            syscalls.remove_tree(path)
        elif topic_partition := partition_of(path.name):
            found[topic_partition] = path
    return found


def set_aside(path: Path, unique: UUID, *, suffix: str) -> Path:
    """Rename a partition's directory, so that it is a partition no more; `suffix` is Kafka's `delete` or `stray`."""
    topic, _, partition = path.name.rpartition("-")
    ending = f"-{partition}.{unique.hex}-{suffix}"
    return syscalls.rename(path, path.with_name(topic[: _NAME_BYTES_MAX - len(ending)] + ending))
