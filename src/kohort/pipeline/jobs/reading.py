"""Frames of one data directory, and how far reading them has come."""

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.decode.schemas import BATCH, DAMAGE, GROUP_METADATA, MARKER, OFFSET_COMMIT, SEGMENT
from kohort.pipeline.decode.segments import list_segments, newest_segments
from kohort.pipeline.sources import progress
from kohort.pipeline.tables import end_offsets, lag_over_time, offset_commits, rebalances

_DAMAGE_COLUMNS = ("log_topic", "log_partition", "segment", "position", "size_bytes", "log_offset", "problem")
SHORT_BYTES = 64 << 20
"""Below, a run is over before the JVM's second compiler has paid for itself."""
_BYTES_PER_SHUFFLE_PARTITION = 32 << 20


def coordinator_log_bytes(directory: str | Path) -> int:
    """
    The size of the coordinator's log in a data directory.

    Raises:
        ConfigError: there is no such directory, or no coordinator log in it.
    """
    segments = list_segments(directory, topics={CONSUMER_OFFSETS})
    if not segments:
        raise ConfigError(
            f"{directory} holds no log of a group coordinator (no {CONSUMER_OFFSETS}-0, -1, ...); name the data directory"
            " itself, and note that the log appears with the first group"
        )
    return sum(segment.size_bytes for segment in segments)


def shuffle_partitions(log_bytes: int) -> int:
    """Into how many parts Spark should spread a log of this size: one for every 32 MiB, 200 at most."""
    return max(1, min(200, -(-log_bytes // _BYTES_PER_SHUFFLE_PARTITION)))


class Reading:
    """
    Reads frames out of one directory.

    The coordinator's log is read once and kept, so that all tables of a run speak of the same moment, also while a broker
    goes on writing. Logs of topics are read after it, so that their ends are not older than what was committed.
    """

    def __init__(
        self, spark: Any, directory: str | Path, *, group: str | None = None, progress_directory: Path | None = None
    ) -> None:
        """
        Args:
            group: when given, the rows of this group alone.
            progress_directory: where tasks note their progress; every read has a folder of its own in it.
        """
        self.directory = str(directory)
        self.group = group
        self.planned_bytes = 0
        self._spark = spark
        self._progress_directory = progress_directory
        self._notes: list[Path] = []

    @cached_property
    def records(self) -> Any:
        """What the coordinator's log says of offsets, groups and transactions, and what of it cannot be read."""
        columns = (*offset_commits.INPUT_COLUMNS, *rebalances.INPUT_COLUMNS, *_DAMAGE_COLUMNS)
        kinds = (OFFSET_COMMIT, GROUP_METADATA, MARKER, DAMAGE)
        records = self._read(kinds, list(dict.fromkeys(columns)), [CONSUMER_OFFSETS])
        if self.group is not None:
            records = records.where(records["kind"].isin(MARKER, DAMAGE) | (records["group"] == self.group))
        return records.persist()

    @cached_property
    def offset_commits(self) -> Any:
        """Commits with the fate of their transactions."""
        return offset_commits.offset_commits(self.records)

    def rebalances(self) -> Any:
        """Membership events of classic groups."""
        return rebalances.rebalances(self.records)

    def damage(self) -> Any:
        """What could not be read of the coordinator's log."""
        return self.records.where(self.records["kind"] == DAMAGE).select(*_DAMAGE_COLUMNS)

    def end_offsets(self, topics: Collection[str]) -> Any:
        """The ends of the logs of some topics."""
        return end_offsets.end_offsets(self._read([SEGMENT], end_offsets.INPUT_COLUMNS, topics, newest=True))

    def batches(self, topics: Collection[str]) -> Any:
        """Every batch of some topics: when what was produced."""
        return self._read([BATCH], lag_over_time.INPUT_COLUMNS, topics)

    def progress(self) -> progress.Progress:
        """How much of what was asked for has been read."""
        told = [progress.total(notes) for notes in self._notes]
        return progress.Progress(sum(one.bytes_read for one in told), sum(one.rows for one in told))

    def _read(
        self, kinds: Sequence[str], columns: Sequence[str], topics: Collection[str], *, newest: bool = False
    ) -> Any:
        segments = list_segments(self.directory, topics=topics)
        chosen = newest_segments(segments) if newest else segments
        self.planned_bytes += sum(segment.size_bytes for segment in chosen)
        reader = self._spark.read.format("kohort").option("topics", ",".join(sorted(topics)))
        reader = reader.option("kinds", ",".join(kinds)).option("columns", ",".join(columns))
        reader = reader.option("newest", str(newest).lower())
        if self._progress_directory is not None:
            notes = self._progress_directory / str(len(self._notes))
            notes.mkdir(parents=True)
            self._notes.append(notes)
            reader = reader.option("progressDir", str(notes))
        return reader.load(self.directory)
