"""
What a replicated state machine is made of: the shard and its results, deadlines, background tasks, and timeline structures.

`kohort.machine.bulk` has the optional methods of a shard that replays many records at once.
"""

from kohort.machine.shard import (
    BackgroundShard,
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
    "BackgroundShard",
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
