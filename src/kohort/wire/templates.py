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
from typing import Any, Final, TypeAlias

from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import Reader, request_reader

BODY_BYTES_MAX: Final = 8_192
"""Longer requests are not remembered."""
MEMORY_BYTES: Final = 128 << 20
"""What all connections of a server may remember together: 500 consumers of 100 partitions each, or 4,000 of ten."""
MET_OVERHEAD_BYTES: Final = 512
"""What a request takes that was met once, beside its bytes."""
PATTERN_OVERHEAD_BYTES: Final = 4_096
PATTERN_FACTOR: Final = 128
"""
What a pattern takes, with what its handler keeps with it: so much, and so much for each byte of its request. That is an upper
bound, found by measuring; whoever keeps something with a pattern sees to it that it stays one.
"""
_NUMBER_BYTES: Final = 8
_NUMBER: Final = b"\xff" * _NUMBER_BYTES
"""Where one stands, in the difference between a request with zeros and the same with minus ones."""
_HEADER_BYTES: Final = 14
"""Size, API key and version, correlation id, null client id; an empty section of tagged fields may follow."""

WithNumbers: TypeAlias = Callable[[Any, Iterator[int]], Any]
"""A request like the given one with these numbers (int64) where they change, in the order in which they are written."""


class RequestTemplate:
    """
    A request, and where in its bytes numbers stand.

    Attributes:
        request: as it was read when the pattern was made.
        body_bytes: the size of each.
        memo: what its handler keeps of it from one request to the next; None until one was recognised.
        misses: of the request that it was made of.
    """

    __slots__ = ("_fixed", "_kept", "_numbers", "body_bytes", "memo", "misses", "request", "with_numbers")

    def __init__(self, request: Any, body: bytes, positions: list[int], with_numbers: WithNumbers) -> None:
        self.request = request
        self.with_numbers = with_numbers
        self.memo: Any = None
        self.misses = 0
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

    @property
    def held_bytes(self) -> int:
        """At most what it takes, with its memo."""
        return PATTERN_OVERHEAD_BYTES + PATTERN_FACTOR * self.body_bytes

    def numbers_of(self, frame: bytes, start: int) -> tuple[int, ...] | None:
        """The numbers of a request whose body begins there; None when it is not of this pattern."""
        if len(frame) - start != self.body_bytes or int.from_bytes(frame[start:], "little") & self._kept != self._fixed:
            return None
        return self._numbers(frame, start)


class TemplateMatch:
    """A request of a known pattern."""

    __slots__ = ("numbers", "pattern")

    def __init__(self, pattern: RequestTemplate, numbers: tuple[int, ...]) -> None:
        self.pattern = pattern
        self.numbers = numbers

    def unfold(self) -> Any:
        """The request as an instance of its message class."""
        return self.pattern.with_numbers(self.pattern.request, iter(self.numbers))


class TemplateCandidate:
    """A request that may become a pattern when it comes again."""

    __slots__ = ("body", "misses")

    def __init__(self, body: bytes, misses: int) -> None:
        self.body = body
        self.misses = misses
        """How often what came next was something else."""

    @property
    def held_bytes(self) -> int:
        """At most what it takes."""
        return MET_OVERHEAD_BYTES + len(self.body)


class Memory:
    """How much the connections of one server may remember together."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self.bytes_left = bytes_max


class TemplateCache:
    """What one connection has sent, by the version and first field of the request: its group."""

    __slots__ = ("_bytes", "_memory", "requests")

    def __init__(self, memory: Memory) -> None:
        self.requests: dict[bytes, RequestTemplate | TemplateCandidate] = {}
        self._memory = memory
        self._bytes = 0

    def put(self, key: bytes, request: RequestTemplate | TemplateCandidate) -> bool:
        """Remember it in place of what is known by that key; False where the server's memory is full."""
        known = self.requests.get(key)
        more_bytes = request.held_bytes - (0 if known is None else known.held_bytes)
        if more_bytes > self._memory.bytes_left:
            return False
        self.requests[key] = request
        self._take(more_bytes)
        return True

    def add(self, key: bytes, request: TemplateCandidate) -> None:
        """Remember one of a new key, if need be in place of everything else of this connection."""
        if not self.put(key, request):
            self.forget()
            self.put(key, request)

    def forget(self) -> None:
        """Everything; to be called when the connection is lost."""
        self.requests.clear()
        self._take(-self._bytes)

    def _take(self, more_bytes: int) -> None:
        self._bytes += more_bytes
        self._memory.bytes_left -= more_bytes


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

    def read(self, frame: bytes, start: int, remembered: TemplateCache) -> Any:
        """A `TemplateMatch`, or the request as it is."""
        end = start + 2
        if len(frame) > end:
            end = start + frame[start] if self._is_flexible else end + frame[start + 1]
        key = self._version + frame[start:end]
        found = remembered.requests.get(key)
        if type(found) is RequestTemplate:
            numbers = found.numbers_of(frame, start)
            if numbers is not None:
                return TemplateMatch(found, numbers)
        request = self._read(frame, start)
        if len(frame) - start <= BODY_BYTES_MAX:
            self._remember(key, request, frame[start:], found, remembered)
        return request

    def _remember(
        self,
        key: bytes,
        request: Any,
        body: bytes,
        found: RequestTemplate | TemplateCandidate | None,
        remembered: TemplateCache,
    ) -> None:
        if found is None:
            remembered.add(key, TemplateCandidate(body, 0))
            return
        # Every miss makes the next attempt come later: who never repeats itself is hardly looked at.
        if isinstance(found, RequestTemplate):
            remembered.put(key, TemplateCandidate(body, found.misses + 1 if found.memo is None else 0))
            return
        if len(found.body) == len(body) and not found.misses & (found.misses + 1):
            pattern = self._pattern(request, body)
            if pattern is not None and pattern.numbers_of(found.body, 0) is not None:
                pattern.misses = found.misses
                if remembered.put(key, pattern):
                    return
        remembered.put(key, TemplateCandidate(body, found.misses + 1))

    def _pattern(self, request: Any, body: bytes) -> RequestTemplate | None:
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
        pattern = RequestTemplate(request, zeros, positions, self._with_numbers)
        return None if not positions or pattern.numbers_of(body, 0) is None else pattern

    def _body(self, request: Any) -> bytes:
        header_bytes = _HEADER_BYTES + self._is_flexible
        return self._encode(0, None, request)[header_bytes:]
