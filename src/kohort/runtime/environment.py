"""The settings of a runtime that all its contexts share."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kohort.machine.shard import Deadlines, RecordSerde, Shard
from kohort.machine.timeline import SnapshotRegistry
from kohort.runtime.append.appender import OpenBatches
from kohort.runtime.ports import Clock
from kohort.runtime.slices import Slices
from kohort.wire.compression import Codec

S = TypeVar("S", bound=Shard[Any])


class Environment(msgspec.Struct, Generic[S], frozen=True):
    """The settings that all contexts of a runtime share."""

    make_shard: Callable[[int, SnapshotRegistry, Deadlines], S]
    serde: RecordSerde[Any]
    clock: Clock
    linger_ms: int
    codec: Codec
    write_timeout_ms: int
    on_failed: Callable[[int], None]
    """Called when a partition is out of step with its log and has to be loaded again."""
    slices: Slices
    open_batches: OpenBatches
    on_effects: Callable[[int, Sequence[Any]], None]
    """Called with a partition and the effects of a committed operation, in the order of the log."""
    load_buffer_bytes: int
    is_compacted: bool
