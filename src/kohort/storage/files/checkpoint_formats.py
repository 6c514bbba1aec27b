"""
The text files of a data directory in Kafka's formats, and the lock on the directory.

Source: Kafka CheckpointFile, OffsetCheckpointFile, PartitionMetadataFile, PropertiesUtils, CleanShutdownFileHandler.
"""

import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from kohort.model.errors import ConfigError, CorruptError
from kohort.model.ids import TopicPartition, uuid_from_text, uuid_text
from kohort.model.properties import parse_properties
from kohort.storage.files import syscalls
from kohort.storage.files.checksums import comment, read_commented, read_sealed, seal
from kohort.storage.files.directory import PARTITION_MAX, find_partitions
from kohort.storage.log import NO_TOPIC_ID, OFFSET_MAX

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
COPYING = "kohort.copying"
"""The property of a directory into which a store is copied; it goes when all is there."""
PARTITION_METADATA = "partition.metadata"
_log = logging.getLogger("kohort.storage")

_MADE_IN = "kohort.directory.id"


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of a file: after a crash it has the old or the new content, on return the new one is durable."""
    temporary = path.with_name(path.name + ".tmp")
    syscalls.write_file(temporary, text.encode(), is_synced=True)
    syscalls.rename(temporary, path)
    syscalls.sync_directory(path.parent)


def is_empty(path: Path) -> bool:
    """Whether a file is missing or has no bytes."""
    return not path.exists() or path.stat().st_size == 0


def offsets_to_text(offsets: Mapping[TopicPartition, int]) -> str:
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return seal("\n".join(lines) + "\n")


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """
    Offsets by partition; none if the file is missing, or empty after an unclean stop.

    Raises:
        CorruptError: the file is not a checkpoint of offsets, or its checksum is wrong.
    """
    try:
        lines = read_sealed(path).splitlines()
    except FileNotFoundError:
        return {}
    if not lines:
        return {}
    try:
        entries = [line.split() for line in lines[2:] if line]
        if lines[0] != "0" or int(lines[1]) != len(entries):
            raise CorruptError(f"{path} does not hold what its first lines promise")
        return dict(_offset(*entry) for entry in entries)
    except (TypeError, ValueError, IndexError) as exc:
        raise CorruptError(f"{path} cannot be read as a checkpoint of offsets") from exc


def _offset(topic: str, partition: str, offset: str) -> tuple[TopicPartition, int]:
    """
    Raises:
        ValueError: the texts are not a partition and an offset.
    """
    found = TopicPartition(topic, int(partition)), int(offset)
    if not 0 <= found[0].partition <= PARTITION_MAX or not 0 <= found[1] <= OFFSET_MAX:
        raise ValueError(f"offset {offset} of {topic}-{partition}")
    return found


def write_partition_metadata(
    directory: Path, topic_id: UUID, directory_id: str | None = None, *, is_synced: bool = False
) -> None:
    """
    Write the topic id of a partition, and the id of the data directory in which it is made.

    Apache Kafka reads two lines, and ignores the third one. Source: Kafka PartitionMetadataFile.PartitionMetadataReadBuffer.
    """
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    text += "" if directory_id is None else f"\n{_MADE_IN}: {directory_id}"
    syscalls.write_file(directory / PARTITION_METADATA, text.encode(), is_synced=is_synced)


def read_partition_metadata(directory: Path) -> UUID:
    """The topic id; the zero id if the file is missing or incomplete."""
    return partition_metadata_of(directory)[0]


def partition_metadata_of(directory: Path) -> tuple[UUID, str | None]:
    """The topic id as `read_partition_metadata`, and the id of the data directory in which Kohort made the partition."""
    try:
        lines = (directory / PARTITION_METADATA).read_text("utf-8").splitlines()
        fields = dict(line.split(": ", 1) for line in lines if line)
        topic_id = uuid_from_text(fields["topic_id"]) if fields.get("version") == "0" else NO_TOPIC_ID
    except (FileNotFoundError, KeyError, ValueError):
        return NO_TOPIC_ID, None
    return topic_id, fields.get(_MADE_IN)


def read_properties(path: Path) -> dict[str, str] | None:
    """
    The keys and values of a Java properties file as Kafka writes them; None when there is none.

    Raises:
        CorruptError: the file has a checksum, which is wrong.
    """
    try:
        return parse_properties(read_commented(path))
    except FileNotFoundError:
        return None


def claim_directory(data_dir: Path, *, node_id: int, cluster_id: str | None, new_id: UUID) -> tuple[str, str | None]:
    """
    Check that the directory belongs to this node of this cluster, or claim a new directory.

    Returns:
        The cluster id, and the id of the directory; None if an older version of Apache Kafka has written the file.

    Args:
        cluster_id: None takes the id of the directory.
        new_id: the id of a new directory, and of its cluster if `cluster_id` is None.

    Raises:
        ConfigError: the directory belongs to another version, cluster or node.
    """
    path = data_dir / META_PROPERTIES
    try:
        found = read_properties(path)
    except CorruptError as exc:
        raise ConfigError(
            f"{exc}: compare its lines with a copy, and remove the first line, which is the checksum"
        ) from exc
    if found is None:
        cluster_id = cluster_id or uuid_text(new_id)
        if find_partitions(data_dir):
            _log.error("store.properties_missing path=%s new_cluster_id=%s", path, cluster_id)
        text = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={uuid_text(new_id)}\n"
        write_atomically(path, comment(text))
        return cluster_id, uuid_text(new_id)
    if COPYING in found:
        raise ConfigError(
            f"a copy of {found[COPYING]} into {data_dir} was interrupted: remove the directory, and copy again with "
            "`kohort store copy`"
        )
    version, owner, node = found.get("version"), found.get("cluster.id"), found.get("node.id")
    if version != "1" or owner is None:
        raise ConfigError(
            f"{path} is of version {version}, not 1: this directory was written by another kind of broker."
        )
    if cluster_id is not None and owner != cluster_id:
        raise ConfigError(
            f"{data_dir} belongs to cluster {owner}, not {cluster_id}: choose another directory or cluster id."
        )
    if node != str(node_id):
        raise ConfigError(f"{data_dir} belongs to node {node}, not {node_id}: choose another directory or node id.")
    return owner, found.get("directory.id")


class DirectoryLock:
    """A lock that keeps a second process from using a data directory."""

    def __init__(self, data_dir: Path) -> None:
        """
        Raises:
            ConfigError: another process has the lock.
        """
        self._fd = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, syscalls.FILE_MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(self._fd)
            raise ConfigError(
                f"{data_dir} is in use by another process: stop that one, or choose another directory."
            ) from exc

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
