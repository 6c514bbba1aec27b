"""
A stretch of a log by offsets, as one segment holds it: `start` and all before `end`.

A batch belongs to the stretch that its base offset is in, and is never split. So any offsets may be bounds, those in the middle
of a batch too, and stretches that follow each other give every batch exactly once.

Damage belongs to the stretch of the first good batch behind it. What is damaged at the end of a segment belongs to the stretch
that the next segment's base offset is in; at the end of the newest segment it belongs to none, because it may be a batch that
is being written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kohort.pipeline.decode.batches import SCAN_BATCHES, Corruption, Scan, scan, scans
from kohort.wire.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, fields_struct

_PREFIX = fields_struct("base_offset", "length")


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch's base offset and its place in the segment file."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class Slice:
    """
    Attributes:
        begin: a batch before `start`, to look from there on; None looks from the segment's begin.
        until: a batch not before `end`, to look no further; None looks to the segment's end.
        has_tail: whether damage at the segment's end belongs to this stretch.
    """

    start: int
    end: int
    begin: Mark | None = None
    until: Mark | None = None
    has_tail: bool = False


def scan_slice(data: Any, stretch: Slice, *, batches_max: int = SCAN_BATCHES) -> Iterator[Scan]:
    """
    The batches of a stretch in a segment's bytes, as `batches.scans`. Marks that no longer fit (compaction has moved batches)
    are not used.
    """
    begin = stretch.begin.position if stretch.begin is not None and _is_there(data, stretch.begin) else 0
    until = stretch.until.position if stretch.until is not None and _is_there(data, stretch.until) else None
    for found in scans(data, begin=begin, until=until, batches_max=batches_max):
        base_offsets = found.headers["base_offset"].astype(np.int64)
        chosen = (base_offsets >= stretch.start) & (base_offsets < stretch.end)
        damage = [one for one in found.damage if _has_damage(one, found, base_offsets, stretch, is_whole=until is None)]
        yield Scan(found.data, found.positions[chosen], found.headers[chosen], damage, found.mapped)


def _has_damage(damage: Corruption, found: Scan, base_offsets: Any, stretch: Slice, *, is_whole: bool) -> bool:
    behind = int(np.searchsorted(found.positions, damage.position))
    if behind == len(found.positions):
        return is_whole and stretch.has_tail
    return bool(stretch.start <= base_offsets[behind] < stretch.end)


def _is_there(data: Any, mark: Mark) -> bool:
    """Whether a whole batch is there. A damaged one is no place to begin: what is damaged before it would be lost."""
    view = memoryview(data)
    if mark.position + HEADER_BYTES > len(view):
        return False
    base_offset, length = _PREFIX.unpack_from(view, mark.position)
    here = scan(data, begin=mark.position, until=mark.position + LOG_OVERHEAD_BYTES + max(length, 0))
    return bool(base_offset == mark.offset and len(here.positions) == 1 and not here.damage)
