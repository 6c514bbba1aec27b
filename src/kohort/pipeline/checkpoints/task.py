"""Checkpoints as an option of the source: their rows beside those of logs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.pipeline.checkpoints.checkpoint import Checkpoint, Extent
from kohort.pipeline.checkpoints.named import parse_named, read_named
from kohort.pipeline.checkpoints.rows import commit_rows
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.sources.positions import TopicPartition
from kohort.pipeline.sources.progress import Note
from kohort.pipeline.sources.ranges import RangeTask


@dataclass(frozen=True, slots=True)
class CheckpointTask(RangeTask):
    """The rows of checkpoints, which were read when the task was planned: workers need not reach them."""

    task: int
    checkpoints: tuple[Checkpoint, ...]
    from_ms: int | None
    to_ms: int | None

    @property
    def places(self) -> Collection[TopicPartition]:
        return ()

    def read(self, decoder: Decoder, note: Note) -> Iterator[pa.RecordBatch]:
        note.add(bytes_read=0)
        for one in self.checkpoints:
            for batch in commit_rows(one):
                chosen = pa.Table.from_batches([batch])
                if self.from_ms is not None:
                    chosen = chosen.filter(pc.greater_equal(chosen["timestamp_ms"], self.from_ms))
                if self.to_ms is not None:
                    chosen = chosen.filter(pc.less(chosen["timestamp_ms"], self.to_ms))
                yield from chosen.select(decoder.schema.names).to_batches()


def checkpoint_task(
    task: int, texts: Collection[str], session: Any, extent: Extent, *, from_ms: int | None, to_ms: int | None
) -> CheckpointTask:
    """
    Read checkpoints, and return the task that gives their rows.

    Args:
        texts: `NAME=DIR`.
        session: as for `files_of`.
        extent: as for `read_checkpoint`.

    Raises:
        ConfigError: one cannot be read.
    """
    found = read_named(map(parse_named, texts), session, extent)
    return CheckpointTask(task, tuple(found.checkpoints), from_ms, to_ms)
