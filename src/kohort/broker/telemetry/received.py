"""
The last values of the metrics that clients have pushed, for /metrics. All of it is bounded: clients choose names and labels.

A counter that is pushed as a difference is summed up here. The values of a client are kept until it has not pushed for three
of its intervals. A client without a value takes no room.
"""

import re
from collections.abc import Iterator
from heapq import heappop, heappush
from sys import getsizeof
from typing import Final
from uuid import UUID

import msgspec

from kohort.broker.telemetry.otlp import Attributes, DataPoint
from kohort.model.ids import uuid_text
from kohort.model.limits import (
    TELEMETRY_NAMES_MAX,
    TELEMETRY_SERIES_MAX,
    TELEMETRY_TEXT_BYTES_MAX,
    TELEMETRY_TEXT_LENGTH_MAX,
)

_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)
_EXPIRED_AT_ONCE: Final = 1_000
"""Values that are forgotten at once, with those of one more client."""

Labels = tuple[tuple[str, str], ...]


class Series(msgspec.Struct):
    """One value with its labels."""

    name: str
    labels: Labels
    value: float
    is_counter: bool


class _Name:
    """A name of exported metrics: its type, and the number of values."""

    __slots__ = ("count", "is_counter", "text")

    def __init__(self, text: str, *, is_counter: bool) -> None:
        self.text = text
        self.is_counter = is_counter
        self.count = 0


class _Value:
    __slots__ = ("name", "value")

    def __init__(self, name: _Name) -> None:
        self.name = name
        self.value = 0.0


class PushingClient:
    """A client, and its values by the name and attributes that it has given them."""

    __slots__ = ("expires_ms", "instance_id", "labels", "values")

    def __init__(self, instance_id: UUID, client_id: str) -> None:
        self.instance_id = instance_id
        self.labels = (
            ("client_instance_id", uuid_text(instance_id)),
            ("client_id", client_id[:TELEMETRY_TEXT_LENGTH_MAX]),
        )
        self.values: dict[tuple[str, Attributes], _Value] = {}
        self.expires_ms = 0


class ReceivedMetrics:
    """
    Attributes:
        dropped: data points for which there was no room, or whose metric was of another type before.
    """

    def __init__(self) -> None:
        self._clients: dict[UUID, PushingClient] = {}
        """The clients that have values."""
        self._deadlines: list[tuple[int, UUID]] = []
        """A heap with one entry for each of them; the time may be that of an earlier push."""
        self._names: dict[str, _Name] = {}
        self._count = 0
        self._text_bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, instance_id: UUID, client_id: str, now_ms: int, expires_ms: int) -> PushingClient:
        """Begin a push of a client: its values are kept until `expires_ms`."""
        self._expire(now_ms)
        client = self._clients.get(instance_id) or PushingClient(instance_id, client_id)
        client.expires_ms = expires_ms
        return client

    def add(self, client: PushingClient, point: DataPoint) -> None:
        """Take a value of a client whose push has begun."""
        key = point.name, point.attributes
        value = client.values.get(key)
        if value is None:
            value = self._make(client, point)
            if value is None:
                self.dropped += 1
                return
        value.value = value.value + point.value if point.is_delta and point.is_counter else point.value

    def _make(self, client: PushingClient, point: DataPoint) -> _Value | None:
        text = "kohort_client_" + _NOT_IN_NAMES.sub("_", point.name.removeprefix(_PREFIX))
        if point.is_counter:
            # Prometheus' rule. A gauge may have the name of no counter.
            text = f"{text.removesuffix('_total')}_total"
        key = point.name, point.attributes
        text_bytes = _text_bytes(key)
        name = self._names.get(text)
        if (
            len(point.name) > TELEMETRY_TEXT_LENGTH_MAX
            or self._count >= TELEMETRY_SERIES_MAX
            or self._text_bytes + text_bytes > TELEMETRY_TEXT_BYTES_MAX
            or (name is None and len(self._names) >= TELEMETRY_NAMES_MAX)
            or (name is not None and name.is_counter != point.is_counter)
            or self._clients.setdefault(client.instance_id, client) is not client
        ):
            return None
        if not client.values:
            heappush(self._deadlines, (client.expires_ms, client.instance_id))
        if name is None:
            name = self._names[text] = _Name(text, is_counter=point.is_counter)
        name.count += 1
        self._count += 1
        self._text_bytes += text_bytes
        value = client.values[key] = _Value(name)
        return value

    def _expire(self, now_ms: int) -> None:
        least = self._count - _EXPIRED_AT_ONCE
        while self._deadlines and self._deadlines[0][0] <= now_ms and self._count > least:
            client = self._clients[heappop(self._deadlines)[1]]
            if client.expires_ms > now_ms:
                heappush(self._deadlines, (client.expires_ms, client.instance_id))
            else:
                self._forget(client)

    def _forget(self, client: PushingClient) -> None:
        for key, value in client.values.items():
            value.name.count -= 1
            if not value.name.count:
                del self._names[value.name.text]
            self._text_bytes -= _text_bytes(key)
        self._count -= len(client.values)
        client.values.clear()
        del self._clients[client.instance_id]

    def series(self, now_ms: int) -> Iterator[Series]:
        """All values that are kept. They may change while they are read."""
        self._expire(now_ms)
        for client in list(self._clients.values()):
            if client.expires_ms > now_ms:
                for (_, attributes), value in list(client.values.items()):
                    labels = (*client.labels, *_labels(attributes))
                    yield Series(value.name.text, labels, value.value, value.name.is_counter)


def _text_bytes(key: tuple[str, Attributes]) -> int:
    """The memory of the texts of a key."""
    name, attributes = key
    return getsizeof(name) + sum(getsizeof(label) + getsizeof(text) for label, text in attributes)


def _labels(attributes: Attributes) -> Iterator[tuple[str, str]]:
    """The labels for attributes. Two attributes with one label are one."""
    own = {_NOT_IN_NAMES.sub("_", name): text for name, text in attributes}
    for label, text in own.items():
        if label not in ("client_instance_id", "client_id"):
            yield f"_{label}" if not label or label[0].isdigit() else label, text
