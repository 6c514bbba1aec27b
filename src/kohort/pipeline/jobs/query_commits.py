"""Spark queries in a reading: their checkpoints, read once, as commits beside those of the coordinator's log."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.checkpoints.checkpoint import Checkpoint, Extent
from kohort.pipeline.checkpoints.named import Named, read_named
from kohort.pipeline.checkpoints.rows import commit_frame
from kohort.pipeline.decode import schemas


class QueryCommits:
    """
    The checkpoints of one reading.

    Attributes:
        problems: sentences about what could not be read.
    """

    def __init__(self, session: Any, named: Sequence[Named], extent: Extent, *, as_of_ms: int | None) -> None:
        """
        Args:
            extent: as for `read_checkpoint`.
            as_of_ms: later batches are left out.
        """
        self.problems: list[str] = []
        self._session, self._named = session, named
        self._extent, self._as_of_ms = extent, as_of_ms

    @cached_property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints, read now."""
        found = read_named(self._named, self._session, self._extent)
        self.problems += found.problems
        return found.checkpoints

    def added_to(self, records: Any) -> Any:
        """Add the finished batches to the records of the coordinator's log."""
        if not self._named:
            return records
        columns = [one for one in records.columns if one in schemas.SCHEMA.names]
        commits = commit_frame(self._session, self.checkpoints, columns)
        if self._as_of_ms is not None:
            commits = commits.where(commits["commit_timestamp_ms"] <= self._as_of_ms)
        return records.unionByName(commits, allowMissingColumns=True)

    def of_own_names(self, records: Any, source: str) -> Any:
        """
        Return records that were read.

        Raises:
            ConfigError: a query has the name of a group of the source, and nobody could tell their rows apart.
        """
        names = [one.group for one in self.checkpoints] if self._named else []
        if names:
            of_topics = records.where((records["log_partition"] >= 0) & records["group"].isin(*names))
            for row in of_topics.select("group").limit(1).collect():
                raise ConfigError(
                    f"{source} has a group {row['group']!r}, too; give the checkpoint another name: NAME=DIR"
                )
        return records
