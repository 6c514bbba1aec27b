"""
Message classes by name: `messages.HeartbeatRequest`, `messages.OffsetCommitResponsePartition`.

One class per message, the union of its versions, with Kafka's names in snake case. Durations and dates are integers of
milliseconds and end in `_ms`, error codes are plain integers, a zero uuid is None. A class is built at the first use of its
name. A reader returns objects with the same attributes but of a separate class per version: compare values, not classes.

messages.pyi lists all classes.
"""

from typing import Any

from kohort.wire.message_classes import message_class


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        found = message_class(name)
    except KeyError:
        raise AttributeError(f"there is no message {name!r}") from None
    globals()[name] = found
    return found
