"""Leader epochs: Kafka's rules for adding, cutting and asking."""

import pytest

from kohort.model.errors import CorruptError
from kohort.storage.epochs import EpochCache


def cache(*entries: tuple[int, int]) -> EpochCache:
    built = EpochCache()
    for epoch, start in entries:
        built.assign(epoch, start)
    built.is_dirty = False
    return built


# fmt: off
ASSIGNED = {  # entries, then (epoch, start offset): entries afterwards
    "first":               ([],               (0, 0),  [(0, 0)]),
    "newer":               ([(0, 0)],         (2, 5),  [(0, 0), (2, 5)]),
    "the same is no news": ([(0, 0), (2, 5)], (2, 9),  [(0, 0), (2, 5)]),
    "an older one is none": ([(2, 5)],        (1, 9),  [(2, 5)]),
    "one without records gives way": ([(0, 0), (2, 5)], (3, 5), [(0, 0), (3, 5)]),
    "so do all that begin later": ([(0, 0), (2, 5), (3, 8)], (4, 4), [(0, 0), (4, 4)]),
}
END_OFFSETS = {  # of (1, 0), (3, 10), (4, 20), log end 30
    -1: (-1, -1), 0: (0, 0), 1: (1, 10), 2: (1, 10), 3: (3, 20), 4: (4, 30), 5: (-1, -1),
}
FROM_END =   {0: [], 10: [(1, 0)], 11: [(1, 0), (3, 10)], 20: [(1, 0), (3, 10)], 21: [(1, 0), (3, 10), (4, 20)]}
FROM_START = {0: [(1, 0), (3, 10), (4, 20)], 5: [(1, 5), (3, 10), (4, 20)], 10: [(3, 10), (4, 20)], 25: [(4, 25)]}
# fmt: on


@pytest.mark.parametrize("case", ASSIGNED)
def test_assigning(case: str) -> None:
    entries, (epoch, start), expected = ASSIGNED[case]
    epochs = cache(*entries)
    epochs.assign(epoch, start)
    assert epochs.entries == expected
    assert epochs.is_dirty == (expected != entries)


def test_end_offsets() -> None:
    epochs = cache((1, 0), (3, 10), (4, 20))
    assert {epoch: epochs.end_offset_for(epoch, 30) for epoch in END_OFFSETS} == END_OFFSETS
    assert cache().end_offset_for(0, 30) == (-1, -1)


def test_cutting() -> None:
    for cut, table in ((EpochCache.truncate_from_end, FROM_END), (EpochCache.truncate_from_start, FROM_START)):
        for offset, expected in table.items():
            epochs = cache((1, 0), (3, 10), (4, 20))
            cut(epochs, offset)
            assert epochs.entries == expected, (cut, offset)


def test_the_text_is_kafkas_and_is_read_back() -> None:
    text = cache((0, 0), (4, 17)).to_text()
    assert text == "0\n2\n0 0\n4 17\n"
    again = EpochCache.from_text(text)
    assert (again.entries, again.is_dirty) == ([(0, 0), (4, 17)], False)


@pytest.mark.parametrize("text", ["", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\nx\n", "0\n1\na b\n"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CorruptError):
        EpochCache.from_text(text)
