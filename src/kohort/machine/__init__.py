"""
The parts of a replicated state machine: the shard and its results, background tasks, and timeline structures.
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
from kohort.machine.steps import Deadline, Operation, Wait, Wake
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet, TimelineValue
from kohort.model.image import ClusterImage, ImageDelta

__all__ = [
    "ClusterImage",
    "Deadline",
    "Deadlines",
    "EndTransaction",
    "Executor",
    "ImageDelta",
    "Operation",
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
    "Wait",
    "Wake",
]
