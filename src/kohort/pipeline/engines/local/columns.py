"""
Expressions over columns, as DuckDB's SQL: the part of `pyspark.sql.Column` that the tables use.

An expression refers to the frame on which it is used by the alias `t`. Where the engines differ, the SQL does what Spark does:
nulls come first in ascending order, and are the least values in a struct.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kohort.pipeline.engines.local.types import sql_type

FRAME = "t"
"""The alias of the frame in an expression."""

_UNBOUNDED = 1 << 62
"""Beyond this bound a frame of a window is unbounded; Spark's constants are."""


class Column:
    """
    An expression and the name of its column.

    Attributes:
        fields: of a struct made by `functions.struct`: its expressions by name.
        over_sql: how the function begins in a window, if different.
        rows_of: the array whose elements become rows.
    """

    __slots__ = ("fields", "name", "rows_of", "sql")

    def __init__(
        self, sql: str, name: str | None = None, *, fields: Mapping[str, str] | None = None, rows_of: str | None = None
    ) -> None:
        self.sql = sql
        self.name = sql if name is None else name
        self.fields = fields
        self.rows_of = rows_of

    def alias(self, name: str) -> "Column":
        return Column(self.sql, name, fields=self.fields, rows_of=self.rows_of)

    def cast(self, type_name: str) -> "Column":
        return Column(f"CAST({self.sql} AS {sql_type(type_name)})", self.name)

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

    def __iter__(self) -> Iterator["Column"]:
        raise TypeError("a column is not iterable")

    def __bool__(self) -> bool:
        raise TypeError("a column has no truth value; use & for and, | for or, ~ for not")

    def __invert__(self) -> "Column":
        return Column(f"(NOT {self.sql})")

    def __and__(self, other: Any) -> "Column":
        return self._with("AND", other)

    def __or__(self, other: Any) -> "Column":
        return self._with("OR", other)

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: object) -> "Column":  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Any) -> "Column":
        return self._with("<", other)

    def __le__(self, other: Any) -> "Column":
        return self._with("<=", other)

    def __gt__(self, other: Any) -> "Column":
        return self._with(">", other)

    def __ge__(self, other: Any) -> "Column":
        return self._with(">=", other)

    def __add__(self, other: Any) -> "Column":
        return self._with("+", other)

    def __sub__(self, other: Any) -> "Column":
        return self._with("-", other)

    def __mul__(self, other: Any) -> "Column":
        return self._with("*", other)

    def __truediv__(self, other: Any) -> "Column":
        return self._with("/", other)

    __hash__ = None  # type: ignore[assignment]

    def _with(self, operator: str, other: Any) -> "Column":
        return Column(f"({self.sql} {operator} {literal(other)})")


class Order:
    """An expression to sort by."""

    __slots__ = ("sql",)

    def __init__(self, sql: str) -> None:
        self.sql = sql


Named: TypeAlias = Column | str


class WindowSpec:
    """The rows that a window function sees."""

    __slots__ = ("_frame", "_order", "_partition")

    def __init__(self, partition: Sequence[Named], order: Sequence[Named | Order] = (), frame: str = "") -> None:
        self._partition, self._order, self._frame = partition, order, frame

    def orderBy(self, *columns: Any) -> "WindowSpec":  # noqa: N802  (Spark's names)
        return WindowSpec(self._partition, listed(columns), self._frame)

    def rowsBetween(self, start: int, end: int) -> "WindowSpec":  # noqa: N802
        return WindowSpec(self._partition, self._order, f"ROWS BETWEEN {_bound(start)} AND {_bound(end)}")

    @property
    def sql(self) -> str:
        parts = [f"PARTITION BY {', '.join(column(one).sql for one in self._partition)}"] if self._partition else []
        if self._order:
            parts.append(f"ORDER BY {', '.join(ordered(one) for one in self._order)}")
        return " ".join((*parts, self._frame)).strip()


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
