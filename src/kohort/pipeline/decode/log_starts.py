"""
The starts of the logs in a data directory: the first offset that a client can read.

A broker keeps the log start offset of a log in `log-start-offset-checkpoint`, unless it is the first offset of the first
segment file. Deleted records (DeleteRecords, `kafka-delete-records.sh`) stay in their segment until the whole segment goes, so
the start may lie inside a segment and inside a batch. With tiered storage it may also lie before the first local segment. The
broker writes the file each minute (`log.flush.start.offset.checkpoint.interval.ms`) and when it stops.

Source: Kafka LogManager.checkpointLogStartOffsets, CheckpointFile; KIP-107, KIP-405.
"""

from collections.abc import Iterable
from os.path import realpath

from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.storage import is_remote, mapped

CHECKPOINT = "log-start-offset-checkpoint"
_FIELDS = 3


def log_starts(segments: Iterable[Segment]) -> dict[tuple[str, int], int]:
    """
    Return the log start offset of each log that has a segment among some.

    Raises:
        ConfigError: a checkpoint cannot be read.
    """
    first: dict[tuple[str, int], Segment] = {}
    for segment in sorted(segments):
        first.setdefault(segment.place, segment)
    known: dict[str, dict[tuple[str, int], int]] = {}
    starts = {}
    for place, segment in first.items():
        path = _beside(segment.path)
        if path not in known:
            known[path] = read_checkpoint(path)
        starts[place] = known[path].get(place, segment.base_offset)
    return starts


def _beside(path: str) -> str:
    """Return the path of the checkpoint for a segment file. The directory of a partition may be a link to that of a broker."""
    base, mark, query = path.partition("?") if is_remote(path) else (path, "", "")
    directory = base.rpartition("/")[0]
    root = (directory if is_remote(path) else realpath(directory)).rpartition("/")[0]
    return f"{root}/{CHECKPOINT}{mark}{query}"


def read_checkpoint(path: str) -> dict[tuple[str, int], int]:
    """Return the entries of a checkpoint: a line for each partition. The version, the count and other lines have no entry."""
    try:
        text = bytes(mapped(path)).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    entries = (line.split() for line in text.splitlines())
    return {
        (topic, int(partition)): int(offset)
        for topic, partition, offset in (entry for entry in entries if len(entry) == _FIELDS)
        if partition.isdecimal() and offset.isdecimal()
    }
