"""
How a cleaned segment takes the place of those that it replaces, whatever happens in between.

The steps, each durable before the next is begun:

1. The new files are complete, and end in `.cleaned` until they are on the disk, then in `.swap`.
2. The old ones get names that end in `.deleted`.
3. The new ones get their final names, the log first: what has its `.swap` name then has nothing left to replace.
4. The old ones are removed.

Who finds `.cleaned` files removes them, and `.swap` files of the same segment with them: step 1 was not done. Who finds `.swap`
files alone goes on with step 2: what lies between the beginning and the end of the new segment is what it replaces.

Source: Kafka LocalLog.replaceSegments, LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

import logging
from pathlib import Path

from kohort.model.errors import CorruptError
from kohort.storage.cleaning.compaction import CLEANED_SUFFIX, SWAP_SUFFIX
from kohort.storage.directory import offset_of
from kohort.storage.durability import syscalls
from kohort.storage.log import LogConfig
from kohort.storage.segments.segment import DELETED_SUFFIX, LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment

_log = logging.getLogger("kohort.storage")


def finish_swaps(directory: Path) -> None:
    """
    Bring to an end what a cleaner was at in this partition's directory when it was interrupted, ours or Apache Kafka's.

    May itself be interrupted, and is done again then. Removes what ends in `.deleted` and `.cleaned`.

    Raises:
        OSError: the directory cannot be read or written.
    """
    names = sorted(path.name for path in directory.iterdir() if offset_of(path.name) is not None)
    cleaned_from = min((_base_of(name) for name in names if name.endswith(CLEANED_SUFFIX)), default=None)
    swaps = []
    for name in names:
        is_void = name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))
        if name.endswith(SWAP_SUFFIX):
            is_void = cleaned_from is not None and _base_of(name) >= cleaned_from
            if not is_void:
                swaps.append(name)
        if is_void:
            syscalls.remove(directory / name)
    if not swaps:
        return
    _remove_replaced(directory, swaps)
    syscalls.sync_directory(directory)
    for name in sorted(swaps, key=lambda name: (not name.endswith(LOG_SUFFIX + SWAP_SUFFIX), name)):
        syscalls.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    syscalls.sync_directory(directory)


def _remove_replaced(directory: Path, swaps: list[str]) -> None:
    for name in swaps:
        if not name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            continue
        begin = _base_of(name)
        end = _next_offset(directory, begin)
        _log.info("log.swap_finished path=%s end_offset=%d", directory / name, end)
        for path in sorted(directory.iterdir()):
            if path.name not in swaps and begin <= _base_of(path.name) < end:
                syscalls.remove(path)


def _next_offset(directory: Path, base_offset: int) -> int:
    """
    The offset behind the last batch of a segment that has its `.swap` name. No checksum covers offsets, and what lies below
    this one is removed: they have to rise, in one segment, and the newest segment is none that a cleaner replaces.
    """
    segment = Segment(directory, base_offset, LogConfig(), created_ms=0)
    segment.rename_with(SWAP_SUFFIX)
    segment.open()
    end = base_offset
    newest = max((_base_of(path.name) for path in directory.iterdir() if path.suffix == LOG_SUFFIX), default=-1)
    offset_max = base_offset + RELATIVE_OFFSET_MAX if newest <= base_offset else newest - 1
    try:
        for _, _, first_offset, last_offset, _ in segment.walk():
            if not end <= first_offset <= last_offset <= offset_max:
                raise CorruptError(f"{segment.path}: offsets {first_offset} to {last_offset} follow {end - 1}")
            end = last_offset + 1
    except CorruptError as error:  # the scan that follows will say so, too, and cut it
        _log.warning("log.swap_damaged path=%s error=%r", segment.path, str(error))
    finally:
        segment.close()
    return max(end, base_offset + 1)


def _base_of(name: str) -> int:
    offset = offset_of(name)
    return -1 if offset is None else offset
