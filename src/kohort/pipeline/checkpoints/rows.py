"""The rows of checkpoints: commits as the source of logs gives them, so that every table of offsets and lag has them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kohort.model.ids import CONSUMER_OFFSETS
from kohort.pipeline.checkpoints.checkpoint import START, Checkpoint, Commits
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.schemas import OFFSET_COMMIT
from kohort.pipeline.engines.dispatch import is_local

LOG_PARTITION: Final = -1
"""The rows stand beside those of the offsets topic, in a partition that it does not have."""
_BATCH_ROWS: Final = 32_768
_SAME: Final[Mapping[str, Any]] = {
    "kind": OFFSET_COMMIT,
    "log_topic": CONSUMER_OFFSETS,
    "log_partition": LOG_PARTITION,
    "producer_id": -1,
    "producer_epoch": -1,
    "transactional": False,
    "tombstone": False,
    "leader_epoch": -1,
}
"""The fields that all these rows have."""


def commit_rows(
    checkpoint: Checkpoint, columns: Sequence[str] | None = None, *, base: int = 0
) -> Iterator[pa.RecordBatch]:
    """
    Yield the offsets of finished batches as rows of kind `offset_commit`, with some columns of `decode.schemas`. Their
    `log_offset` is 0 for where a query began, and then the number of the batch and one.

    Args:
        base: is added to it.
    """
    schema, found = schemas.subset(columns), checkpoint.commits
    named = f"spark query {checkpoint.query_id or 'of an unknown id'}"
    for first in range(0, len(found.offsets), _BATCH_ROWS):
        names = {"group": checkpoint.group, "metadata": named}
        yield _part(schema, found, slice(first, first + _BATCH_ROWS), names, base)


def _part(schema: pa.Schema, found: Commits, part: slice, names: Mapping[str, str], base: int) -> pa.RecordBatch:
    rows = len(found.offsets[part])
    varying: dict[str, Callable[[], Any]] = {
        "log_offset": lambda: pc.add(pa.array(found.batches[part], pa.int64()), base - START),
        "timestamp_ms": lambda: pa.array(found.times_ms[part], pa.int64()),
        "commit_timestamp_ms": lambda: pa.array(found.times_ms[part], pa.int64()),
        "topic": lambda: pa.array(found.topics[part], pa.string()),
        "partition": lambda: pa.array(found.partitions[part], pa.int32()),
        "offset": lambda: pa.array(found.offsets[part], pa.int64()),
    }
    same = {
        name: partial(pa.repeat, pa.scalar(value, schemas.SCHEMA.field(name).type), rows)
        for name, value in {**_SAME, **names}.items()
    }
    return schemas.record_batch(schema, rows, {**varying, **same})


def commit_frame(session: Any, checkpoints: Iterable[Checkpoint], columns: Sequence[str]) -> Any:
    """Return `commit_rows` of some checkpoints as a frame of an engine."""
    schema = schemas.subset(columns)
    listed = tuple(checkpoints)

    def batches() -> Iterator[pa.RecordBatch]:
        for one in listed:
            yield from commit_rows(one, columns)

    if is_local(session):
        return session.from_rows(batches, schema)
    return session.createDataFrame(pa.Table.from_batches(batches(), schema))
