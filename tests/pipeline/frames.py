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


def check_equal(names: Iterable[str], one: Any, other: Any) -> None:
    """Compare tables of two engines: columns, their types, and rows in any order."""
    for name in names:
        (columns, rows), (expected_columns, expected) = content(getattr(one, name)), content(getattr(other, name))
        assert columns == expected_columns, name
        assert rows == expected, name


def content(frame: Any) -> tuple[list[Any], list[str]]:
    table = frame.toArrow()
    return [(field.name, of_type(field.type)) for field in table.schema], sorted(map(str, table.to_pylist()))


def of_type(found: pa.DataType) -> Any:
    """A type without the names that the engines give to the elements of lists."""
    if pa.types.is_list(found):
        return [of_type(found.value_type)]
    if pa.types.is_struct(found):
        return {field.name: of_type(field.type) for field in found}
    return str(found)
