"""
Crash-safe replacement of segments by a cleaned segment.

The steps, each durable before the next one begins:

1. The new files are complete; their names end in `.cleaned` until they are flushed, then in `.swap`.
2. The old files get names that end in `.deleted`.
3. The new files get their final names, the `.log` file first: a `.swap` file without it replaces nothing any more.
4. The old files are removed.

After a crash, `.cleaned` files are removed, and `.swap` files of the same segment with them: step 1 was not finished. With
`.swap` files alone, recovery continues at step 2: the segments within the offsets of the new segment are the replaced ones.

Source: Kafka LocalLog.replaceSegments, LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

import logging
from pathlib import Path

from kohort.model.errors import CorruptError
from kohort.storage.files import syscalls
from kohort.storage.files.directory import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    final_name,
    offset_of,
)
from kohort.storage.log import LogConfig
from kohort.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment

_log = logging.getLogger("kohort.storage")


def finish_swaps(directory: Path) -> None:
    """
    Finish or undo interrupted swaps of a partition's directory, of Kohort's cleaner or Apache Kafka's.

    The steps are idempotent: an interrupted call is repeated. Files that end in `.deleted` and `.cleaned` are removed.

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
        syscalls.rename(directory / name, final_name(directory / name))
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
    The offset behind the last batch of a segment with its `.swap` name. No checksum covers offsets, and segments below this one
    are removed, so the offsets are checked: they rise, fit into one segment, and end before the newest segment, which a cleaner
    never replaces.
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
    except CorruptError as error:  # the scan that follows truncates the segment
        _log.warning("log.swap_damaged path=%s error=%r", segment.path, str(error))
    finally:
        segment.close()
    return max(end, base_offset + 1)


def _base_of(name: str) -> int:
    offset = offset_of(name)
    return -1 if offset is None else offset
