"""
Reader of OpenTelemetry metrics in protobuf, as clients push them: gauges and sums. Other kinds of metrics are skipped.

Every length is checked, and the work is bounded by the number of data points, so a hostile message costs no more than a usual
one. Unknown fields are skipped, as protobuf asks.

Source: opentelemetry/proto/metrics/v1/metrics.proto (MetricsData), common.proto, resource.proto; the protobuf encoding.
"""

from collections.abc import Generator, Iterator
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from kohort.model.errors import CorruptError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")
_VARINT_BYTES_MAX: Final = 10
_STEP: Final = 50
"""Data points that are read at once."""

Attributes: TypeAlias = tuple[tuple[str, str], ...]
_Field: TypeAlias = tuple[int, int, int | memoryview]


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


def read_metrics(data: bytes, attributes_max: int) -> Generator[DataPoint | None, None, None]:
    """
    Yield the data points of a message, and None between steps.

    Args:
        attributes_max: further attributes of a data point are left out.

    Raises:
        CorruptError: the message is malformed.
    """
    count = 0
    for resource_metrics in _messages(memoryview(data), 1):
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                for point in _points(metric, attributes_max):
                    yield point
                    count += 1
                    if count % _STEP == 0:
                        yield None


def _points(metric: memoryview, attributes_max: int) -> Iterator[DataPoint]:
    name = ""
    found: memoryview | None = None
    is_sum = False
    for number, kind, value in _fields(metric):
        if number == 1 and kind == _BYTES:
            name = _text(value)
        elif number in (5, 7) and isinstance(value, memoryview):
            found, is_sum = value, number == 7
    if found is None or not name:
        return
    temporality = is_monotonic = 0
    points = []
    for number, _, value in _fields(found):
        if number == 1 and isinstance(value, memoryview):
            points.append(value)
        elif isinstance(value, int):
            temporality = value if number == 2 else temporality
            is_monotonic = value if number == 3 else is_monotonic
    for point in points:
        number_value, attributes = _point(point, attributes_max)
        yield DataPoint(
            name,
            attributes,
            number_value,
            is_counter=is_sum and bool(is_monotonic),
            is_delta=is_sum and temporality == 1,
        )


def _point(point: memoryview, attributes_max: int) -> tuple[float, Attributes]:
    result = 0.0
    attributes: list[tuple[str, str]] = []
    for number, kind, value in _fields(point):
        if number == 4 and kind == _FIXED64 and isinstance(value, memoryview):
            result = _DOUBLE.unpack(value)[0]
        elif number == 6 and kind == _FIXED64 and isinstance(value, memoryview):
            result = float(_SFIXED64.unpack(value)[0])
        elif number == 7 and isinstance(value, memoryview) and len(attributes) < attributes_max:
            attributes.append(_attribute(value))
    return result, tuple(attributes)


def _attribute(data: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, kind, value in _fields(data):
        if number == 1 and kind == _BYTES:
            key = _text(value)
        elif number == 2 and isinstance(value, memoryview):
            text = _any_value(value)
    return key, text


def _any_value(data: memoryview) -> str:
    for number, kind, value in _fields(data):
        if number == 1 and kind == _BYTES:
            return _text(value)
        if number == 2 and isinstance(value, int):
            return "true" if value else "false"
        if number == 3 and isinstance(value, int):
            return str(value - (1 << 64) if value >> 63 else value)
        if number == 4 and kind == _FIXED64 and isinstance(value, memoryview):
            return repr(_DOUBLE.unpack(value)[0])
    return ""


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The embedded messages of a repeated field."""
    for number, kind, value in _fields(data):
        if number == wanted and kind == _BYTES and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[_Field]:
    """
    Number, wire type and value of each field: an integer for a varint, else its bytes.

    Raises:
        CorruptError: a length is wrong, or a wire type is unknown.
    """
    position, end = 0, len(data)
    while position < end:
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
        yield tag >> 3, kind, value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(position + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise CorruptError("a varint of a message of metrics does not end")


def _text(value: int | memoryview) -> str:
    assert isinstance(value, memoryview)
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError("a text of a message of metrics is not UTF-8") from error
