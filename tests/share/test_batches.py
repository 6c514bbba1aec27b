"""Ranges of delivery states equal a table with one entry an offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kohort.machine.ports import StateBatch
from kohort.share.batches import NO_OFFSET, combined, is_ordered

OFFSETS = 40
BATCH = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, OFFSETS),
    st.integers(0, 12),
    st.sampled_from([0, 2, 3, 4]),
    st.integers(1, 4),
)
ALIKE = st.builds(
    lambda first, length, count: StateBatch(first, first + length, 2, count),
    st.integers(0, 12),
    st.integers(0, 2),
    st.integers(1, 2),
)
WRITES = st.lists(st.tuples(st.lists(BATCH, max_size=5), st.integers(NO_OFFSET, OFFSETS)), max_size=12)

Table = dict[int, tuple[int, int]]
"""By offset: delivery count and state."""


def table_of(batches: tuple[StateBatch, ...]) -> Table:
    return {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@given(WRITES)
def test_combined_batches_equal_one_entry_an_offset(writes: list[tuple[list[StateBatch], int]]) -> None:
    """The higher count wins, then the higher state; what is below the start offset is gone."""
    stored: tuple[StateBatch, ...] = ()
    table: Table = {}
    for added, start_offset in writes:
        stored = combined(stored, added, start_offset)
        for batch in added:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                held = batch.delivery_count, batch.delivery_state
                table[offset] = max(table.get(offset, held), held)
        table = {offset: held for offset, held in table.items() if offset >= start_offset}
        assert table_of(stored) == table
        assert is_ordered(stored)


@given(st.lists(st.lists(ALIKE, max_size=3), min_size=2, max_size=6))
def test_neighbours_with_the_same_state_and_count_are_one_batch(writes: list[list[StateBatch]]) -> None:
    stored: tuple[StateBatch, ...] = ()
    for added in writes:
        stored = combined(stored, added, NO_OFFSET)
        for batch, following in pairwise(stored):
            assert batch.last_offset + 1 < following.first_offset or batch[2:] != following[2:]


def test_a_batch_that_ends_before_it_begins_is_left_out() -> None:
    good = StateBatch(5, 6, 2, 1)
    assert combined((good,), [StateBatch(3, 1, 2, 1)], NO_OFFSET) == (good,)
    assert not is_ordered((StateBatch(3, 1, 2, 1),))
    assert not is_ordered((good, StateBatch(6, 7, 2, 1)))
    assert is_ordered((good, StateBatch(7, 7, 2, 1)))
