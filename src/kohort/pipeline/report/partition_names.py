"""What partitions and tasks are called on a page."""

from collections.abc import Mapping
from typing import Any


def place_name(row: Mapping[str, Any]) -> str:
    """`orders-3`, the topic's id where its name is not known; tasks as Kafka Streams calls them, `0_3`."""
    return f"{place_stem(row)}{row['partition']}"


def place_stem(row: Mapping[str, Any]) -> str:
    """The name without the number: what belongs together."""
    subtopology = row.get("subtopology")
    return f"{row['topic'] or row['topic_id']}-" if subtopology is None else f"{subtopology}_"
