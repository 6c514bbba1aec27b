"""Small frames out of literal rows, and rows out of frames."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from kohort.pipeline.decode import schemas

Row = dict[str, Any]


def records(engine: Any, columns: Sequence[str], rows: Iterable[Row]) -> Any:
    """A frame of some of the decoder's columns; what a row does not name is null."""
    return of_schema(engine, schemas.subset(columns), rows)


def of_schema(engine: Any, schema: pa.Schema, rows: Iterable[Row]) -> Any:
    return engine.createDataFrame(
        pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema)
    )


def rows_of(frame: Any, *sorted_by: str) -> list[Row]:
    found: list[Row] = frame.toArrow().sort_by([(column, "ascending") for column in sorted_by]).to_pylist()
    return found


def tuples(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as tuples of some columns, sorted by them all."""
    return [tuple(row.values()) for row in rows_of(frame.select(*columns), *columns)]
