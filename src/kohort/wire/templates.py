"""
Fast path for requests that a connection repeats with other numbers.

A consumer commits the same partitions every few seconds: from one request to the next only the offsets change. Decoding and
checking such a request and building its response are most of the cost of a commit of many partitions. Therefore a connection
keeps a request that it has received twice as a template: its bytes, and the positions of the numbers. The next request is
compared with it as a whole, and yields a `TemplateMatch`: the template and the new numbers. The handler keeps with the template
what it has computed from the rest of the request.

A handler with a method `with_numbers` (see `WithNumbers`) gets matches in place of requests, and may answer with a
`PreparedResponse`; `route_repeats` gives the reader and the encoder for it. No other module needs to know about repeated
requests. A request in another encoding than ours (unknown tagged fields, bytes after the
end) gets no template.

A short request is found by its bytes, before its frame is cut and its header read (`TemplateCache.frames`): one without
numbers, as a heartbeat, by all of them but the correlation id, and another one by those up to its first number.
"""

from collections.abc import Callable, Iterator
from itertools import repeat
from struct import Struct
from typing import Any, Final, TypeAlias

from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import ResponseEncoder, request_encoder
from kohort.wire.readers import Reader, request_reader
from kohort.wire.schema import message

BODY_BYTES_MAX: Final = 8_192
"""Longer requests get no template."""
MEMORY_BYTES: Final = 128 << 20
"""The memory for the templates of all connections of a server: 500 consumers of 100 partitions each, or 4,000 of ten."""
CANDIDATE_OVERHEAD_BYTES: Final = 512
"""The memory of a candidate, beside its bytes."""
TEMPLATE_OVERHEAD_BYTES: Final = 4_096
TEMPLATE_FACTOR: Final = 128
"""
The memory of a template with the memo of its handler, for each byte of the request, beside `TEMPLATE_OVERHEAD_BYTES`. This is
an upper bound, found by measuring; a handler that keeps a memo must stay below it.
"""
FRAME_BYTES_MAX: Final = 1_024
"""A longer request is never found by its bytes."""
FRAMES_MAX: Final = 256
"""How many requests of a connection are found by their bytes: a client may send one template with many client ids."""
FRAME_OVERHEAD_BYTES: Final = 512
"""The memory of a request that is found by its bytes, beside them."""
FEW_NUMBERS: Final = 2
"""Up to so many numbers, the bytes between them are compared piece by piece; beyond, all at once as two large integers."""
_NUMBER_BYTES: Final = 8
_NUMBER: Final = b"\xff" * _NUMBER_BYTES
"""The bytes of a number in the difference between a request with zeros and the same request with minus ones."""
_HEADER_BYTES: Final = 14
"""Size, API key and version, correlation id, null client id; an empty section of tagged fields may follow."""

WithNumbers: TypeAlias = Callable[[Any, Iterator[int]], Any]
"""Copies a request with these numbers (int64) in place of its own, in the order in which they are encoded."""


class PreparedResponse:
    """A response that is encoded once and sent many times."""

    __slots__ = ("_rest", "_size")

    def __init__(self, frame: bytes) -> None:
        self._size = frame[:4]
        self._rest = frame[8:]

    def frame(self, correlation_id: int) -> bytes:
        """The complete frame with this correlation id."""
        return self._size + correlation_id.to_bytes(4, "big", signed=True) + self._rest


def prepared_or(encode: ResponseEncoder) -> ResponseEncoder:
    """An encoder that also takes prepared responses."""

    def encode_any(correlation_id: int, response: Any) -> bytes:
        if type(response) is PreparedResponse:
            return response.frame(correlation_id)
        return encode(correlation_id, response)

    return encode_any


class RequestTemplate:
    """
    The bytes of a repeated request and the positions of the numbers in them.

    Attributes:
        request: the request from which the template was made.
        body_bytes: the size of every matching request.
        constant_bytes: how many bytes come before the first number.
        memo: kept by the handler; None until the first match was handled.
        has_numbers: whether matches differ at all.
        allowed_at: the version of the access rules that allow the whole request to the user of the connection; -1 if none is
            known.
        misses: of the candidate that it was made from.
    """

    __slots__ = (
        "_fixed",
        "_kept",
        "_later",
        "_numbers",
        "_pieces",
        "allowed_at",
        "body_bytes",
        "constant_bytes",
        "has_numbers",
        "memo",
        "misses",
        "request",
        "with_numbers",
    )

    def __init__(self, request: Any, body: bytes, positions: list[int], with_numbers: WithNumbers) -> None:
        self.request = request
        self.with_numbers = with_numbers
        self.memo: Any = None
        self.allowed_at = -1
        self.misses = 0
        self.body_bytes = len(body)
        self.has_numbers = bool(positions)
        self.constant_bytes = positions[0] if positions else len(body)
        kept = bytearray(b"\xff" * len(body))
        form, end = ">", 0
        pieces: list[tuple[int, bytes]] = []
        for position in positions:
            kept[position : position + _NUMBER_BYTES] = bytes(_NUMBER_BYTES)
            form += f"{position - end}xq"
            pieces.append((end, body[end:position]))
            end = position + _NUMBER_BYTES
        self._pieces = [*pieces, (end, body[end:])] if len(positions) <= FEW_NUMBERS else []
        """Offset and content of the bytes that do not change."""
        self._later = self._pieces[1:]
        """The pieces behind the first number."""
        # One operation on two large integers compares all bytes that do not change.
        self._kept = int.from_bytes(kept, "little")
        self._fixed = int.from_bytes(body, "little") & self._kept
        self._numbers = Struct(form).unpack_from

    @property
    def held_bytes(self) -> int:
        """An upper bound of the memory of the template and its memo."""
        return TEMPLATE_OVERHEAD_BYTES + TEMPLATE_FACTOR * self.body_bytes

    @property
    def memo_bytes_max(self) -> int:
        """The part of `held_bytes` that the memo may use: an eighth of it, and 2 KB, are for the request."""
        return TEMPLATE_OVERHEAD_BYTES // 2 + TEMPLATE_FACTOR * 7 // 8 * self.body_bytes

    def numbers_of(self, frame: bytes, start: int) -> tuple[int, ...] | None:
        """The numbers of the request whose body begins at `start`; None if it does not match."""
        if len(frame) - start != self.body_bytes:
            return None
        return self._compared(frame, start, self._pieces)

    def numbers_behind(self, frame: bytes, start: int) -> tuple[int, ...] | None:
        """As `numbers_of`, for a request of the right size whose bytes before the first number match."""
        return self._compared(frame, start, self._later)

    def _compared(self, frame: bytes, start: int, pieces: list[tuple[int, bytes]]) -> tuple[int, ...] | None:
        for offset, piece in pieces:
            begin = start + offset
            if frame[begin : begin + len(piece)] != piece:
                return None
        if not self._pieces and int.from_bytes(frame[start:], "little") & self._kept != self._fixed:
            return None
        return self._numbers(frame, start)


class TemplateMatch:
    """A request that matches a template."""

    __slots__ = ("numbers", "template")

    def __init__(self, template: RequestTemplate, numbers: tuple[int, ...]) -> None:
        self.template = template
        self.numbers = numbers

    def unfold(self) -> Any:
        """The request as a message class."""
        return self.template.with_numbers(self.template.request, iter(self.numbers))


class TemplateCandidate:
    """
    A request seen once on a connection; it becomes a template when it is repeated.

    Attributes:
        misses: how often another request came next.
    """

    __slots__ = ("body", "misses")

    def __init__(self, body: bytes, misses: int) -> None:
        self.body = body
        self.misses = misses

    @property
    def held_bytes(self) -> int:
        """An upper bound of the memory of the candidate."""
        return CANDIDATE_OVERHEAD_BYTES + len(self.body)


class Memory:
    """The memory that the template caches of one server share."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self.bytes_left = bytes_max


class KnownFrame:
    """
    A request that a connection repeats, with its header.

    Attributes:
        head: size, API key and version.
        route: what the connection has found by API key and version.
    """

    __slots__ = ("_body", "_match", "_template", "client_id", "head", "route")

    def __init__(self, head: bytes, body: int, route: Any, client_id: str, match: TemplateMatch) -> None:
        self.head: Final = head
        self.route: Final = route
        self.client_id: Final = client_id
        self._body: Final = body
        """Where the body begins behind the size of the frame."""
        self._template: Final = match.template
        self._match: Final = None if match.template.has_numbers else match

    def match(self, data: bytes) -> TemplateMatch | None:
        """The request in `data`, for its handler; None if it is another one behind its first number."""
        if self._match is not None:
            return self._match
        numbers = self._template.numbers_behind(data, self._body)
        return None if numbers is None else TemplateMatch(self._template, numbers)


class TemplateCache:
    """
    The templates and candidates of one connection, by API, version and first field of the request: the group id.

    Attributes:
        frames: short requests, by what follows the correlation id up to the first number. Their templates are in the cache.
    """

    __slots__ = ("_bytes", "_ends", "_frame_bytes", "_memory", "frames", "requests")

    def __init__(self, memory: Memory) -> None:
        self.requests: dict[bytes, RequestTemplate | TemplateCandidate] = {}
        self.frames: dict[bytes, KnownFrame] = {}
        self._ends: dict[int, int] = {}
        """By the size of a frame: where the bytes end by which it is found. Both count the size before it."""
        self._frame_bytes = 0
        """The memory of `frames`."""
        self._memory = memory
        self._bytes = 0

    def put(self, key: bytes, request: RequestTemplate | TemplateCandidate) -> bool:
        """Replace the entry of this key; False if the server's memory is exhausted."""
        known = self.requests.get(key)
        more_bytes = request.held_bytes - (0 if known is None else known.held_bytes)
        if more_bytes > self._memory.bytes_left:
            return False
        self._forget_frames()
        self.requests[key] = request
        self._take(more_bytes)
        return True

    def add(self, key: bytes, request: TemplateCandidate) -> None:
        """Add an entry of a new key; if memory is exhausted, drop all other entries of this connection."""
        if not self.put(key, request):
            self.forget()
            self.put(key, request)

    def know(self, frame: bytes, body: int, route: Any, client_id: str, match: TemplateMatch) -> None:
        """
        Find the next request with the same bytes by them, if it is short.

        Of requests of one size only those whose first number is at the same place are found.

        Args:
            body: where the body begins.
        """
        end = body + match.template.constant_bytes
        key = frame[8:end]
        if len(frame) > FRAME_BYTES_MAX or key in self.frames:
            return
        more_bytes = FRAME_OVERHEAD_BYTES + len(frame)
        if len(self.frames) >= FRAMES_MAX:
            self._forget_frames()
        if more_bytes > self._memory.bytes_left or self._ends.setdefault(len(frame) + 4, end + 4) != end + 4:
            return
        self._take(more_bytes)
        self._frame_bytes += more_bytes
        head = len(frame).to_bytes(4, "big") + frame[:4]
        self.frames[key] = KnownFrame(head, body + 4, route, client_id, match)

    def known(self, data: bytes) -> KnownFrame | None:
        """The known request whose frame, with its size, is `data`, as far as its first number."""
        end = self._ends.get(len(data))
        if end is None:
            return None
        found = self.frames.get(data[12:end])
        return None if found is None or data[:8] != found.head else found

    def forget(self) -> None:
        """Drop all entries; call this when the connection is lost."""
        self._forget_frames()
        self.requests.clear()
        self._take(-self._bytes)

    def _forget_frames(self) -> None:
        if self.frames:
            self.frames.clear()
            self._ends.clear()
            self._take(-self._frame_bytes)
            self._frame_bytes = 0

    def _take(self, more_bytes: int) -> None:
        self._bytes += more_bytes
        self._memory.bytes_left -= more_bytes


class DecodedOnce:
    """
    The handler of an API whose clients repeat whole requests, such as tools that watch the lag of a group.

    Args:
        handler: takes the decoded request. If it has a method `repeated`, that takes the template of a repeated one, and may
            keep a memo with it, and answer with a `PreparedResponse`.
    """

    __slots__ = ("_handler", "_repeated")

    def __init__(self, handler: Callable[[Any, Any, Any], Any]) -> None:
        self._handler = handler
        self._repeated: Callable[[RequestTemplate, Any, Any], Any] | None = getattr(handler, "repeated", None)

    def __call__(self, request: Any, context: Any, reply: Any, /) -> Any:
        if isinstance(request, TemplateMatch):
            if self._repeated is not None:
                return self._repeated(request.template, context, reply)
            request = request.template.request
        return self._handler(request, context, reply)

    def with_numbers(self, request: Any, _numbers: Iterator[int], /) -> Any:
        """The request itself: it has no fields that templates vary."""
        return request


class Repeatable:
    """
    A handler of an API with what `DecodedOnce` asks for.

    Args:
        handler: takes the decoded request.
        repeated: takes its template instead.
    """

    __slots__ = ("_handler", "repeated")

    def __init__(
        self, handler: Callable[[Any, Any, Any], Any], repeated: Callable[[RequestTemplate, Any, Any], Any]
    ) -> None:
        self._handler = handler
        self.repeated = repeated

    def __call__(self, request: Any, context: Any, reply: Any, /) -> Any:
        return self._handler(request, context, reply)


RepeatRead: TypeAlias = Callable[[bytes, int, TemplateCache], Any]
"""(frame, start of the body, cache of the connection) to a `TemplateMatch` or the decoded request."""


def route_repeats(
    api_key: int, version: int, handler: object, encode: ResponseEncoder
) -> tuple[RepeatRead | None, ResponseEncoder]:
    """The reader of an API whose handler takes matches, None for any other handler; and the encoder of its responses."""
    with_numbers: WithNumbers | None = getattr(handler, "with_numbers", None)
    if with_numbers is None:
        return None, encode
    return RepeatReader(api_key, version, with_numbers).read, prepared_or(encode)


class RepeatReader:
    """
    Reads requests of one API and version whose first field is a string, or an array of structs that begin with a string, and
    recognises repeated ones.

    Raises:
        WireError: as `kohort.wire.readers.request_reader`.
    """

    def __init__(self, api_key: int, version: int, with_numbers: WithNumbers) -> None:
        self._read: Reader = request_reader(api_key, version)
        self._with_numbers = with_numbers
        self._encode = request_encoder(api_key, version)
        self._route = bytes([api_key, version])
        api = API_KEYS[api_key]
        self._is_flexible = api.request_header_version(version) == 2
        schema = message(f"{api.api_name}Request")
        is_array = bool(schema.fields(schema.name, version)[0].array)
        self._skipped_bytes = (1 if self._is_flexible else 4) if is_array else 0
        """The count of elements before the first string."""

    def read(self, frame: bytes, start: int, cache: TemplateCache) -> Any:
        """A `TemplateMatch`, or the decoded request."""
        begin = start + self._skipped_bytes
        end = begin + 2
        if len(frame) > end:
            end = begin + frame[begin] if self._is_flexible else end + frame[begin + 1]
        key = self._route + frame[begin:end]
        found = cache.requests.get(key)
        if type(found) is RequestTemplate:
            numbers = found.numbers_of(frame, start)
            if numbers is not None:
                return TemplateMatch(found, numbers)
        request = self._read(frame, start)
        if len(frame) - start <= BODY_BYTES_MAX:
            self._remember(key, request, frame[start:], found, cache)
        return request

    def _remember(
        self,
        key: bytes,
        request: Any,
        body: bytes,
        found: RequestTemplate | TemplateCandidate | None,
        cache: TemplateCache,
    ) -> None:
        if found is None:
            cache.add(key, TemplateCandidate(body, 0))
            return
        # Every miss delays the next attempt: a client that never repeats a request costs hardly anything.
        if isinstance(found, RequestTemplate):
            cache.put(key, TemplateCandidate(body, found.misses + 1 if found.memo is None else 0))
            return
        if len(found.body) == len(body) and not found.misses & (found.misses + 1):
            template = self._template(request, body)
            if template is not None and template.numbers_of(found.body, 0) is not None:
                template.misses = found.misses
                if cache.put(key, template):
                    return
        cache.put(key, TemplateCandidate(body, found.misses + 1))

    def _template(self, request: Any, body: bytes) -> RequestTemplate | None:
        """The template of a request: encoded with two different numbers, it shows their positions."""
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
        template = RequestTemplate(request, zeros, positions, self._with_numbers)
        return None if template.numbers_of(body, 0) is None else template

    def _body(self, request: Any) -> bytes:
        header_bytes = _HEADER_BYTES + self._is_flexible
        return self._encode(0, None, request)[header_bytes:]
