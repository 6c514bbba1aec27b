"""
The segment files of a data directory in Kafka's layout.

`<directory>/<topic>-<partition>/<base offset, 20 digits>.log`. A compacted segment is named `.log.swap` until it gets the name
of the old one, which is deleted before; so it counts where there is no other. Some names are not part of the log: files that
end in `.deleted` or `.cleaned`, and directories of deleted topics (`-delete`), stray partitions (`-stray`) and future replicas
(`-future`). Kohort has the same layout. Its `journal/` repeats appends that the segments already hold, so only segments are
read.

Source: Kafka LogFileUtils, UnifiedLog.parseTopicPartitionName, LocalLog.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import storage

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_SEGMENT_FILE = re.compile(r"(?P<base_offset>[0-9]{20})\.log(?P<swap>\.swap)?")
_SUFFIXES = (".log", ".log.swap")


NOT_SERVED = frozenset({"__cluster_metadata", "__kohort_catalog"})
"""Logs of brokers about themselves, which clients cannot read: of every topic, they are none. They have to be named."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """
    One segment file. Sorts by topic, partition and base offset.

    Attributes:
        identity: changes when the file is replaced, as by compaction.
    """

    topic: str
    partition: int
    base_offset: int
    path: str
    size_bytes: int
    identity: int = 0

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.partition("?")[0].rpartition("/")[2]


def list_segments(
    directory: str | Path, *, topics: Collection[str] | None = None, partitions: Collection[int] | None = None
) -> list[Segment]:
    """
    The segment files of a data directory, sorted; None means every topic that clients can read, and every partition.

    Args:
        directory: a path, or a URI that `storage` can open.

    Raises:
        ConfigError: there is no such directory, or it cannot be read.
    """
    root = str(directory)
    found: list[Segment] = []
    try:
        for topic, partition, path in partition_directories(root):
            is_chosen = topic not in NOT_SERVED if topics is None else topic in topics
            if is_chosen and (partitions is None or partition in partitions):
                found += segments_of(path, topic, partition)
    except OSError as exc:
        raise ConfigError(f"{root} cannot be read: {exc.strerror}") from exc
    return sorted(found)


def partition_directories(root: str) -> Iterator[tuple[str, int, str]]:
    """Topic, partition and path of each directory of a partition in a data directory."""
    for name, path in storage.directories(root):
        place = place_of(name)
        if place is not None:
            yield *place, path


def place_of(directory: str) -> tuple[str, int] | None:
    """The topic and partition of a directory by its name; None for other directories."""
    match = _PARTITION_DIRECTORY.fullmatch(directory)
    return None if match is None else (match["topic"], int(match["partition"]))


def segments_of(directory: str, topic: str, partition: int) -> Iterable[Segment]:
    """The segments in the directory of a partition."""
    return segments_among(storage.files(directory, _SUFFIXES), topic, partition)


def segments_among(files: Iterable[storage.Found], topic: str, partition: int) -> Iterable[Segment]:
    """The segments among the files of a partition."""
    found: dict[int, Segment] = {}
    for file in files:
        match = _SEGMENT_FILE.fullmatch(file.name)
        if match is not None:
            base_offset = int(match["base_offset"])
            segment = Segment(topic, partition, base_offset, file.path, file.size_bytes, file.identity)
            if match["swap"] is None or base_offset not in found:
                found[base_offset] = segment
    return found.values()


def by_partition(segments: Iterable[Segment]) -> dict[tuple[str, int], list[Segment]]:
    """The segments of each log, from sorted ones."""
    return {place: list(some) for place, some in groupby(segments, lambda one: one.place)}


def newest_segments(segments: Iterable[Segment]) -> list[Segment]:
    """The last segment of each partition, which holds the end of its log."""
    return sorted({segment.place: segment for segment in sorted(segments)}.values())
