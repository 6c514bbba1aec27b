"""
Requests that come again with other numbers in them.

A consumer commits the same partitions of the same group every few seconds: from one request to the next the offsets change and
nothing else does. To read such a request anew, to check it anew and to build the same answer anew is most of what a commit of
many partitions costs. So a connection remembers a request that it has met twice, and where in its bytes the numbers stand; the
next one is compared with it as a whole, and is those numbers. Whoever handles it keeps with the pattern what follows from the
rest. A request that is not written as we would write it (unknown tagged fields, bytes behind the end) has no pattern.
"""

from collections.abc import Callable, Iterator
from itertools import repeat
from struct import Struct
from typing import Any, TypeAlias

from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import Reader, request_reader

BODY_BYTES_MAX = 8_192
"""Longer requests are not remembered: a pattern takes some thirty times the bytes of its request."""
MEMORY_BYTES = 2 << 20
"""Requests that all connections of a server may remember together: 1,000 consumers of 100 partitions each."""
_NUMBER_BYTES = 8
_NUMBER = b"\xff" * _NUMBER_BYTES
"""Where one stands, in the difference between a request with zeros and the same with minus ones."""
_HEADER_BYTES = 14
"""Size, API key and version, correlation id, null client id; an empty section of tagged fields may follow."""

WithNumbers: TypeAlias = Callable[[Any, Iterator[int]], Any]
"""A request like the given one with these numbers (int64) where they change, in the order in which they are written."""


class Pattern:
    """
    A request, and where in its bytes numbers stand.

    Attributes:
        request: as it was read when the pattern was made.
        body_bytes: the size of each.
        memo: what its handler keeps of it from one request to the next.
    """

    __slots__ = ("_around", "_fixed", "_kept", "_numbers", "body_bytes", "memo", "request", "with_numbers")

    def __init__(self, request: Any, body: bytes, positions: list[int], with_numbers: WithNumbers) -> None:
        self.request = request
        self.with_numbers = with_numbers
        self.memo: Any = None
        self.body_bytes = len(body)
        kept = bytearray(b"\xff" * len(body))
        form, end = ">", 0
        for position in positions:
            kept[position : position + _NUMBER_BYTES] = bytes(_NUMBER_BYTES)
            form += f"{position - end}xq"
            end = position + _NUMBER_BYTES
        # One operation on two large integers compares all bytes that do not change.
        self._kept = int.from_bytes(kept, "little")
        self._fixed = int.from_bytes(body, "little") & self._kept
        self._numbers = Struct(form).unpack_from
        self._around = (body[: positions[0]], body[end:]) if len(positions) == 1 else None

    def numbers_of(self, frame: bytes, start: int) -> tuple[int, ...] | None:
        """The numbers of a request whose body begins there; None when it is not of this pattern."""
        if len(frame) - start != self.body_bytes or int.from_bytes(frame[start:], "little") & self._kept != self._fixed:
            return None
        return self._numbers(frame, start)


class Repeated:
    """A request of a known pattern."""

    __slots__ = ("numbers", "pattern")

    def __init__(self, pattern: Pattern, numbers: tuple[int, ...]) -> None:
        self.pattern = pattern
        self.numbers = numbers

    def unfold(self) -> Any:
        """The request as a shape of `messages`."""
        return self.pattern.with_numbers(self.pattern.request, iter(self.numbers))


class Met:
    """A request that may become a pattern when it comes again."""

    __slots__ = ("body", "misses")

    def __init__(self, body: bytes, misses: int) -> None:
        self.body = body
        self.misses = misses
        """How often what came next was something else."""


class Memory:
    """What the connections of one server may remember together."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self.bytes_left = bytes_max


class Remembered:
    """What one connection has sent, by the version and first field of the request: its group."""

    __slots__ = ("_bytes", "_memory", "requests")

    def __init__(self, memory: Memory) -> None:
        self.requests: dict[bytes, Pattern | Met] = {}
        self._memory = memory
        self._bytes = 0

    def add(self, key: bytes, body: bytes) -> None:
        """Remember one of a new key, unless the server's memory is full of what others remember."""
        if self._memory.bytes_left < len(body):
            self.forget()
        if self._memory.bytes_left >= len(body):
            self.requests[key] = Met(body, 0)
            self.resize(len(body))

    def resize(self, by_bytes: int) -> None:
        """What is remembered under a key is another now."""
        self._bytes += by_bytes
        self._memory.bytes_left -= by_bytes

    def forget(self) -> None:
        """Everything; to be called when the connection is lost."""
        self.requests.clear()
        self.resize(-self._bytes)


class RepeatReader:
    """
    Reads requests of one API and version whose first field is a string, and recognises those that come again.

    Raises:
        WireError: as `kohort.wire.readers.request_reader`.
    """

    def __init__(self, api_key: int, version: int, with_numbers: WithNumbers) -> None:
        self._read: Reader = request_reader(api_key, version)
        self._with_numbers = with_numbers
        self._encode = request_encoder(api_key, version)
        self._version = bytes([version])
        self._is_flexible = API_KEYS[api_key].request_header_version(version) == 2

    def read(self, frame: bytes, start: int, remembered: Remembered) -> Any:
        """A `Repeated`, or the request as it is."""
        end = start + 2
        if len(frame) > end:
            end = start + frame[start] if self._is_flexible else end + frame[start + 1]
        key = self._version + frame[start:end]
        found = remembered.requests.get(key)
        if type(found) is Pattern:
            numbers = found.numbers_of(frame, start)
            if numbers is not None:
                return Repeated(found, numbers)
        request = self._read(frame, start)
        if len(frame) - start <= BODY_BYTES_MAX:
            self._remember(key, request, frame[start:], found, remembered)
        return request

    def _remember(
        self, key: bytes, request: Any, body: bytes, found: Pattern | Met | None, remembered: Remembered
    ) -> None:
        if found is None:
            remembered.add(key, body)
            return
        if isinstance(found, Pattern):
            remembered.requests[key] = Met(body, 0)
            remembered.resize(len(body) - found.body_bytes)
            return
        # Every miss makes the next attempt come later: who never repeats itself is hardly looked at.
        if len(found.body) == len(body) and not found.misses & (found.misses + 1):
            pattern = self._pattern(request, body)
            if pattern is not None and pattern.numbers_of(found.body, 0) is not None:
                remembered.requests[key] = pattern
                return
        remembered.resize(len(body) - len(found.body))
        found.body = body
        found.misses += 1

    def _pattern(self, request: Any, body: bytes) -> Pattern | None:
        """Written with two different numbers, the request shows where they stand."""
        zeros, ones = (self._body(self._with_numbers(request, repeat(number))) for number in (0, -1))
        if len(zeros) != len(body):
            return None
        difference = int.from_bytes(zeros, "little") ^ int.from_bytes(ones, "little")
        different = difference.to_bytes(len(body), "little")
        positions: list[int] = []
        position = different.find(_NUMBER)
        while position >= 0:
            positions.append(position)
            position = different.find(_NUMBER, position + _NUMBER_BYTES)
        pattern = Pattern(request, zeros, positions, self._with_numbers)
        return None if not positions or pattern.numbers_of(body, 0) is None else pattern

    def _body(self, request: Any) -> bytes:
        header_bytes = _HEADER_BYTES + self._is_flexible
        return self._encode(0, None, request)[header_bytes:]
