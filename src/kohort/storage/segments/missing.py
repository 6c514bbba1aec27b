"""Segments that are missing: a start tells them from deleted ones by the files beside them."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from pathlib import Path

from kohort.storage.files import syscalls
from kohort.storage.files.directory import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_of
from kohort.storage.segments.aborted import TXN_INDEX_SUFFIX
from kohort.storage.segments.index_checksums import CHECKSUMS_SUFFIX

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, CHECKSUMS_SUFFIX)


def orphans_of(names: Collection[str]) -> list[str]:
    """The indexes without their segment, of the files of a partition."""
    return [
        name
        for name in names
        if name.endswith(INDEX_SUFFIXES)
        and offset_of(name) is not None
        and name.partition(".")[0] + LOG_SUFFIX not in names
    ]


def remove_indexes_of_deleted(directory: Path) -> None:
    """Finish the renames of deleted and of replaced segments, durably, before the files are removed that show them."""
    names = {path.name for path in directory.iterdir()}
    renamed = [name for name in orphans_of(names) if name.partition(".")[0] + LOG_SUFFIX + DELETED_SUFFIX in names]
    for name in renamed:
        syscalls.remove(directory / name)
    if renamed:
        syscalls.sync_directory(directory)


def find_missing_segment(
    names: Collection[str], bases: Sequence[int], *, log_start_offset: int, durable_until: int
) -> int | None:
    """
    The base offset of a segment whose data was flushed and is not before the log start, and of which only indexes are there.

    A truncation leaves such indexes above the flushed data, and a deletion before the log start.

    Args:
        names: the files of the partition.
        bases: the base offsets of its segments, rising.
    """
    for base in sorted({offset_of(name) or 0 for name in orphans_of(names)}):
        following = bisect_right(bases, base)
        is_needed = following == len(bases) or bases[following] > log_start_offset
        if is_needed and base < durable_until:
            return base
    return None
