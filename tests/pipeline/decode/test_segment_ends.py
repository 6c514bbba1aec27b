"""The end of a segment is found near its end: what lies before the last index entry is not read."""

import struct
from pathlib import Path

import pytest

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segment_ends import SegmentEnd, entry_before, segment_end
from kohort.pipeline.decode.segments import Segment
from kohort.pipeline.decode.slices import Mark
from kohort.pipeline.decode.storage import mapped
from tests.pipeline.logbytes import TIMESTAMP_MS, batch, segment

BASE = 1000
TIMES_MS = [TIMESTAMP_MS + at for at in (0, 900, 100, 200, 300, 400)]
"""The second batch has the greatest timestamp."""
BATCHES = [
    batch(BASE + 2 * at, [(b"k", b"v"), (b"k", b"w")], timestamp_ms=time_ms) for at, time_ms in enumerate(TIMES_MS)
]
SIZE = len(BATCHES[0])
PREALLOCATED = bytes(120)
OFFSETS = [(2 * at + 1, at * SIZE) for at in (1, 3)]
TIMES = [(TIMES_MS[1] + 1, 3)]


def written(
    directory: Path,
    *,
    log: bytes | None = None,
    offsets: list[tuple[int, int]] | None = None,
    times: list[tuple[int, int]] | None = None,
) -> Segment:
    """A segment with indexes that are allocated for more entries, as those of a running broker."""
    path = directory / f"{BASE:020}.log"
    path.write_bytes(b"".join(BATCHES) if log is None else log)
    if offsets is not None:
        path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *one) for one in offsets) + PREALLOCATED)
    if times is not None:
        path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *one) for one in times) + PREALLOCATED)
    return segment(path, topic="t", base=BASE)


WHOLE = SegmentEnd(BASE + 12, TIMES_MS[1] + 1)
NOISE = b"\xff" * (3 * SIZE)


def test_the_end_by_indexes(tmp_path: Path) -> None:
    log = NOISE + b"".join(BATCHES[3:])
    assert segment_end(written(tmp_path, log=log, offsets=OFFSETS, times=TIMES)) == WHOLE


# fmt: off
UNUSABLE = {
    "no index":                 (None, TIMES),
    "an empty index":           ([], TIMES),
    "no time index":            (OFFSETS, None),
    "an empty time index":      (OFFSETS, []),
    "a position of no batch":   ([(7, 3 * SIZE + 1)], TIMES),
    "a position behind":        ([(7, 100 * SIZE)], TIMES),
    "a negative position":      ([(7, -5)], TIMES),
    "another batch":            ([(1, 3 * SIZE)], TIMES),
    "times behind the entry":   (OFFSETS, [(TIMES_MS[1] + 999, 9)]),
}
# fmt: on


@pytest.mark.parametrize("name", UNUSABLE)
def test_indexes_that_do_not_fit_are_not_used(tmp_path: Path, name: str) -> None:
    offsets, times = UNUSABLE[name]
    assert segment_end(written(tmp_path, offsets=offsets, times=times)) == WHOLE


# fmt: off
TAILS = {
    "a torn batch":     (BATCHES[5][:40], 0),
    "zero bytes":       (bytes(300), 0),
    "a wrong checksum": (BATCHES[5][:-1] + b"?", 0),
    "a whole batch":    (BATCHES[5], 2),
}
# fmt: on


@pytest.mark.parametrize("indexes", [True, False])
@pytest.mark.parametrize("name", TAILS)
def test_only_whole_batches_count(tmp_path: Path, name: str, indexes: bool) -> None:
    tail, more = TAILS[name]
    log = b"".join(BATCHES[:5]) + tail
    found = written(tmp_path, log=log, offsets=OFFSETS if indexes else None, times=TIMES if indexes else None)
    assert segment_end(found) == SegmentEnd(BASE + 10 + more, TIMES_MS[1] + 1)


def test_a_segment_without_a_batch(tmp_path: Path) -> None:
    assert segment_end(written(tmp_path, log=b"", offsets=[], times=[])) == SegmentEnd(BASE, None)


def test_entries_below_an_offset(tmp_path: Path) -> None:
    found = written(tmp_path, offsets=OFFSETS, times=TIMES)
    data = mapped(found.path)
    entries = {offset: entry_before(found, data, BASE + offset) for offset in (0, 3, 4, 7, 8, 99)}
    first, second = (Mark(BASE + offset, position) for offset, position in OFFSETS)
    assert entries == {0: None, 3: None, 4: first, 7: first, 8: second, 99: second}


@pytest.mark.parametrize("offset", [1, -1])
def test_an_entry_with_an_offset_before_its_batch_is_not_used(tmp_path: Path, offset: int) -> None:
    found = written(tmp_path, offsets=[(offset, 3 * SIZE)], times=TIMES)
    assert entry_before(found, mapped(found.path), BASE + 99) is None


def test_an_entry_of_a_damaged_batch_is_not_used(tmp_path: Path) -> None:
    """Damage before the last entry has to be found by those who read from there."""
    log = b"".join([*BATCHES[:3], BATCHES[3][:-1] + b"?", *BATCHES[4:]])
    found = written(tmp_path, log=log, offsets=OFFSETS, times=TIMES)
    assert entry_before(found, mapped(found.path), BASE + 99) is None
    assert segment_end(found) == WHOLE


def test_segment_rows_are_read_so_too(tmp_path: Path) -> None:
    found = written(tmp_path, log=NOISE + b"".join(BATCHES[3:]), offsets=OFFSETS, times=TIMES)
    (row,) = Decoder(kinds=(schemas.SEGMENT,)).decode_file(found)
    told = row.to_pylist()[0]
    assert (told["next_offset"], told["timestamp_ms"], told["size_bytes"]) == (*WHOLE, 6 * SIZE)
