"""
The last values of the metrics that clients have pushed, for /metrics. All of it is bounded: clients choose names and labels.

A counter that is pushed as a difference is summed up here. The values of a client are kept until it has not pushed for three
of its intervals.
"""

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import msgspec

from kohort.broker.telemetry.otlp import Attributes, DataPoint
from kohort.model.ids import uuid_text
from kohort.model.limits import TELEMETRY_NAMES_MAX, TELEMETRY_SERIES_MAX, TELEMETRY_TEXT_LENGTH_MAX

_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)

Labels = tuple[tuple[str, str], ...]


class Series(msgspec.Struct):
    """One value with its labels."""

    name: str
    labels: Labels
    value: float
    is_counter: bool


class _Client:
    __slots__ = ("expires_ms", "labels", "series")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.series: dict[tuple[str, Attributes], Series] = {}
        self.expires_ms = 0


class ReceivedMetrics:
    """
    Attributes:
        dropped: data points for which there was no room, or whose metric was of another type before.
    """

    def __init__(self) -> None:
        self._clients: dict[UUID, _Client] = {}
        self._is_counter: dict[str, bool] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, client_instance_id: UUID, client_id: str, now_ms: int, expires_ms: int) -> None:
        """Begin a push of a client: its values are kept until `expires_ms`."""
        self._expire(now_ms)
        client = self._clients.pop(client_instance_id, None)
        if client is None:
            labels = (
                ("client_instance_id", uuid_text(client_instance_id)),
                ("client_id", client_id[:TELEMETRY_TEXT_LENGTH_MAX]),
            )
            client = _Client(labels)
        client.expires_ms = expires_ms
        self._clients[client_instance_id] = client

    def add(self, client_instance_id: UUID, point: DataPoint) -> None:
        """Take a value of a client whose push has begun."""
        client = self._clients.get(client_instance_id)
        if client is None or len(point.name) > TELEMETRY_TEXT_LENGTH_MAX:
            self.dropped += 1
            return
        key = point.name, point.attributes
        series = client.series.get(key)
        if series is None:
            series = self._make(client, point)
            if series is None:
                self.dropped += 1
                return
            client.series[key] = series
            self._count += 1
        series.value = series.value + point.value if point.is_delta and point.is_counter else point.value

    def _make(self, client: _Client, point: DataPoint) -> Series | None:
        name = "kohort_client_" + _NOT_IN_NAMES.sub("_", point.name.removeprefix(_PREFIX))
        is_known = name in self._is_counter
        if self._count >= TELEMETRY_SERIES_MAX or (not is_known and len(self._is_counter) >= TELEMETRY_NAMES_MAX):
            return None
        if self._is_counter.setdefault(name, point.is_counter) != point.is_counter:
            return None
        own = {_NOT_IN_NAMES.sub("_", label)[:TELEMETRY_TEXT_LENGTH_MAX]: text for label, text in point.attributes}
        labels = tuple(
            (f"_{label}" if not label or label[0].isdigit() else label, text[:TELEMETRY_TEXT_LENGTH_MAX])
            for label, text in own.items()
            if label not in ("client_instance_id", "client_id")
        )
        return Series(name, (*client.labels, *labels), 0.0, point.is_counter)

    def _expire(self, now_ms: int) -> None:
        for client_instance_id, client in list(self._clients.items()):
            if client.expires_ms <= now_ms:
                self._count -= len(client.series)
                del self._clients[client_instance_id]
        if not self._count:
            self._is_counter.clear()

    def series(self, now_ms: int) -> Iterator[Series]:
        """All values that are kept."""
        self._expire(now_ms)
        for client in self._clients.values():
            yield from client.series.values()
