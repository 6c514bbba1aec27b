"""
Query filters that reduce what is read: on `kind`, `log_topic`, `log_partition` and `timestamp_ms`.

Spark applies all filters again to the rows.

Source: PySpark 4.1, pyspark.sql.datasource.Filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kohort.pipeline.sources.options import SourceOptions

_LEAST: Mapping[type[Filter], int] = {GreaterThan: 1, GreaterThanOrEqual: 0, EqualTo: 0}
"""The difference of the smallest matching timestamp to the value of a filter."""
_BEYOND: Mapping[type[Filter], int] = {LessThan: 0, LessThanOrEqual: 1, EqualTo: 1}
"""The difference of the first timestamp beyond the matching ones to the value of a filter."""


def narrowed(options: SourceOptions, filters: Iterable[Filter]) -> SourceOptions:
    """Narrow the options to what can pass all filters."""
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else None
        if isinstance(one, EqualTo | In):
            options = _chosen(options, column, frozenset(one.value if isinstance(one, In) else [one.value]))
        if column == "timestamp_ms" and isinstance(getattr(one, "value", None), int):
            options = _timed(options, one)
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


def _timed(options: SourceOptions, one: Any) -> SourceOptions:
    from_ms, to_ms = options.from_ms, options.to_ms
    if type(one) in _LEAST:
        from_ms = max(one.value + _LEAST[type(one)], from_ms if from_ms is not None else one.value)
    if type(one) in _BEYOND:
        to_ms = min(one.value + _BEYOND[type(one)], to_ms if to_ms is not None else one.value + 1)
    return replace(options, from_ms=from_ms, to_ms=to_ms)
