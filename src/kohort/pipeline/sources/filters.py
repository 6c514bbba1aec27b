"""
Filters of a query that spare reading: on `kind`, `log_topic`, `log_partition` and `timestamp_ms`.

Everything else is left to Spark, which also looks at what is read through these once more.

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
"""What to add to a filter's value for the least time that passes."""
_BEYOND: Mapping[type[Filter], int] = {LessThan: 0, LessThanOrEqual: 1, EqualTo: 1}
"""The same for the first time that no longer does."""


def narrowed(options: SourceOptions, filters: Iterable[Filter]) -> SourceOptions:
    """The options with which nothing is left out that passes all filters."""
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
