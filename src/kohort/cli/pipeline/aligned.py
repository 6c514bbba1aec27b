"""
Aligned lines and JSON of tables: Arrow formats the plain cells of a slice of rows at once, and no more than a slice is held.

Not with rich: a table can have millions of rows, and lines must not be folded for `grep`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from kohort.cli.pipeline.columns import SHORT_MAX, Column, Field, Instant, Short, columns_of
from kohort.model.text import printable

SLICE_ROWS = 1024
_GAP = "  "
_MISSING_INSTANT = "\N{EN DASH}"
_LAST_INSTANT_MS = 253_402_300_799_999
"""The end of the year 9999."""


def print_table(table: pa.Table, as_json: bool, name: str) -> None:
    """Print the rows of a table on standard output."""
    if as_json:
        _print_json(table)
    elif table.num_rows:
        for text in _lines(table, columns_of(name)):
            typer.echo(text)
    else:
        typer.echo(f"no {name.replace('_', ' ')}")


def _print_json(table: pa.Table) -> None:
    """Print a list of all rows. Bytes become hexadecimal digits."""
    before = "["
    for batch in table.to_batches(SLICE_ROWS):
        typer.echo(before + json.dumps(batch.to_pylist(), default=bytes.hex)[1:-1], nl=False)
        before = ", "
    typer.echo("]" if table.num_rows else "[]")


def _lines(table: pa.Table, columns: list[Column]) -> Iterator[str]:
    """Yield the lines of a slice of rows, joined; the first has the titles."""
    slices = table.to_batches(SLICE_ROWS)
    widths = [len(title) for title, _, _ in columns]
    for batch in slices:
        longest = (pc.max(pc.utf8_length(one)).as_py() for one in _cells(batch, columns))
        widths = [max(pair) for pair in zip(widths, longest, strict=True)]
    pads: list[Callable[..., pa.Array]] = [
        pc.utf8_lpad if align == "right" else pc.utf8_rpad for _, align, _ in columns
    ]
    titles = [pa.array([title]) for title, _, _ in columns]
    for cells in (titles, *(_cells(batch, columns) for batch in slices)):
        padded = [pad(one, width) for pad, one, width in zip(pads, cells, widths, strict=True)]
        lines = pc.ascii_rtrim(pc.binary_join_element_wise(*padded, _GAP), " ")
        yield "\n".join(lines.to_pylist())


def _cells(batch: pa.RecordBatch, columns: list[Column]) -> list[pa.Array]:
    rows: list[dict[str, Any]] = []
    found = []
    for _, _, cell in columns:
        text = _formatted(batch, cell)
        if text is None:
            rows = rows or batch.to_pylist()
            text = pa.array([cell(row) for row in rows], pa.string())
        if not pc.all(pc.ascii_is_printable(text)).as_py():
            # Python decides which characters beyond ASCII are printable.
            text = pa.array([printable(one) for one in text.to_pylist()], pa.string())
        found.append(text)
    return found


def _formatted(batch: pa.RecordBatch, cell: Any) -> pa.Array | None:
    """Format the cells of a column; None if only the function of its cells can."""
    if isinstance(cell, Instant):
        return _instants(batch.column(cell.name))
    if isinstance(cell, Field):
        values = batch.column(cell.name)
        if pa.types.is_integer(values.type) or pa.types.is_string(values.type):
            texts = pc.fill_null(values.cast(pa.string()), "-")
            return _shortened(texts) if isinstance(cell, Short) else texts
    return None


def _shortened(texts: pa.Array) -> pa.Array:
    cut = pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, SHORT_MAX - 1), "\N{HORIZONTAL ELLIPSIS}", "")
    return pc.if_else(pc.greater(pc.utf8_length(texts), SHORT_MAX), cut, texts)


def _instants(values: pa.Array) -> pa.Array | None:
    """As `report.formatting.instant`."""
    if (pc.max(values).as_py() or 0) > _LAST_INSTANT_MS:
        return None
    is_known = pc.fill_null(pc.greater_equal(values, 0), False)
    texts = values.cast(pa.int64()).cast(pa.timestamp("ms")).cast(pa.string())
    return pc.if_else(is_known, texts, _MISSING_INSTANT)
