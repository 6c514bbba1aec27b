"""
Frames made by replaying a log in order, one plain object per key: for rules that SQL cannot express well.

Spark groups the rows by key and sorts them, spilling to disk if necessary. One pass then feeds one replay after the other, so
memory holds one batch and the state of one key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from kohort.pipeline.engines.dispatch import map_in_arrow

ROWS_MAX = 1024
"""The size of an output batch."""


class Replay(Protocol):
    """The replay of one key: gets its rows in order, returns rows of the result."""

    def replay(self, record: dict[str, Any], /) -> Iterable[dict[str, Any]]: ...
    def finish(self) -> Iterable[dict[str, Any]]: ...


def replayed(
    frame: Any, *, keys: Sequence[str], order: Sequence[str], start: Callable[..., Replay], schema: pa.Schema
) -> Any:
    """
    Return the rows of the replays of all keys.

    Args:
        keys: the key columns; `start` gets their values in this order.
        order: the columns that sort the rows of a key.
        start: creates the replay of a key. It is pickled.
        schema: of the result.
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
    return map_in_arrow(together, run, schema)


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
