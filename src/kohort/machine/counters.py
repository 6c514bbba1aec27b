"""Counters of coordinators: plain objects whose slots are numbers, one object a partition."""

from collections.abc import Iterable
from typing import TypeVar

C = TypeVar("C")


def add_counters(total: C, each: Iterable[C]) -> C:
    """Add every slot of each object to that of `total`, and return `total`. All objects are of one class with `__slots__`."""
    for counters in list(each):
        for name in type(total).__slots__:  # type: ignore[attr-defined]
            setattr(total, name, getattr(total, name) + getattr(counters, name))
    return total
