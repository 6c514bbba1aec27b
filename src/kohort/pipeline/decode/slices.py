"""
A slice of a log by offsets within one segment: from `start` to before `end`.

A batch belongs to the slice that holds its base offset, and is never split. Bounds may be any offsets, also within a batch, and
adjacent slices give every batch exactly once.

Damage belongs to the slice of the first good batch after it. Damage at the end of a segment belongs to the slice that holds the
next segment's base offset. Damage at the end of the newest segment belongs to no slice, because a batch may be being written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kohort.pipeline.decode.batches import SCAN_BATCHES, Corruption, Scan, base_offset_at, scans


@dataclass(frozen=True, slots=True)
class Mark:
    """The base offset of a batch and its position in the segment file."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class Slice:
    """
    Attributes:
        begin: a batch before `start`, from which the scan begins; None for the segment's begin.
        until: a batch not before `end`, at which the scan ends; None for the segment's end.
        has_tail: whether damage at the segment's end belongs to this slice.
    """

    start: int
    end: int
    begin: Mark | None = None
    until: Mark | None = None
    has_tail: bool = False


def scan_slice(data: Any, stretch: Slice, *, check_crc: bool = True, batches_max: int = SCAN_BATCHES) -> Iterator[Scan]:
    """
    The batches of a slice in a segment's bytes, as `batches.scans`. Marks that no longer fit are not used, because compaction
    moves batches.
    """
    # A scan does not begin at a damaged batch, because damage before it would be lost.
    begin, until = (
        None if mark is None or base_offset_at(data, mark.position) != mark.offset else mark.position
        for mark in (stretch.begin, stretch.until)
    )
    for found in scans(data, check_crc=check_crc, begin=begin or 0, until=until, batches_max=batches_max):
        base_offsets = found.headers["base_offset"].astype(np.int64)
        chosen = (base_offsets >= stretch.start) & (base_offsets < stretch.end)
        damage = [one for one in found.damage if _has_damage(one, found, base_offsets, stretch, is_whole=until is None)]
        yield Scan(found.data, found.positions[chosen], found.headers[chosen], damage, found.mapped)


def _has_damage(damage: Corruption, found: Scan, base_offsets: Any, stretch: Slice, *, is_whole: bool) -> bool:
    behind = int(np.searchsorted(found.positions, damage.position))
    if behind == len(found.positions):
        return is_whole and stretch.has_tail
    return bool(stretch.start <= base_offsets[behind] < stretch.end)
