"""
The iteration order of Java's hash tables.

Kafka's uniform assignor visits members, topics and partitions in the order of a HashMap or HashSet. Which member gives a
partition up, and which one receives it, depends on that order. The same order here makes the targets equal to those of Apache
Kafka, so that comparisons of both can test equality.

Elements of the same bucket are in the order in which the caller has them. Kafka's order depends on earlier targets there, so
targets may differ, and are as balanced and as sticky.

Source: java.util.HashMap and HashSet of OpenJDK 17; Kafka Uuid.hashCode.
"""

from collections.abc import Generator, Sequence
from typing import Final
from uuid import UUID

_MIN_CAPACITY: Final = 16
_MASK: Final = 0xFFFF_FFFF
MEMBERS_PER_STEP: Final = 500
"""About a millisecond on plain Python."""


def string_hash(text: str) -> int:
    """Java's String.hashCode, as an unsigned 32-bit integer; `kohort.model.ids.java_string_hash` is its plain twin."""
    value = 0
    if not text.isascii():
        units = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(units), 2):
            value = (value * 31 + (units[index] << 8) + units[index + 1]) & _MASK
        return value
    # Six characters at once: the compiled build calculates with machine integers up to 62 bits. This is three times as fast.
    ascii_text: bytes = text.encode()
    length = len(ascii_text)
    index = 0
    while index + 6 <= length:
        value = (
            value * 887503681
            + ascii_text[index] * 28629151
            + ascii_text[index + 1] * 923521
            + ascii_text[index + 2] * 29791
            + ascii_text[index + 3] * 961
            + ascii_text[index + 4] * 31
            + ascii_text[index + 5]
        ) & _MASK
        index += 6
    while index < length:
        value = (value * 31 + ascii_text[index]) & _MASK
        index += 1
    return value


def uuid_hash(uuid: UUID) -> int:
    """Kafka's Uuid.hashCode, as an unsigned 32-bit integer."""
    number: int = uuid.int
    halves = (number >> 64) ^ number
    return ((halves >> 32) ^ halves) & _MASK


def grown_capacity(size: int) -> int:
    """The capacity of a HashMap into which as many elements were put one by one."""
    capacity = _MIN_CAPACITY
    while 4 * size > 3 * capacity:
        capacity *= 2
    return capacity


def copied_capacity(size: int) -> int:
    """The capacity of a HashSet that was made from a collection of that size."""
    capacity = _MIN_CAPACITY
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return capacity


def bucket_order(hashes: Sequence[int], capacity: int) -> list[int]:
    """Return the indexes of the elements in the order of their buckets; within one bucket in the order given."""
    count = len(hashes)
    mask = capacity - 1
    # One integer of bucket and index for each element: integers are sorted faster than pairs or by a key function.
    keys = [((value ^ (value >> 16)) & mask) * count + index for index, value in enumerate(hashes)]
    keys.sort()
    return [key % count for key in keys]


def partition_order(partitions: tuple[int, ...]) -> Sequence[int]:
    """Return ascending partitions in the order of a HashSet that was made from their list."""
    capacity = copied_capacity(len(partitions))
    if not partitions or partitions[-1] < capacity:
        return partitions
    return [partitions[index] for index in bucket_order(partitions, capacity)]


def topic_order(topic_ids: Sequence[UUID], capacity: int) -> list[UUID]:
    """Return topic ids in the order of a hash table of that capacity."""
    return [topic_ids[index] for index in bucket_order([uuid_hash(topic_id) for topic_id in topic_ids], capacity)]


def member_order(member_ids: list[str]) -> Generator[None, None, list[str]]:
    """Return member ids in the order of a HashMap into which they were put one by one; in slices."""
    hashes: list[int] = []
    for start in range(0, len(member_ids), MEMBERS_PER_STEP):
        hashes += [string_hash(member_id) for member_id in member_ids[start : start + MEMBERS_PER_STEP]]
        yield
    order = bucket_order(hashes, grown_capacity(len(hashes)))
    yield
    return [member_ids[index] for index in order]
