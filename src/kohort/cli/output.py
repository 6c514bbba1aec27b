"""
Output of commands: JSON for programs, tables and sentences for people.

Clients choose names of groups, members and transactions, and texts of commits: control characters in them are escaped.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kohort.model.errors import ConfigError
from kohort.model.text import printable, printable_json, printable_lines

_UNBOUNDED_COLUMNS = 100_000


def print_json(value: Any) -> None:
    """Print indented JSON. Objects keep the order of their fields."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """Indented JSON."""
    return printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, is_json: bool, title: str = "") -> None:
    """Print rows: as JSON with all their fields, or as a table of some columns."""
    if is_json:
        print_json(rows)
    else:
        print_table(columns, rows, title=title)


def print_changes(sentence: str, rows: Sequence[Mapping[str, Any]], *, is_json: bool) -> None:
    """Print what a command has changed: as JSON, or a sentence for each row, which names fields in braces."""
    if is_json:
        print_json(rows)
        return
    for row in rows:
        echo(sentence.format_map(row))


def raise_all(failures: Iterable[str]) -> None:
    """
    Raises:
        ConfigError: something failed; the sentence names each failure with its reason.
    """
    reasons = "; ".join(failures)
    if reasons:
        raise ConfigError(reasons)


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def echo(text: str, *, err: bool = False) -> None:
    """Print a sentence, or some lines."""
    stream = sys.stderr if err else sys.stdout
    stream.write(printable_lines(text) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """
    Print rows under headings made of their keys. Numbers are right-aligned; a missing value is a dash.

    On a terminal, long values are folded into their column. Elsewhere each row is one line, so that `grep` and `cut` work.
    """
    from rich.console import Console
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    console = Console(width=None if is_terminal else _UNBOUNDED_COLUMNS, highlight=False, soft_wrap=not is_terminal)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        is_number = any(type(row.get(column)) is int for row in rows)
        table.add_column(
            column.replace("_", " ").upper(),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=not is_terminal,
        )
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    if title:
        console.print(printable_lines(title), style="bold", markup=False)
    console.print(table)


def _cell(value: Any) -> Any:
    from rich.text import Text

    if value is None or value == "":
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, (list, tuple)):
        return Text(printable(",".join(str(each) for each in value)) or "-")
    return Text(printable(str(value)))
