"""
The part of `pyspark.sql.functions` that the tables use, as expressions of DuckDB with Spark's meaning and Spark's types.

Counts and sums are `bigint`; the engines' own types differ.
"""

import json
from collections.abc import Callable
from itertools import count as numbers
from typing import Any

from kohort.pipeline.engines.local.columns import (
    Column,
    Named,
    Order,
    WindowSpec,
    column,
    listed,
    literal,
    quoted,
    type_of,
)

_variables = numbers()


def _function(name: str) -> Callable[..., Column]:
    """Return the function of DuckDB of this name, for columns."""
    return lambda *columns: Column(f"{name}({', '.join(column(one).sql for one in columns)})")


col = column
coalesce, greatest, least = _function("coalesce"), _function("greatest"), _function("least")
array_distinct, sort_array = _function("list_distinct"), _function("list_sort")
sequence = _function("generate_series")
"""The whole numbers from the first argument to the second one, which is not smaller."""
xxhash64 = _function("hash")
"""A hash to group by; another one than Spark's."""
min, _max = _function("min"), _function("max")
min_by, max_by = _function("arg_min_null"), _function("arg_max_null")
lag, lead, row_number = _function("lag"), _function("lead"), _function("row_number")


def partition_by(*columns: Any) -> WindowSpec:
    """`Window.partitionBy`."""
    return WindowSpec(listed(columns))


def lit(value: Any) -> Column:
    return value if isinstance(value, Column) else Column(literal(value))


def when(condition: Column, value: Any) -> Column:
    return Column(f"CASE WHEN {condition.sql} THEN {literal(value)} END")


def desc(name: Named) -> Order:
    return column(name).desc()


def struct(*columns: Any) -> Column:
    fields = {one.name: one.sql for one in map(column, listed(columns))}
    return Column(_packed(fields), fields=fields)


def array(*columns: Named) -> Column:
    return Column(f"[{', '.join(column(one).sql for one in columns)}]")


def concat(*columns: Named) -> Column:
    """Concatenate texts, or arrays; null if one of them is null."""
    return Column("(" + " || ".join(column(one).sql for one in columns) + ")")


def flatten(array_: Named) -> Column:
    """Concatenate the arrays of an array; null if one of them is null."""
    sql = column(array_).sql
    holds_null = f"list_contains(list_transform({sql}, {_lambda(lambda one: one.isNull())}), TRUE)"
    return Column(f"CASE WHEN NOT coalesce({holds_null}, FALSE) THEN flatten({sql}) END")


def transform(array_: Named, function: Callable[[Column], Column]) -> Column:
    return Column(f"list_transform({column(array_).sql}, {_lambda(function)})")


def explode(array_: Named) -> Column:
    """One row for each element; none for an empty array or null."""
    return Column(f"unnest({column(array_).sql})", "col")


def explode_outer(array_: Named) -> Column:
    """As `explode`, but one row of null for an empty array or null."""
    sql = column(array_).sql
    return Column(f"unnest(CASE WHEN coalesce(len({sql}), 0) = 0 THEN [NULL] ELSE {sql} END)", "col")


def create_map(*words: Column) -> "CaseOf":
    return CaseOf(list(zip(words[::2], words[1::2], strict=True)))


class CaseOf:
    """A map of constants; `of[key]` is null for any other key."""

    def __init__(self, pairs: list[tuple[Column, Column]]) -> None:
        self._pairs = pairs

    def __getitem__(self, key: Column) -> Column:
        cases = " ".join(f"WHEN {one.sql} THEN {value.sql}" for one, value in self._pairs)
        return Column(f"CASE {key.sql} {cases} END")


def from_json(text: Named, type_name: str) -> Column:
    return Column(f"from_json({column(text).sql}, {literal(json.dumps(type_of(type_name)))})")


def substring(text: Named, start: int, length: int) -> Column:
    return Column(f"substring({column(text).sql}, {start}, {length})")


def floor(number: Named) -> Column:
    return Column(f"CAST(floor({column(number).sql}) AS BIGINT)")


def count(of: Named) -> Column:
    return Column("count(*)" if isinstance(of, str) and of == "*" else f"count({column(of).sql})")


def count_if(condition: Named) -> Column:
    return Column(f"count(CASE WHEN {column(condition).sql} THEN 1 END)")


def count_distinct(of: Named) -> Column:
    return Column(f"count(DISTINCT {column(of).sql})")


class sum(Column):  # noqa: N801  (Spark's name)
    """A sum, whose type in DuckDB is another one: it is cast, also over a window."""

    __slots__ = ("_bare",)

    def __init__(self, of: Named) -> None:
        self._bare = f"sum({column(of).sql})"
        super().__init__(f"CAST({self._bare} AS BIGINT)")

    def over(self, window: WindowSpec) -> Column:
        return Column(f"CAST({self._bare} OVER ({window.sql}) AS BIGINT)")


def max(of: Named) -> Column:
    found = column(of)
    if found.fields is None:
        return _max(of)
    # Null is the greatest value in DuckDB's structs, and the least in Spark's.
    keys: dict[str, str] = {}
    for number, sql in enumerate(found.fields.values()):
        keys |= {f"is{number}": f"({sql} IS NOT NULL)", f"of{number}": sql}
    return Column(f"arg_max_null({found.sql}, {_packed(keys)})")


def collect_list(of: Named) -> Column:
    sql = column(of).sql
    return Column(f"coalesce(list({sql}) FILTER ({sql} IS NOT NULL), [])")


def percentile_approx(of: Named, share: float) -> Column:
    """The smallest value that at least this share of the values does not exceed; Spark's is exact for small numbers too."""
    return Column(f"quantile_disc({column(of).sql}, {share})")


def last(of: Named, *, ignorenulls: bool = False) -> Column:
    return Column(f"last_value({column(of).sql}{' IGNORE NULLS' if ignorenulls else ''})")


def broadcast(frame: Any) -> Any:
    return frame


def _packed(fields: dict[str, str]) -> str:
    return "struct_pack(" + ", ".join(f"{quoted(name)} := {sql}" for name, sql in fields.items()) + ")"


def _lambda(function: Callable[[Column], Column]) -> str:
    variable = f"e{next(_variables)}"
    return f"lambda {variable}: {function(Column(variable)).sql}"
