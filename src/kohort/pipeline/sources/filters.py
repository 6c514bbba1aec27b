"""
Filters of a query that reduce what is read: on `kind`, `log_topic`, `log_partition` and `timestamp_ms`.

Filters are told apart by the names of their classes: PySpark before 4.1 has none.

Source: PySpark 4.1, pyspark.sql.datasource.Filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kohort.pipeline.sources.options import SourceOptions

_EQUAL, _IN = "EqualTo", "In"
_LEAST: Final[Mapping[str, int]] = {"GreaterThan": 1, "GreaterThanOrEqual": 0, _EQUAL: 0}
"""The difference of the smallest matching timestamp to the value of a filter."""
_BEYOND: Final[Mapping[str, int]] = {"LessThan": 0, "LessThanOrEqual": 1, _EQUAL: 1}
"""The difference of the first timestamp beyond the matching ones to the value of a filter."""


def narrowed(options: SourceOptions, filters: Iterable[Any]) -> SourceOptions:
    """Narrow the options to what can pass all filters."""
    for one in filters:
        name = type(one).__name__
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else None
        if name in {_EQUAL, _IN}:
            options = _chosen(options, column, frozenset(one.value if name == _IN else [one.value]))
        if column == "timestamp_ms" and isinstance(getattr(one, "value", None), int):
            options = _timed(options, name, one.value)
    return options


def _chosen(options: SourceOptions, column: str | None, values: frozenset[Any]) -> SourceOptions:
    match column:
        case "kind":
            return replace(options, kinds=options.kinds & values)
        case "log_topic":
            return replace(options, topics=values if options.topics is None else options.topics & values)
        case "log_partition":
            return replace(options, partitions=values if options.partitions is None else options.partitions & values)
    return options


def _timed(options: SourceOptions, name: str, value: int) -> SourceOptions:
    from_ms, to_ms = options.from_ms, options.to_ms
    if name in _LEAST:
        from_ms = max(value + _LEAST[name], from_ms if from_ms is not None else value)
    if name in _BEYOND:
        to_ms = min(value + _BEYOND[name], to_ms if to_ms is not None else value + 1)
    return replace(options, from_ms=from_ms, to_ms=to_ms)
