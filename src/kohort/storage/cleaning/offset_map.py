"""
The newest offset of each key in the dirty part of a log, in bounded memory.

There are two implementations. `DictMap` keeps the keys and needs no library; it is for small logs. `HashMap` keeps 24 bytes a
slot, 16 of hash and 8 of offset, like Kafka's, in numpy arrays, and handles thousands of keys per call. It hashes a key twice
with Python's hash of bytes, the second time with a prefix: SipHash with a secret of the process, so that a client cannot choose
colliding keys.

Source: Kafka OffsetMap, SkimpyOffsetMap, Cleaner.buildOffsetMap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLOT_BYTES = 24
DICT_ENTRY_BYTES = 256
"""The memory of a key, its offset and their dictionary slots, while the dictionary grows."""
_KEY_BYTES_MAX = 64
"""A longer key is replaced by its digest, which has one byte more."""
DICT_KEYS_MAX = 100_000
"""Above this number of keys numpy is imported."""
NO_OFFSET = -1


class DictMap:
    """
    A dictionary of keys; long keys are replaced by their digests. Offsets are added in rising order.

    Attributes:
        keys_max: the capacity in keys.
    """

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        return len(self._offsets)

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Add keys in order until the map is full; returns how many were added."""
        known, keys = self._offsets, _shortened(keys)
        if len(known) + len(keys) <= self.keys_max:
            known.update(zip(keys, offsets, strict=True))
            return len(keys)
        for taken, key in enumerate(keys):
            if len(known) >= self.keys_max and key not in known:
                return taken
            known[key] = offsets[taken]
        return len(keys)

    def get(self, keys: Sequence[bytes]) -> list[int]:
        """The newest offset of each key; -1 for a key that is not in the map."""
        find = self._offsets.get
        return [find(key, NO_OFFSET) for key in _shortened(keys)]


def _shortened(keys: Sequence[bytes]) -> Sequence[bytes]:
    if max(map(len, keys), default=0) <= _KEY_BYTES_MAX:
        return keys
    from hashlib import blake2b  # imported late: with it come OpenSSL's hashes

    return [key if len(key) <= _KEY_BYTES_MAX else blake2b(key).digest() + b"\0" for key in keys]


class HashMap:
    """
    As `DictMap`, by open addressing over three arrays: two halves of a hash, and offsets plus one (0: free).

    Args:
        slots: a prime number, so that probing visits every slot.
        keys_max: less than `slots`, so that probing ends at a free slot.
    """

    def __init__(self, slots: int, keys_max: int) -> None:
        import numpy as np

        assert keys_max < slots
        self._np = np
        self.keys_max = keys_max
        self.count = 0
        self._slots = slots
        self._first: NDArray[np.int64] = np.zeros(slots, np.int64)
        self._second: NDArray[np.int64] = np.zeros(slots, np.int64)
        self._offsets: NDArray[np.int64] = np.zeros(slots, np.int64)

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        taken = len(keys)
        if self.count + taken > self.keys_max:
            taken = self._fitting(keys)
            keys, offsets = keys[:taken], offsets[:taken]
        if not taken:
            return 0
        np = self._np
        first, second = self._hash(keys)
        values = np.fromiter(offsets, np.int64, taken) + 1
        slot, step = self._probe(first, second)
        while len(slot):
            # If several keys claim a free slot, the last one gets it in all arrays; of equal keys the last one is newest.
            is_free = self._offsets[slot] == 0
            claims = slot[is_free]
            self._first[claims], self._second[claims] = first[is_free], second[is_free]
            is_home = (self._first[slot] == first) & (self._second[slot] == second)
            homes, offsets_now = slot[is_home], values[is_home]
            is_new = self._offsets[homes] == 0
            self._offsets[homes] = offsets_now
            # Offsets differ, so each new slot holds the offset of exactly one of its claimants.
            self.count += int(np.count_nonzero(self._offsets[homes[is_new]] == offsets_now[is_new]))
            away = ~is_home
            first, second, values, step = first[away], second[away], values[away], step[away]
            slot = (slot[away] + step) % self._slots
        return taken

    def _fitting(self, keys: Sequence[bytes]) -> int:
        """The number of keys that fit: all before the first new key without room."""
        new: set[bytes] = set()
        room = self.keys_max - self.count
        for place, (key, offset) in enumerate(zip(keys, self.get(keys), strict=True)):
            if offset == NO_OFFSET and key not in new:
                if len(new) == room:
                    return place
                new.add(key)
        return len(keys)

    def get(self, keys: Sequence[bytes]) -> list[int]:
        np = self._np
        found = np.zeros(len(keys), np.int64)
        first, second = self._hash(keys)
        slot, step = self._probe(first, second)
        place = np.arange(len(keys))
        while len(slot):
            offsets = self._offsets[slot]
            is_home = (self._first[slot] == first) & (self._second[slot] == second) & (offsets != 0)
            found[place[is_home]] = offsets[is_home]
            away = ~is_home & (offsets != 0)
            place, first, second, step = place[away], first[away], second[away], step[away]
            slot = (slot[away] + step) % self._slots
        result: list[int] = (found - 1).tolist()
        return result

    def _hash(self, keys: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        np = self._np
        first = np.fromiter(map(hash, keys), np.int64, len(keys))
        return first, np.fromiter(map(hash, map(b"\x00".__add__, keys)), np.int64, len(keys))

    def _probe(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first slot of each key, and its step (double hashing); the number of slots is prime."""
        return first % self._slots, 1 + second % (self._slots - 1)


OffsetMap: TypeAlias = DictMap | HashMap


def make_offset_map(*, buffer_bytes: int, load_factor: float, records_max: int) -> OffsetMap:
    """
    An offset map with bounded memory.

    Args:
        buffer_bytes: log.cleaner.dedupe.buffer.size of one thread.
        load_factor: log.cleaner.io.buffer.load.factor, how full the slots may get.
        records_max: the largest possible number of records; the map is not made larger.
    """
    keys_max = max(int(buffer_bytes // SLOT_BYTES * load_factor), 1)
    dict_keys_max = max(buffer_bytes // DICT_ENTRY_BYTES, 1)
    if min(records_max, keys_max) <= min(DICT_KEYS_MAX, dict_keys_max):
        return DictMap(min(keys_max, dict_keys_max))
    try:
        slots = _prime_below(min(buffer_bytes // SLOT_BYTES, int(records_max / load_factor) + 100))
        return HashMap(slots, min(keys_max, max(int(slots * load_factor), 1), slots - 1))
    except ImportError:  # numpy comes with kohort[pipeline]; without it a pass takes fewer keys
        return DictMap(min(keys_max, dict_keys_max))


def _prime_below(number: int) -> int:
    """The largest prime that is not above `number`, at least 3."""
    candidate = max(number, 3)
    while any(candidate % divisor == 0 for divisor in range(2, int(candidate**0.5) + 1)):
        candidate -= 1
    return candidate
