"""The iteration order of Java's hash tables. Expected values are from OpenJDK 17, by jshell."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.assignors.java_order import (
    bucket_order,
    copied_capacity,
    grown_capacity,
    partition_order,
    string_hash,
    uuid_hash,
)
from kohort.model.ids import java_string_hash


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("", 0),
        ("a", 97),
        ("m1", 3428),
        ("consumer-1", -166239206),
        ("0fd1b1a4-8e1d-4a6c-9c1e-2f5f0d7f9b11", 1660288754),
        ("zzzzzzzzzzzzzzzzzzzz", 1718487168),
        ("\xe9\u20ac", 15587),
        ("\U0001f600", 1772899),
    ],
)
def test_string_hash(text: str, java: int) -> None:
    assert string_hash(text) == java & 0xFFFF_FFFF


@given(st.one_of(st.text(), st.text(st.characters(codec="ascii"), max_size=40)))
def test_the_fast_string_hash_equals_the_plain_one(text: str) -> None:
    assert string_hash(text) == java_string_hash(text) & 0xFFFF_FFFF


def test_uuid_hash() -> None:
    """Uuid.hashCode of Kafka's clients."""
    assert uuid_hash(UUID(hex="00000000000000000000000000000001")) == 1 & 0xFFFF_FFFF
    assert uuid_hash(UUID(hex="fedcba98765432100123456789abcdef")) == 0 & 0xFFFF_FFFF
    assert uuid_hash(UUID(hex="80000000000000000000000000000000")) == -2147483648 & 0xFFFF_FFFF
    assert uuid_hash(UUID(hex="0fd1b1a48e1d4a6c9c1e2f5f0d7f9b11")) == 279793542 & 0xFFFF_FFFF


def test_capacity() -> None:
    """The threshold is three quarters. A set that is made from a collection has room for one more."""
    assert [grown_capacity(size) for size in (0, 12, 13, 24, 25, 10_000)] == [16, 16, 32, 32, 64, 16_384]
    assert [copied_capacity(size) for size in (0, 11, 12, 23, 24, 10_000)] == [16, 16, 32, 32, 64, 16_384]


def test_bucket_order() -> None:
    """Bits 16 to 31 count too. Elements of the same bucket are in the order given."""
    assert bucket_order([17, 3, 1, 16 << 16, 5 << 16], 16) == [3, 0, 2, 1, 4]


@pytest.mark.parametrize(
    ("partitions", "java"),
    [
        (tuple(range(7)), [0, 1, 2, 3, 4, 5, 6]),
        (tuple(range(20, 40)), [32, 33, 34, 35, 36, 37, 38, 39, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]),
        (
            tuple(range(90, 110)),
            [96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 90, 91, 92, 93, 94, 95],
        ),
        (
            tuple(range(65530, 65545)),
            [65537, 65536, 65539, 65538, 65541, 65540, 65543, 65542, 65544, 65530, 65531, 65532, 65533, 65534, 65535],
        ),
    ],
)
def test_partition_order(partitions: tuple[int, ...], java: list[int]) -> None:
    assert list(partition_order(partitions)) == java
