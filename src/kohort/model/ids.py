"""Identifiers that every room uses, their text forms, and the hash that maps a group to a partition."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from itertools import count
from typing import NamedTuple
from uuid import UUID

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
ANONYMOUS = "ANONYMOUS"
"""The name of the user of a connection without authentication. Source: Kafka KafkaPrincipal.ANONYMOUS."""
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


class TopicPartition(NamedTuple):
    """One partition of one topic, printed as Kafka's tools print it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_ZERO_UUID = UUID(int=0)


def uuid_text(uuid: UUID | None) -> str:
    """
    An id as Kafka prints it: URL-safe base64 without padding, 22 characters. None is the zero id.

    Source: Kafka Uuid.toString.
    """
    return urlsafe_b64encode((uuid or _ZERO_UUID).bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """
    The id that `uuid_text` prints so.

    Raises:
        ValueError: the text is not an id.
    """
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def java_string_hash(text: str) -> int:
    """
    The hash of Java's `String`: 32 bits, signed, over UTF-16 code units.

    Source: java.lang.String.hashCode.
    """
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def java_bucket(text: str) -> int:
    """The place of a text in the order in which a Java HashMap of sixteen buckets lists its keys; ties of votes go by it."""
    value = java_string_hash(text) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15


_KNOWN_KEY_LENGTH_MAX = 256
_LONG_KEYS_MAX = 256
"""How many longer keys are remembered at most; then all are forgotten."""
_long_keys = count()


@lru_cache(maxsize=65_536)
def coordinator_partition(key: str, partitions: int) -> int:
    """
    The partition of an internal topic that holds a group, a transactional id or a share key.

    The absolute value of the hash and not the masked sign; the smallest integer, which has no absolute value, maps to 0.

    Source: Kafka Utils.abs, GroupCoordinatorService.partitionFor.
    """
    if len(key) > _KNOWN_KEY_LENGTH_MAX and next(_long_keys) % _LONG_KEYS_MAX == 0:
        # 65 536 keys of 32 kB would take two gigabytes.
        coordinator_partition.cache_clear()
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
