"""
Release of long messages in steps.

Dropping the last reference to a message frees all of its objects in one go: 50 000 elements with their nested arrays take 10 ms
and more. Here a long array is emptied from its end, some elements at a time.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final

from kohort.wire.schema import Message

STEP_ELEMENTS: Final = 1_000
"""Elements that are freed between two yields. Shorter arrays are freed at once."""


def long_arrays(value: Any, schema: Message, struct: str | None = None) -> Iterator[list[Any]]:
    """
    Yield copies of the long arrays of a message; arrays within their elements are not looked at.

    Args:
        struct: the name of the nested struct that `value` is; None for a message.
    """
    for field in schema.structs[struct or schema.name]:
        if not field.array:
            continue
        elements = getattr(value, field.name, None) or ()
        if len(elements) > STEP_ELEMENTS:
            yield list(elements)
        elif field.type in schema.structs:
            for element in elements:
                yield from long_arrays(element, schema, field.type)


def release(arrays: list[list[Any]]) -> Generator[None, None, None]:
    """Drop the elements of arrays in steps. The caller has dropped the messages."""
    while arrays:
        array = arrays.pop()
        while array:
            del array[-STEP_ELEMENTS:]
            yield
