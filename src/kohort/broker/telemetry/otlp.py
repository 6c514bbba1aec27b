"""
Reader of OpenTelemetry metrics in protobuf, as clients push them: gauges and sums. Other kinds of metrics are skipped.

Every length is checked, and the work is bounded by the number of fields: a hostile message costs no more than a usual one.
Texts are cut before they are decoded. Unknown fields are skipped, as protobuf asks.

Source: opentelemetry/proto/metrics/v1/metrics.proto (MetricsData), common.proto, resource.proto; the protobuf encoding.
"""

from collections.abc import Generator
from struct import Struct
from typing import Final, TypeAlias, TypeVar

import msgspec

from kohort.model.errors import CorruptError
from kohort.model.limits import TELEMETRY_ATTRIBUTES_MAX, TELEMETRY_FIELDS_MAX, TELEMETRY_TEXT_LENGTH_MAX

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")
_VARINT_BYTES_MAX: Final = 10
_STEP: Final = 1_000
"""Fields that are read between two yields."""
_CHARACTER_BYTES_MAX: Final = 4
T = TypeVar("T")

Attributes: TypeAlias = tuple[tuple[str, str], ...]
_Field: TypeAlias = tuple[int, int, int | memoryview]
_Steps: TypeAlias = Generator[None, None, T]


class DataPoint(msgspec.Struct, frozen=True):
    """
    One value of one metric.

    Attributes:
        is_counter: whether the metric is a sum that only rises.
        is_delta: whether the value is what was added since the last push.
    """

    name: str
    attributes: Attributes
    value: float
    is_counter: bool
    is_delta: bool


class TooManyFieldsError(CorruptError):
    """The message has more than `TELEMETRY_FIELDS_MAX` fields."""


def read_metrics(data: bytes) -> Generator[DataPoint | None, None, None]:
    """
    Yield the data points of a message, and None between steps.

    Raises:
        CorruptError: the message is malformed, or has too many fields.
    """
    return _Reader().metrics(memoryview(data))


class _Reader:
    """Attributes: count: the fields that were read."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def metrics(self, data: memoryview) -> Generator[DataPoint | None, None, None]:
        for resource_metrics in (yield from self._messages(data, 1)):
            for scope_metrics in (yield from self._messages(resource_metrics, 2)):
                for metric in (yield from self._messages(scope_metrics, 2)):
                    yield from self._points(metric)

    def _points(self, metric: memoryview) -> Generator[DataPoint | None, None, None]:
        name = ""
        found: memoryview | None = None
        is_sum = False
        for number, kind, value in (yield from self._fields(metric, 1, 5, 7)):
            if number == 1 and kind == _BYTES:
                name = _text(value, TELEMETRY_TEXT_LENGTH_MAX + 1)
            elif number != 1 and isinstance(value, memoryview):
                found, is_sum = value, number == 7
        if found is None or not name:
            return
        temporality = is_monotonic = 0
        points = []
        for number, _, value in (yield from self._fields(found, 1, 2, 3)):
            if number == 1 and isinstance(value, memoryview):
                points.append(value)
            elif isinstance(value, int):
                temporality = value if number == 2 else temporality
                is_monotonic = value if number == 3 else is_monotonic
        for point in points:
            number_value, attributes = yield from self._point(point)
            yield DataPoint(
                name,
                attributes,
                number_value,
                is_counter=is_sum and bool(is_monotonic),
                is_delta=is_sum and temporality == 1,
            )

    def _point(self, point: memoryview) -> _Steps[tuple[float, Attributes]]:
        result = 0.0
        attributes: list[tuple[str, str]] = []
        for number, kind, value in (yield from self._fields(point, 4, 6, 7)):
            if number == 4 and kind == _FIXED64 and isinstance(value, memoryview):
                result = _DOUBLE.unpack(value)[0]
            elif number == 6 and kind == _FIXED64 and isinstance(value, memoryview):
                result = float(_SFIXED64.unpack(value)[0])
            elif number == 7 and isinstance(value, memoryview) and len(attributes) < TELEMETRY_ATTRIBUTES_MAX:
                attributes.append((yield from self._attribute(value)))
        return result, tuple(attributes)

    def _attribute(self, data: memoryview) -> _Steps[tuple[str, str]]:
        key = text = ""
        for number, kind, value in (yield from self._fields(data, 1, 2)):
            if number == 1 and kind == _BYTES:
                key = _text(value)
            elif number == 2 and isinstance(value, memoryview):
                text = yield from self._any_value(value)
        return key, text

    def _any_value(self, data: memoryview) -> _Steps[str]:
        for number, kind, value in (yield from self._fields(data, 1, 2, 3, 4)):
            if number == 1 and kind == _BYTES:
                return _text(value)
            if number == 2 and isinstance(value, int):
                return "true" if value else "false"
            if number == 3 and isinstance(value, int):
                return str(value - (1 << 64) if value >> 63 else value)
            if number == 4 and kind == _FIXED64 and isinstance(value, memoryview):
                return repr(_DOUBLE.unpack(value)[0])
        return ""

    def _messages(self, data: memoryview, wanted: int) -> _Steps[list[memoryview]]:
        """The embedded messages of a repeated field."""
        fields = yield from self._fields(data, wanted)
        return [value for _, kind, value in fields if kind == _BYTES and isinstance(value, memoryview)]

    def _fields(self, data: memoryview, *wanted: int) -> _Steps[list[_Field]]:
        """
        Number, wire type and value of each field with one of the numbers: an integer for a varint, else its bytes.

        Raises:
            CorruptError: a length is wrong, a wire type is unknown, or there are too many fields.
        """
        found: list[_Field] = []
        position, end = 0, len(data)
        while position < end:
            self.count += 1
            if self.count % _STEP == 0:
                yield
            if self.count > TELEMETRY_FIELDS_MAX:
                raise TooManyFieldsError(f"a message of metrics has more than {TELEMETRY_FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            kind = tag & 7
            value: int | memoryview
            if kind == _VARINT:
                value, position = _varint(data, position)
            else:
                if kind == _BYTES:
                    size, position = _varint(data, position)
                elif kind == _FIXED64:
                    size = 8
                elif kind == _FIXED32:
                    size = 4
                else:
                    raise CorruptError(f"wire type {kind} in a message of metrics")
                if size > end - position:
                    raise CorruptError("a field of a message of metrics is longer than the message")
                value = data[position : position + size]
                position += size
            if tag >> 3 in wanted:
                found.append((tag >> 3, kind, value))
        return found


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise CorruptError("a varint of a message of metrics does not end")


def _text(value: int | memoryview, length_max: int = TELEMETRY_TEXT_LENGTH_MAX) -> str:
    """The first characters of a text."""
    assert isinstance(value, memoryview)
    head = bytes(value[: length_max * _CHARACTER_BYTES_MAX])
    try:
        return str(head, "utf-8")[:length_max]
    except UnicodeDecodeError as error:
        if len(head) < len(value) and error.end == len(head):
            # The cut is within a character.
            return str(head[: error.start], "utf-8")[:length_max]
        raise CorruptError("a text of a message of metrics is not UTF-8") from error
