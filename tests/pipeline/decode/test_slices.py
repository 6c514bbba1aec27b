"""A stretch of a segment holds the same batches and damage however many batches are looked at at once."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from kohort.pipeline.decode.slices import Slice, scan_slice
from tests.pipeline.logbytes import batch

BATCHES = 6
DAMAGE = (b"", bytes(80), b"noise", batch(0, [(b"key", b"torn")])[:70])


@given(
    st.lists(st.sampled_from(DAMAGE), min_size=BATCHES + 1, max_size=BATCHES + 1),
    st.integers(0, BATCHES),
    st.integers(0, BATCHES),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_same_however_many_at_once(
    damage: list[bytes], start: int, end: int, has_tail: bool, batches_max: int
) -> None:
    good = [batch(at, [(b"key", b"value")]) for at in range(BATCHES)]
    raw = b"".join(before + one for before, one in zip(damage, [*good, b""], strict=True))
    stretch = Slice(start, end, has_tail=has_tail)
    (whole,) = scan_slice(raw, stretch, batches_max=sys.maxsize)
    some = list(scan_slice(raw, stretch, batches_max=batches_max))
    assert [at for found in some for at in found.positions.tolist()] == whole.positions.tolist()
    assert [one for found in some for one in found.damage] == whole.damage
    assert whole.headers["base_offset"].tolist() == list(range(start, end))
