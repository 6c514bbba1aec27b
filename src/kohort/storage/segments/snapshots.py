"""
Producer state on disk: `<offset>.snapshot` holds the state of a partition's producers before that offset.

    version int16 (1)  CRC-32C uint32 of what follows  count int32, then per producer: id int64, epoch int16, last sequence
    int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of its open
    transaction int64 (-1: none)

A snapshot holds the last batch of each producer, so a restart does not recognise duplicates of older batches. A torn or damaged
file is ignored: the state is then rebuilt from an older snapshot and the batches behind it.

Source: Kafka ProducerStateManager.writeSnapshot, readSnapshot; ProducerSnapshot.json.
"""

from pathlib import Path
from struct import Struct

from kohort.model.errors import CorruptError
from kohort.runtime.ports import NO_SEQUENCE
from kohort.storage.files import syscalls
from kohort.storage.files.directory import offset_of
from kohort.storage.producer_states import BatchMetadata, ProducerStateEntry
from kohort.storage.producers import ProducerStateManager
from kohort.wire.native import crc32c

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_COVERS_FROM = 6
_NONE = -1


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_to_bytes(producers: ProducerStateManager) -> bytes:
    out = bytearray(_HEAD.pack(_VERSION, 0, len(producers.states)))
    for state in producers.states.values():
        last = state.batches[-1] if state.batches else BatchMetadata(NO_SEQUENCE, _NONE, 0, _NONE)
        transaction_offset = _NONE if state.transaction_offset is None else state.transaction_offset
        out += _ENTRY.pack(
            *(state.producer_id, state.producer_epoch, last.last_sequence, last.last_offset, last.offset_delta),
            *(state.timestamp_ms, state.coordinator_epoch, transaction_offset),
        )
    crc = crc32c(memoryview(out)[_CRC_COVERS_FROM:])
    _HEAD.pack_into(out, 0, _VERSION, crc, len(producers.states))
    return bytes(out)


def snapshot_from_bytes(data: bytes) -> list[ProducerStateEntry]:
    """
    Raises:
        CorruptError: the bytes are not a whole snapshot of this version.
    """
    if len(data) < _HEAD.size:
        raise CorruptError(f"{len(data)} bytes are no snapshot of producers")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(memoryview(data)[_CRC_COVERS_FROM:]):
        raise CorruptError(f"a snapshot of producers of version {version} with a wrong checksum or of another version")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptError(f"a snapshot of {count} producers has {len(data)} bytes")
    states = []
    for producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, begun in _ENTRY.iter_unpack(
        data[_HEAD.size :]
    ):
        state = ProducerStateEntry(producer_id, epoch, coordinator_epoch=coordinator_epoch, timestamp_ms=timestamp_ms)
        if offset >= 0:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp_ms))
        state.transaction_offset = begun if begun >= 0 else None
        states.append(state)
    return states


def write_snapshot(directory: Path, offset: int, producers: ProducerStateManager) -> Path:
    """Write a snapshot without flushing it, and return its path."""
    path = snapshot_path(directory, offset)
    syscalls.write_file(path, snapshot_to_bytes(producers))
    return path


def find_snapshots(directory: Path) -> list[int]:
    """The offsets of the snapshots in a directory, rising."""
    found = ((path, offset_of(path.name)) for path in directory.iterdir() if path.suffix == SNAPSHOT_SUFFIX)
    return sorted(offset for path, offset in found if offset is not None and path == snapshot_path(directory, offset))


def load_newest(directory: Path, up_to: int) -> tuple[ProducerStateManager, int] | None:
    """
    The newest undamaged snapshot up to an offset, and its offset; None if there is none. Damaged snapshots are removed.
    """
    for offset in reversed(find_snapshots(directory)):
        if offset <= up_to:
            path = snapshot_path(directory, offset)
            try:
                return ProducerStateManager(snapshot_from_bytes(path.read_bytes())), offset
            except CorruptError:
                syscalls.unlink(path)
    return None


def remove_strays(directory: Path, *, bases: set[int], end_offset: int) -> None:
    """Remove snapshots other than those at base offsets of segments and the newest one, and all above the end of the log."""
    found = find_snapshots(directory)
    newest = max((offset for offset in found if offset <= end_offset), default=None)
    for offset in found:
        if offset != newest and (offset not in bases or offset > end_offset):
            syscalls.unlink(snapshot_path(directory, offset))
