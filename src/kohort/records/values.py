"""
Value classes of coordinator records by name: `values.OffsetCommit`, `values.ConsumerGroupMetadataTombstone`.

One class per record, per tombstone and per nested struct, with Kafka's names in snake case; times and durations end in `_ms`, a
zero uuid is None, arrays are tuples. A class is built at the first use of its name. values.pyi lists all classes.
"""

from typing import Any

from kohort.records.value_classes import value_class


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        found = value_class(name)
    except KeyError:
        raise AttributeError(f"there is no record {name!r}") from None
    globals()[name] = found
    return found
