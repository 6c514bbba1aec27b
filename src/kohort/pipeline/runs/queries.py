"""Spark queries in runs: the rows of batches that a run has not kept yet."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kohort.pipeline.checkpoints.checkpoint import START, Checkpoint
from kohort.pipeline.checkpoints.rows import commit_rows


class Kept(NamedTuple):
    """
    The end of the kept batches of a query.

    Attributes:
        query_id: another one is another query.
        batch: the last finished batch; `START` if there was none.
        base: what is added to the numbers of its batches, so that those of a checkpoint that was made anew are greater.
        open_batch: which was in progress; a query without one has -1.
    """

    query_id: str | None
    batch: int
    base: int
    open_batch: int


def following(checkpoints: Iterable[Checkpoint], before: Mapping[str, Kept]) -> dict[str, Kept]:
    """Return how far queries are kept once the rows of `new_rows` are."""
    found = dict(before)
    for one in checkpoints:
        batch = START if one.batch is None else one.batch
        was = before.get(one.group)
        base = 0 if was is None else was.base
        if was is not None and _is_anew(one, was):
            base = was.base + was.batch - START + 1
        found[one.group] = Kept(one.query_id, batch, base, START if one.open_batch is None else one.open_batch)
    return found


def new_rows(
    checkpoints: Iterable[Checkpoint], before: Mapping[str, Kept], after: Mapping[str, Kept]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches that finished since a run, as `commit_rows` gives them."""
    for one in checkpoints:
        was = before.get(one.group)
        is_first = was is None or _is_anew(one, was)
        last = 0 if was is None else was.base + was.batch - START
        for batch in commit_rows(one, base=after[one.group].base):
            found = batch if is_first else batch.filter(pc.greater(batch.column("log_offset"), last))
            if found.num_rows:
                yield found


def _is_anew(one: Checkpoint, was: Kept) -> bool:
    return one.query_id != was.query_id or (START if one.batch is None else one.batch) < was.batch
