"""
The messages: `messages.HeartbeatRequest`, `messages.OffsetCommitResponsePartition` and all the others.

One shape per message, the union of its versions, with Kafka's names in snake case; durations and dates are integers of
milliseconds and end in `_ms`, error codes are plain integers, a zero uuid is None. Built at the first use of a name. What a
reader returns has the same attributes, but a class of its own per version: compare values, never ask for the class.

messages.pyi lists them all.
"""

from typing import Any

from kohort.wire.message_classes import shape


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        found = shape(name)
    except KeyError:
        raise AttributeError(f"there is no message {name!r}") from None
    globals()[name] = found
    return found
