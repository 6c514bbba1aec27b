"""Names of partitions and tasks in the report."""

from collections.abc import Mapping
from typing import Any


def place_name(row: Mapping[str, Any]) -> str:
    """Return `orders-3`, with the topic id if the name is unknown; tasks as in Kafka Streams, `0_3`."""
    return f"{place_stem(row)}{row['partition']}"


def place_stem(row: Mapping[str, Any]) -> str:
    """Return the name without the partition number."""
    subtopology = row.get("subtopology")
    return f"{row['topic'] or row['topic_id']}-" if subtopology is None else f"{subtopology}_"
