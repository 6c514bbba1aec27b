"""How much memory is used before servers are measured."""

import pytest

from bench.memory import BYTES_MAX, share_of

MIB = 1 << 20


@pytest.mark.parametrize(
    ("available_kib", "used"),
    [(100 * 1024, 50 * MIB), (2 * BYTES_MAX // 1024, BYTES_MAX), (4 * BYTES_MAX // 1024, BYTES_MAX)],
)
def test_half_of_the_available_memory_is_used_up_to_a_bound(available_kib: int, used: int) -> None:
    assert share_of(f"MemTotal: 99 kB\nMemAvailable:  {available_kib} kB\nBuffers: 1 kB\n") == used


def test_nothing_is_used_where_the_system_does_not_say_what_is_available() -> None:
    assert share_of("MemTotal: 99 kB\n") == 0
