"""
The parts of a replicated state machine: the shard and its results, deadlines, background tasks, and timeline structures.
"""

from kohort.machine.shard import (
    Deadlines,
    EndTransaction,
    Executor,
    PlainShard,
    Producer,
    RecordSerde,
    Reply,
    Result,
    Runner,
    Shard,
)
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet, TimelineValue

__all__ = [
    "Deadlines",
    "EndTransaction",
    "Executor",
    "PlainShard",
    "Producer",
    "RecordSerde",
    "Reply",
    "Result",
    "Runner",
    "Shard",
    "SnapshotRegistry",
    "TimelineDict",
    "TimelineSet",
    "TimelineValue",
]
