"""
Frames whose rows come from replaying a log in order: what SQL says badly, in a plain class for each key.

Rows are brought together by key and sorted, Spark spilling to disk where it must; then one pass hands them to one replay after
the other, so that memory holds a batch and a single key's state.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

ROWS_MAX = 4096
"""Rows that come out at once."""


class Replay(Protocol):
    """Of one key: is given its rows in order, gives out rows of the result."""

    def replay(self, record: dict[str, Any], /) -> Iterable[dict[str, Any]]: ...
    def finish(self) -> Iterable[dict[str, Any]]: ...


def replayed(
    frame: Any, *, keys: Sequence[str], order: Sequence[str], start: Callable[..., Replay], schema: pa.Schema
) -> Any:
    """
    What the replays of all keys give out.

    Args:
        keys: columns that say what belongs together; `start` gets their values in this order.
        order: columns that sort the rows of a key.
        start: makes the replay of a key; pickled, as is what it refers to.
        schema: of what comes out.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out: list[dict[str, Any]] = []
        for row in _rows(batches, keys, start):
            out.append(row)
            if len(out) >= ROWS_MAX:
                yield pa.RecordBatch.from_pylist(out, schema=schema)
                out = []
        yield pa.RecordBatch.from_pylist(out, schema=schema)

    together = frame.repartition(*keys).sortWithinPartitions(*keys, *order)
    return together.mapInArrow(run, from_arrow_schema(schema))


def _rows(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], start: Callable[..., Replay]
) -> Iterator[dict[str, Any]]:
    key: tuple[Any, ...] | None = None
    replay: Replay | None = None
    for batch in batches:
        for row in batch.to_pylist():
            found = tuple(row[name] for name in keys)
            if replay is None or found != key:
                if replay is not None:
                    yield from replay.finish()
                key, replay = found, start(*found)
            yield from replay.replay(row)
    if replay is not None:
        yield from replay.finish()
