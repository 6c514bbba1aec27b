"""
Expressions over columns, as DuckDB's SQL: the part of `pyspark.sql.Column` that the tables use.

An expression refers to the frame on which it is used by the alias `t`. Where the engines differ, the SQL does what Spark does:
nulls come first in ascending order, and are the least values in a struct.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

FRAME = "t"
"""The alias of the frame in an expression."""

_UNBOUNDED = 1 << 62
"""Beyond this bound a frame of a window is unbounded; Spark's constants are."""
_SIMPLE = {
    "string": "VARCHAR",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "smallint": "SMALLINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
}
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[<>:,]")


def _operator(word: str) -> Callable[["Column", Any], "Column"]:
    def applied(left: "Column", right: Any) -> "Column":
        return Column(f"({left.sql} {word} {literal(right)})")

    return applied


class Column:
    """
    An expression and the name of its column.

    Attributes:
        fields: of a struct made by `functions.struct`: its expressions by name.
    """

    __slots__ = ("fields", "name", "sql")

    def __init__(self, sql: str, name: str | None = None, *, fields: Mapping[str, str] | None = None) -> None:
        self.sql = sql
        self.name = sql if name is None else name
        self.fields = fields

    def alias(self, name: str) -> "Column":
        return Column(self.sql, name, fields=self.fields)

    def cast(self, type_name: str) -> "Column":
        return Column(f"CAST({self.sql} AS {_as_sql(type_of(type_name))})", self.name)

    def over(self, window: "WindowSpec") -> "Column":
        return Column(f"({self.sql} OVER ({window.sql}))", self.name)

    def when(self, condition: "Column", value: Any) -> "Column":
        """Add a case; `functions.when` begins a chain, which ends in `END`."""
        return Column(f"{self.sql.removesuffix(' END')} WHEN {condition.sql} THEN {literal(value)} END", self.name)

    def otherwise(self, value: Any) -> "Column":
        return Column(f"{self.sql.removesuffix(' END')} ELSE {literal(value)} END", self.name)

    def isNull(self) -> "Column":  # noqa: N802  (Spark's names)
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> "Column":  # noqa: N802
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: Any) -> "Column":
        listed = ", ".join(literal(value) for value in values)
        return Column(f"({self.sql} IN ({listed}))" if values else "FALSE")

    def eqNullSafe(self, other: Any) -> "Column":  # noqa: N802
        return Column(f"({self.sql} IS NOT DISTINCT FROM {literal(other)})")

    def startswith(self, other: Any) -> "Column":
        return Column(f"starts_with({self.sql}, {literal(other)})")

    def endswith(self, other: Any) -> "Column":
        return Column(f"ends_with({self.sql}, {literal(other)})")

    def asc(self) -> "Order":
        return Order(f"{self.sql} ASC NULLS FIRST")

    def desc(self) -> "Order":
        return Order(f"{self.sql} DESC NULLS LAST")

    def __getitem__(self, key: str) -> "Column":
        return Column(f"struct_extract({self.sql}, {literal(key)})", key)

    def __getattr__(self, name: str) -> "Column":
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __bool__(self) -> bool:
        raise TypeError("a column has no truth value; use & for and, | for or, ~ for not")

    def __invert__(self) -> "Column":
        return Column(f"(NOT {self.sql})")

    __and__, __or__ = _operator("AND"), _operator("OR")
    __eq__, __ne__ = _operator("="), _operator("<>")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __add__, __sub__, __mul__, __truediv__ = map(_operator, "+-*/")
    __iter__ = __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Order:
    """An expression to sort by."""

    sql: str


Named: TypeAlias = Column | str


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """The rows that a window function sees."""

    partition: Sequence[Named]
    order: Sequence[Named | Order] = ()
    frame: str = ""

    def orderBy(self, *columns: Any) -> "WindowSpec":  # noqa: N802  (Spark's names)
        return replace(self, order=listed(columns))

    def rowsBetween(self, start: int, end: int) -> "WindowSpec":  # noqa: N802
        return replace(self, frame=f"ROWS BETWEEN {_bound(start)} AND {_bound(end)}")

    @property
    def sql(self) -> str:
        parts = [f"PARTITION BY {', '.join(column(one).sql for one in self.partition)}"] if self.partition else []
        if self.order:
            parts.append(f"ORDER BY {', '.join(ordered(one) for one in self.order)}")
        return " ".join((*parts, self.frame)).strip()


def _bound(offset: int) -> str:
    if offset == 0:
        return "CURRENT ROW"
    side = "PRECEDING" if offset < 0 else "FOLLOWING"
    return f"UNBOUNDED {side}" if abs(offset) > _UNBOUNDED else f"{abs(offset)} {side}"


def column(named: Named) -> Column:
    """Return the column of a name (`a`, or `a.b` of a struct), or the expression itself."""
    if isinstance(named, Column):
        return named
    first, *inner = named.split(".")
    found = Column(f"{FRAME}.{quoted(first)}", first)
    for name in inner:
        found = found[name]
    return found


def ordered(named: Named | Order) -> str:
    """Return an expression of ORDER BY; ascending by default, nulls first."""
    return named.sql if isinstance(named, Order) else column(named).asc().sql


def listed(columns: Sequence[Any]) -> list[Any]:
    """Return arguments that may be given one by one or as one list."""
    return list(columns[0]) if len(columns) == 1 and isinstance(columns[0], list | tuple) else list(columns)


def quoted(name: str) -> str:
    """Return an identifier in quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Return a Python value, or an expression, as SQL."""
    if isinstance(value, Column):
        return value.sql
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    return "'" + str(value).replace("'", "''") + "'"


def type_of(text: str) -> Any:
    """
    Return a type that is written as in PySpark (`array<struct<a:int>>`), in DuckDB's words: a name, a list with one type (an
    array), or a dict of types (a struct).
    """
    tokens = iter(_TOKEN.findall(text))
    return _read(next(tokens), tokens)


def _read(name: str, tokens: Iterator[str]) -> Any:
    if name == "array":
        next(tokens)
        element = [_read(next(tokens), tokens)]
        next(tokens)
        return element
    if name != "struct":
        return _SIMPLE[name]
    fields: dict[str, Any] = {}
    while next(tokens) != ">":
        field = next(tokens)
        next(tokens)
        fields[field] = _read(next(tokens), tokens)
    return fields


def _as_sql(parsed: Any) -> str:
    if isinstance(parsed, list):
        return f"{_as_sql(parsed[0])}[]"
    if isinstance(parsed, dict):
        return "STRUCT(" + ", ".join(f'"{name}" {_as_sql(one)}' for name, one in parsed.items()) + ")"
    return str(parsed)
