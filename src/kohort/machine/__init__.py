"""
What a replicated state machine is made of: the shard and its results, timers, background tasks, and timeline structures.

`kohort.machine.bulk` has the optional methods of a shard that replays many records at once.
"""

from kohort.machine.shard import (
    BackgroundShard,
    EndTransaction,
    Executor,
    ParkedReply,
    PlainShard,
    Producer,
    RecordSerde,
    Release,
    Reply,
    Result,
    Runner,
    Shard,
    Timers,
)
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet, TimelineValue

__all__ = [
    "BackgroundShard",
    "EndTransaction",
    "Executor",
    "ParkedReply",
    "PlainShard",
    "Producer",
    "RecordSerde",
    "Release",
    "Reply",
    "Result",
    "Runner",
    "Shard",
    "SnapshotRegistry",
    "TimelineDict",
    "TimelineSet",
    "TimelineValue",
    "Timers",
]
