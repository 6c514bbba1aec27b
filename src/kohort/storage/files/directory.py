"""
Names in a data directory: partition directories, deleted partitions and stray partitions, and the files of segments.

The files of a cleaned segment end in `.cleaned` until they are complete and flushed, then in `.swap` while the cleaner puts the
segment in place; readers that know these names use them meanwhile.

Source: Kafka UnifiedLog.logDeleteDirName, logStrayDirName, parseTopicPartitionName.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.storage.files import syscalls
from kohort.storage.log import OFFSET_MAX, Volume

T = TypeVar("T")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
JOURNAL = "journal"
OLD_JOURNAL = "journal.old"
"""The journal while it is removed: all its data is in the segments."""
JOURNAL_SIZES = ".kohort_needed"
"""The files of the journal, which the next start needs, with their smallest sizes; removed by a clean stop."""
_NAME_BYTES_MAX = 255
_SUFFIX_BYTES = 1 + 32 + len("-delete")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_DELETED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete")
_OFFSET = re.compile(r"([0-9]{20})\..+")
PARTITION_MAX = (1 << 31) - 1


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for other names."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) > PARTITION_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def offset_of(name: str) -> int | None:
    """The offset, in twenty digits, at the beginning of the name of a partition's file; None for other names."""
    match = _OFFSET.fullmatch(name)
    offset = int(match[1]) if match else -1
    return offset if 0 <= offset <= OFFSET_MAX else None


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"


def look_at_volume(data_dir: Path) -> Volume:
    """The volume of a directory. A failed call is a problem, too."""
    try:
        disk = os.statvfs(data_dir)
        is_writable = not disk.f_flag & os.ST_RDONLY and os.access(data_dir, os.W_OK)
    except OSError as error:
        return Volume(problem=f"The data directory cannot be used: {error.strerror}.")
    problem = "" if disk.f_bavail else "The disk of the data directory is full."
    return Volume(
        disk.f_blocks * disk.f_frsize,
        disk.f_bavail * disk.f_frsize,
        problem if is_writable else "The data directory is read-only.",
    )


def find_partitions(data_dir: Path) -> dict[TopicPartition, Path]:
    """The partition directories."""
    directories = (path for path in sorted(data_dir.iterdir()) if path.is_dir())
    found = ((partition_of(path.name), path) for path in directories)
    return {topic_partition: path for topic_partition, path in found if topic_partition is not None}


def find_deleted(data_dir: Path) -> list[Path]:
    """The directories of interrupted deletions."""
    return [path for path in sorted(data_dir.iterdir()) if _DELETED.fullmatch(path.name) and path.is_dir()]


def is_deletion_of(path: Path, topic_partition: TopicPartition) -> bool:
    """Whether a directory of `find_deleted` was one of this partition. Names are cut as `rename_to_stray` cuts them."""
    name = _with_ending(topic_partition.topic, f"-{topic_partition.partition}", _SUFFIX_BYTES)
    return path.name.rpartition(".")[0] == name


def _with_ending(topic: str, ending: str, further_bytes: int) -> str:
    return topic[: _NAME_BYTES_MAX - len(ending) - further_bytes] + ending


def rename_to_stray(path: Path, unique: UUID, *, suffix: str) -> Path:
    """Rename a partition's directory to a name that is no partition's; `suffix` is `delete` or `stray`, as in Kafka."""
    topic, _, partition = path.name.rpartition("-")
    further = f".{unique.hex}-{suffix}"
    return syscalls.rename(path, path.with_name(_with_ending(topic, f"-{partition}", len(further)) + further))


def final_name(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SWAP_SUFFIX))


def open_swapped(path: Path, opened: Callable[[Path], T]) -> T:
    """
    Open a file. One that has lost its `.swap` name meanwhile is opened by its final name.

    Raises:
        OSError: as `opened`.
    """
    try:
        return opened(path)
    except FileNotFoundError:
        if path.suffix != SWAP_SUFFIX:
            raise
        return opened(final_name(path))
