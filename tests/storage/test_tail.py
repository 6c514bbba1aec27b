"""The newest bytes of segments in memory: what is kept, what is forgotten, and that unwritten bytes never are."""

from random import Random

import pytest

from kohort.storage.segments.tail import PIECE_COST, Tail, Tails


def test_bytes_are_read_from_any_position_to_any_other(rng: Random) -> None:
    tail, whole = Tail(1000), b""
    for number in range(200):
        data, rest = bytes([number]) * rng.randrange(1, 9), b"r" * rng.choice((0, 0, 5))
        tail.append(bytearray(data), memoryview(rest))
        whole += data + rest
    frozen = tail.frozen()
    tail.append(b"later", b"")
    assert tail.end == 1000 + len(whole) + 5
    for _ in range(500):
        start = rng.randrange(len(whole))
        size = rng.randrange(len(whole))
        assert tail.read(size, 1000 + start) == (whole + b"later")[start : start + size]
        assert frozen.read(size, 1000 + start) == whole[start : start + size]
    assert tail.read(10, tail.end) == b""


@pytest.mark.parametrize("written_max", [0, 3 * (PIECE_COST + 10), 1 << 20])
def test_what_is_not_written_is_never_forgotten(written_max: int) -> None:
    """Of the written bytes the oldest go first, the tails that were written to longest ago before others."""
    tails = Tails(written_max)
    old, new = Tail(0), Tail(0)
    costs: dict[Tail, list[int]] = {old: [], new: []}
    for tail in (old, new):
        for _ in range(6):
            cost = tail.append(b"x" * 10, b"")
            tails.unwritten += cost
            costs[tail].append(cost)
    for tail in (old, new):
        tails.on_end(tail, 40, sum(costs[tail][:4]), is_written=True)
        assert tail.start <= tail.written_end == 40
        assert tail.read(20, 40) == b"x" * 20
        assert tails.written <= written_max
    assert tails.unwritten == sum(costs[old][4:]) + sum(costs[new][4:])
    assert old.start >= new.start
    tails.on_end(old, 60, sum(costs[old][4:]), is_written=False)
    assert (old.written_end, old.read(20, 40)) == (40, b"x" * 20)
    tails.forget(old)
    tails.forget(new)
    assert (tails.written, old.start, new.start) == (0, 60, 60)
    tails.on_end(new, 60, sum(costs[new][4:]), is_written=True)
    assert (tails.written, tails.unwritten) == (0, 0)


def test_a_copy_reads_what_was_forgotten_since() -> None:
    tail = Tail(0)
    tail.append(b"abc", b"def")
    frozen = tail.frozen()
    tail.written_end = tail.end
    assert tail.forget_written(1 << 20) == 6 + 2 * PIECE_COST
    assert tail.start == tail.end == 6
    assert frozen.read(4, 1) == b"bcde"
